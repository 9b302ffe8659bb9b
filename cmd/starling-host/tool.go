package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/guest"
)

const describeHelp = `Print what a module says of its tools, and what it is: its digest, its ABI and
its imports. The module is loaded and asked with its imports refused; no tool
runs and nothing is recorded.`

func (a *app) toolCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "tool",
		Short:   "look at tools",
		Long:    "Commands that look at a module without running its tools.",
		GroupID: groupRun,
		Args:    knownSubcommand,
		RunE:    showHelp,

		SuggestionsMinimumDistance: typos,
	}
	var output string
	describe := &cobra.Command{
		Use:     "describe TOOL",
		Short:   "name, description, schemas, wanted hosts, imports, digest",
		Long:    describeHelp,
		Example: "  starling-host tool describe dice.wasm\n  starling-host tool describe dice.wasm -o json",
		Args:    arguments(1, "TOOL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.describe(cmd.Context(), args[0], output)
		},
	}
	outputFlag(describe, &output)
	cmd.AddCommand(a.checkCommand(), describe)
	return cmd
}

func (a *app) describe(ctx context.Context, ref, output string) error {
	module, err := load(ctx, ref, isolationInline, guest.Options{})
	if err != nil {
		return err
	}
	defer module.close(context.WithoutCancel(ctx))
	doc := newModuleDocument(module)
	if output == outputJSON {
		return a.writeValue(doc)
	}
	a.printModule(doc)
	return nil
}

// moduleDocument is what "tool describe -o json" prints.
type moduleDocument struct {
	Source  string         `json:"source"`
	Digest  string         `json:"digest"`
	Size    int            `json:"size"`
	ABI     string         `json:"abi"`
	Imports []string       `json:"imports"`
	Tools   []toolDocument `json:"tools"`
}

type toolDocument struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	Effects      []string        `json:"effects"`
	Idempotent   bool            `json:"idempotent"`
	Limits       abi.Limits      `json:"limits,omitzero"`
}

func newModuleDocument(m *loaded) moduleDocument {
	doc := moduleDocument{
		Source: m.source.Source, Digest: m.Digest().String(), Size: len(m.source.Wasm),
		ABI: m.ABI(), Imports: append([]string{}, m.Imports()...),
	}
	for _, t := range m.Tools() {
		d := t.Describe()
		doc.Tools = append(doc.Tools, toolDocument{
			Name: d.Name, Description: d.Description, InputSchema: json.RawMessage(d.InputSchema),
			OutputSchema: json.RawMessage(d.OutputSchema), Effects: append([]string{}, d.Effects...),
			Idempotent: d.Idempotent, Limits: d.Limits,
		})
	}
	return doc
}

func (a *app) printModule(doc moduleDocument) {
	for _, t := range doc.Tools {
		a.printTool(t)
		fmt.Fprintln(a.stdout)
	}
	fmt.Fprintf(a.stdout, "module   %s\n", printable(doc.Source))
	fmt.Fprintf(a.stdout, "digest   %s\n", doc.Digest)
	fmt.Fprintf(a.stdout, "size     %s\n", formatSize(uint64(doc.Size)))
	fmt.Fprintf(a.stdout, "abi      %s\n", doc.ABI)
	fmt.Fprintf(a.stdout, "imports  %s\n", listOr(doc.Imports, "none"))
}

func (a *app) printTool(t toolDocument) {
	fmt.Fprintf(a.stdout, "tool     %s\n", printable(t.Name))
	for _, line := range printableLines(t.Description) {
		fmt.Fprintf(a.stdout, "         %s\n", line)
	}
	fmt.Fprintf(a.stdout, "input    %s\n", printableJSON(t.InputSchema))
	if len(t.OutputSchema) > 0 {
		fmt.Fprintf(a.stdout, "output   %s\n", printableJSON(t.OutputSchema))
	}
	fmt.Fprintf(a.stdout, "hosts    %s\n", listOr(t.Effects, "none"))
	fmt.Fprintf(a.stdout, "repeat   %s\n", map[bool]string{true: "harmless", false: "not said to be harmless"}[t.Idempotent])
	if l := t.Limits; l != (abi.Limits{}) {
		fmt.Fprintf(a.stdout, "wants    fuel %d, memory %s, timeout %dms\n", l.Fuel, formatSize(l.MemoryBytes), l.TimeoutMs)
	}
}

// listOr joins a list for reading; an empty one is the word instead.
func listOr(list []string, word string) string {
	if len(list) == 0 {
		return word
	}
	return printable(strings.Join(list, ", "))
}
