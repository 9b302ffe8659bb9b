package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
)

const describeHelp = `Print a module's digest, ABI, imports and description of its tools. The module is
loaded and asked for its description. No tool runs and nothing is recorded.`

func (a *app) toolCommand() *cobra.Command {
	describe := &cobra.Command{
		Use:     "describe TOOL",
		Short:   "print name, description, schemas, requested hosts, imports and digest",
		Long:    describeHelp,
		Example: "  starling-host tool describe dice.wasm\n  starling-host tool describe dice.wasm -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, doc, err := a.examine(cmd.Context(), args[0], artifact.Finder{})
			if err != nil {
				return err
			}
			return a.emit(doc, func() {
				a.printModule(doc)
			})
		},
	}
	a.outputFlag(describe)
	return parent("tool", "write tools, and look at them", "Write a tool, build it, test it, and look at the module.",
		a.toolNewCommand(), a.toolBuildCommand(), a.toolDevCommand(), a.toolTestCommand(), a.toolBenchCommand(), describe, a.checkCommand(),
		a.pushCommand(), a.pullCommand(), a.listCommand(), a.signCommand(), a.verifyToolCommand(), a.toolDiffCommand())
}

// examine loads a module and describes it. Nothing is recorded.
func (a *app) examine(ctx context.Context, ref string, f artifact.Finder) (guest.Source, starling.ModuleDocument, error) {
	db := starling.Over(nil, starling.Options{Finder: f, Engine: starling.EngineOptions{Warn: a.warn}})
	defer db.Close()
	m, err := db.LoadModule(ctx, ref, starling.ToolOptions{})
	if err != nil {
		return guest.Source{}, starling.ModuleDocument{}, err
	}
	return m.Source, m.Document(), nil
}

func (a *app) printModule(doc starling.ModuleDocument) {
	for _, t := range doc.Tools {
		a.printTool(t)
		a.stdout.Printf("\n")
	}
	a.stdout.Printf("module   %s\n", doc.Source)
	a.stdout.Printf("digest   %s\n", doc.Digest)
	a.stdout.Printf("size     %s\n", display.Size(uint64(doc.Size)))
	a.stdout.Printf("abi      %s\n", doc.ABI)
	a.stdout.Printf("imports  %s\n", listOr(doc.Imports, "none"))
	printOrigin(doc.Component, doc.Interpreter, func(name, text string) { a.stdout.Printf("%-8s %s\n", name, text) })
}

// printOrigin prints the component or the interpreter that a module was made of, if it was.
func printOrigin(p *guest.Provenance, i *guest.Interpreter, line func(name, text string)) {
	if i != nil {
		line("made of", display.Printable(fmt.Sprintf("%s %s, an interpreter of %s", i.Name, i.Version, i.Language)))
	}
	if p == nil {
		return
	}
	line("made of", fmt.Sprintf("component %s, by version %d of the linker", p.Component, p.Linker))
	line("", "which imports "+display.Printable(listOr(p.Imports, "nothing")))
	line("", "and exports "+display.Printable(listOr(p.Exports, "nothing")))
	for _, note := range []struct{ what, text string }{
		{"built by ", strings.Join(p.Producers, ", ")}, {"named ", strings.TrimSpace(p.Name + " " + p.Version)},
		{"described as ", p.Description}, {"license ", p.License}, {"source ", p.Source},
	} {
		if note.text != "" {
			line("", note.what+display.Printable(note.text))
		}
	}
}

func (a *app) printTool(t guest.ToolDocument) {
	a.stdout.Printf("tool     %s\n", t.Name)
	for _, line := range terminal.PrintableLines(t.Description) {
		a.stdout.Printf("         %s\n", line)
	}
	a.stdout.Printf("input    %s\n", readableSchema(t.InputSchema))
	if len(t.OutputSchema) > 0 {
		a.stdout.Printf("output   %s\n", readableSchema(t.OutputSchema))
	}
	a.stdout.Printf("hosts    %s\n", listOr(t.Effects, "none"))
	a.stdout.Printf("repeat   %s\n", map[bool]string{true: "harmless", false: "not declared harmless"}[t.Idempotent])
	if l := t.Limits; l != (abi.Limits{}) {
		a.stdout.Printf("wants    fuel %d, memory %s, timeout %dms\n", l.Fuel, display.Size(l.MemoryBytes), l.TimeoutMs)
	}
}

// readableSchema is a schema for reading: the one of a WASI command, which has no other, in words.
func readableSchema(schema []byte) string {
	if string(schema) == "true" {
		return "any JSON document"
	}
	return string(display.PrintableJSON(schema))
}

// listOr joins a list for reading; an empty one is the word instead.
func listOr(list []string, word string) string {
	if len(list) == 0 {
		return word
	}
	return strings.Join(list, ", ")
}
