package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
)

// The values of -o.
const (
	outputText = "text"
	outputJSON = "json"
)

// outputFlag adds -o to a command.
func outputFlag(cmd *cobra.Command, value *string) {
	*value = outputText
	choices := []string{outputText, outputJSON}
	cmd.Flags().VarP(choiceFlag{value, choices}, "output", "o", "format of standard output")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
}

// writeDocument prints a JSON document and a line break: its exact bytes to a
// file or a pipe, the same value without unprintable characters to a terminal.
func (a *app) writeDocument(doc []byte) error {
	if a.terminal {
		doc = printableJSON(doc)
	}
	_, err := fmt.Fprintf(a.stdout, "%s\n", doc)
	return err
}

// writeValue prints v as a JSON document on one line.
func (a *app) writeValue(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	return a.writeDocument(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}
