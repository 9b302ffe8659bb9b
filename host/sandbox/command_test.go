package sandbox

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/wasm"
)

func TestAGoCommandReadsItsInputAndWritesItsOutput(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, input string
		output, log string
		class       error
		text        string
		old         string // the whole error by the rules before version 1, if it is another
	}{
		{name: "success", input: `{"a":1}`, output: `{"args":["shout" "" "é" "A=1" "B="],"input":{"a":1}}`, log: "a note for the log\n"},
		{name: "the time", input: `"time"`, output: `"2026-09-21T14:13:21Z"`},
		{name: "failure", input: `"fail"`, text: "exit code 7: cannot do that", log: "cannot do that\n"},
		{name: "findings", input: `"lint"`, text: "exit code 1:   a.py:3: unused import\n\uFFFD", old: "exit code 1"},
		{name: "two streams", input: `"both"`, text: "exit code 2: they differ\nstandard output:\n1c1\n< a", old: "exit code 2: they differ", log: "they differ\n"},
		{name: "long", input: `"long"`, text: "exit code 1: first" + strings.Repeat(".", stdoutHead-5) + "\n[...]\n" + strings.Repeat(".", stdoutTail-4) + "last", old: "exit code 1"},
		{name: "a panic", input: `"panic"`, text: "standard output:\nit began", log: "panic: the command has a bug"},
		{name: "too much output", input: `"flood"`, class: abi.ErrLimit, text: "output of more than 1048576 bytes"},
	}
	modules := [2]*Module{load(t, compiler(), goGuest(t, "command"), Limits{}), load(t, own(), goGuest(t, "command"), Limits{})}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var seen [2]observation
			for i, m := range modules {
				var err error
				seen[i], err = observe(t, m, Call{Tool: "shout", Args: []string{"", "é"}, Env: []string{"A=1", "B="}, Input: []byte(tt.input), Rules: 1}, &world{})
				before, _ := observe(t, m, Call{Tool: "shout", Input: []byte(tt.input)}, &world{})
				if tt.old != "" && (before.Error != tt.old || err.Error() != tt.text) || strings.Contains(before.Error, "it began") {
					t.Errorf("error %v, by the rules of before %s", err, before.Error)
				}
				if (err != nil) != (tt.text != "") || !errors.Is(err, tt.class) && tt.class != nil || !strings.Contains(seen[i].Error, tt.text) {
					t.Errorf("error %v", err)
				}
			}
			if !cmp.Equal(seen[0], seen[1]) {
				t.Errorf("the engines differ:\n%s", cmp.Diff(seen[0], seen[1]))
			}
			if seen[0].Output != tt.output || !strings.HasPrefix(seen[0].Result.Meter.Log, tt.log) {
				t.Errorf("output %q, log %q", seen[0].Output, seen[0].Result.Meter.Log)
			}
		})
	}
}

func TestWASICommandExitCodes(t *testing.T) {
	t.Parallel()
	exit := func(code int32) []byte {
		return wasiCommand(asm().I32(code).Index(wasm.OpCall, 0).Op(wasm.OpUnreachable), "proc_exit")
	}
	tests := []struct {
		name   string
		module []byte
		text   string
	}{
		{"it returns", wasiCommand(asm()), ""},
		{"it exits with 0", exit(0), ""},
		{"it exits with 1", exit(1), "exit code 1"},
		{"it exits with -1", exit(-1), "exit code 4294967295"},
		{"it traps", wasiCommand(asm().Op(wasm.OpUnreachable)), "tool: panicked: trap: unreachable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			onEveryEngine(t, func(t *testing.T, e *Engine) {
				got, _ := observe(t, load(t, e, tt.module, Limits{}), Call{}, &world{})
				if got.Error != tt.text || (got.Result.Output != nil) != (tt.text == "") {
					t.Errorf("error %q, output %v", got.Error, got.Result.Output)
				}
			})
		})
	}
}
