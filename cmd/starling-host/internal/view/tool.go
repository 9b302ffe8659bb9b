package view

import (
	"fmt"
	"strings"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
)

// Certificate prints what determines an execution of a module.
func Certificate(w *terminal.Printer, c starling.Certificate) {
	line := func(name, format string, args ...any) {
		w.Printf("%-11s  %s\n", name, fmt.Sprintf(format, args...))
	}
	line("digest", "%s", c.Digest)
	line("size", "%s", display.Size(uint64(c.Size)))
	line("abi", "%s", c.ABI)
	printOrigin(c.Component, c.Interpreter, func(name, text string) { line(name, "%s", text) })
	if len(c.Tools) > 0 {
		line("tools", "%s", strings.Join(c.Tools, ", "))
	}
	for i, module := range []string{abi.Version, abi.WASIModule} {
		var names []string
		for _, im := range c.Imports {
			if name, ok := strings.CutPrefix(im, module+"."); ok {
				names = append(names, name)
			}
		}
		line([]string{"imports", ""}[i], "%s of %s", ListOr(names, "none"), module)
	}
	line("features", "%s", ListOr(c.Features, "none beyond the first version of WebAssembly"))
	line("memory", "%s to %s", display.Size(uint64(c.Memory.Min)*sandbox.PageSize), display.Size(uint64(c.Memory.Max)*sandbox.PageSize))
	line("cost table", "%d", c.CostTable)
	line("rewritten", "%s", c.Rewritten.Digest)
	line("", "%s, %d functions metered", display.Size(uint64(c.Rewritten.Size)), c.Rewritten.Functions)
	line("", "%d of %d float instructions made canonical", c.Rewritten.Canonicalized, c.Rewritten.Arithmetic)
	if c.Start.Error != "" {
		line("start", "fails, and so does every call: %s", c.Start.Error)
	} else {
		line("start", "%s", c.Start.Digest)
		line("", "%s of memory, %s fuel", display.Size(uint64(c.Start.Pages)*sandbox.PageSize), display.Fuel(c.Start.Fuel))
	}
	if c.Start.Uncalled {
		line("", "_start is never called, because there are exports starling_*: move its code into _initialize, as in a reactor")
	}
	for i, h := range c.Limits {
		name := ""
		if i == 0 {
			name = "limits"
		}
		line(name, "%-48s  %11d of %11d", h.What, h.Value, h.Limit)
	}
}

// Module prints a module and its tools.
func Module(w *terminal.Printer, doc starling.ModuleDocument) {
	for _, t := range doc.Tools {
		describe(w, t)
		w.Printf("\n")
	}
	w.Printf("module   %s\n", doc.Source)
	w.Printf("digest   %s\n", doc.Digest)
	w.Printf("size     %s\n", display.Size(uint64(doc.Size)))
	w.Printf("abi      %s\n", doc.ABI)
	w.Printf("imports  %s\n", ListOr(doc.Imports, "none"))
	printOrigin(doc.Component, doc.Interpreter, func(name, text string) { w.Printf("%-8s %s\n", name, text) })
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
	line("", "which imports "+display.Printable(ListOr(p.Imports, "nothing")))
	line("", "and exports "+display.Printable(ListOr(p.Exports, "nothing")))
	for _, note := range []struct{ what, text string }{
		{"built by ", strings.Join(p.Producers, ", ")}, {"named ", strings.TrimSpace(p.Name + " " + p.Version)},
		{"described as ", p.Description}, {"license ", p.License}, {"source ", p.Source},
	} {
		if note.text != "" {
			line("", note.what+display.Printable(note.text))
		}
	}
}

// describe prints a tool.
func describe(w *terminal.Printer, t guest.ToolDocument) {
	w.Printf("tool     %s\n", t.Name)
	for _, line := range terminal.PrintableLines(t.Description) {
		w.Printf("         %s\n", line)
	}
	w.Printf("input    %s\n", readableSchema(t.InputSchema))
	if len(t.OutputSchema) > 0 {
		w.Printf("output   %s\n", readableSchema(t.OutputSchema))
	}
	w.Printf("hosts    %s\n", ListOr(t.Effects, "none"))
	w.Printf("repeat   %s\n", map[bool]string{true: "harmless", false: "not declared harmless"}[t.Idempotent])
	if l := t.Limits; l != (abi.Limits{}) {
		w.Printf("wants    fuel %d, memory %s, timeout %dms\n", l.Fuel, display.Size(l.MemoryBytes), l.TimeoutMs)
	}
}

// readableSchema is a schema for reading: the one of a WASI command, which has no other, in words.
func readableSchema(schema []byte) string {
	if string(schema) == "true" {
		return "any JSON document"
	}
	return string(display.PrintableJSON(schema))
}

// ListOr joins a list for reading; an empty one is the word instead.
func ListOr(list []string, word string) string {
	if len(list) == 0 {
		return word
	}
	return strings.Join(list, ", ")
}
