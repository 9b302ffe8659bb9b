package sandbox

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
)

// observation is everything that is observable in a call.
type observation struct {
	Result   Result
	Output   string
	Error    string
	Effects  []string
	Fuel     []uint64
	Requests []string
}

func observe(t *testing.T, m *Module, c Call, w *world) (observation, error) {
	t.Helper()
	result, err := m.Call(t.Context(), c, w)
	o := observation{Result: result, Output: string(result.Output), Effects: w.effects, Fuel: w.fuel, Requests: w.requests}
	if err != nil {
		o.Error = err.Error()
	}
	return o, err
}

func observeGo(t *testing.T, interpreted bool, name, input string) (observation, error) {
	w := &world{http: func(string) (string, abi.Status) { return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 0 }}
	c := Call{Tool: name, Input: envelope(name, input)}
	c.Probe = func(meter func() Meter) { w.meter = meter }
	return observe(t, goTool(t, interpreted), c, w)
}

func TestAGoToolIsAFunctionOfItsInputAndEffects(t *testing.T) {
	t.Parallel()
	tests := []struct {
		tool, input string
		output      string   // a part of the output document
		err         error    // the class
		text        string   // a part of the error's text
		log         string   // a part of the log
		effects     []string // the recorded effects
	}{
		{tool: "echo", input: `"\u00e9"`, output: `{"output":"\"\\u00e9\""}`},
		{tool: "clock", input: `null`, effects: []string{"now", "now"},
			output: `,true,true,"2026-09-21T14:13:22`},
		{tool: "sleep", input: `null`, effects: []string{"now"}, output: `["25h30m0s",`},
		{tool: "random", input: `null`, effects: []string{"seed", "random"}, output: `81985529216486895`},
		{tool: "maps", input: `null`, output: `{"output":[[`},
		{tool: "goroutines", input: `null`, output: `,2470]}`},
		{tool: "garbage", input: `null`, effects: []string{"now"}, output: `{"output":20}`},
		{tool: "world", input: `null`, effects: []string{"now"}, output: "[\"[tool]\",\"[]\",\"\","},
		{tool: "print", input: `null`, output: `[0,"EOF"]`, log: "to the log\nto the log as well\nnot \uFFFD text\n"},
		{tool: "flood", input: `null`, output: `{"output":null}`, log: "line 0\nline 1\n"},
		{tool: "fetch", input: `"GET http://h/ HTTP/1.1\r\n\r\n"`, effects: []string{"http"}, output: `[40,"HTTP/1.1 200 OK\r\n`},
		{tool: "recovered", input: `null`, output: `assignment to entry in nil map`},
		{tool: "panic", input: `null`, err: abi.ErrPanicked, text: "the tool has a bug", log: "panic: the tool has a bug"},
		{tool: "nil", input: `null`, err: abi.ErrPanicked, text: "nil pointer dereference"},
		{tool: "exit", input: `null`, err: abi.ErrPanicked, text: "exit code 3"},
		{tool: "deadlock", input: `null`, err: abi.ErrPanicked, text: "deadlock"},
		{tool: "big", input: `null`, effects: []string{"now"}, err: abi.ErrLimit, text: "output of 2097"},
	}
	for _, tt := range tests {
		t.Run(tt.tool, func(t *testing.T) {
			t.Parallel()
			got, err := observeGo(t, false, tt.tool, tt.input)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want class %v", err, tt.err)
			}
			if !strings.Contains(got.Output, tt.output) || !strings.Contains(got.Error, tt.text) || !strings.Contains(got.Result.Meter.Log, tt.log) {
				t.Errorf("output %s\nerror %s\nlog %q", got.Output, got.Error, got.Result.Meter.Log)
			}
			if !cmp.Equal(got.Effects, tt.effects) {
				t.Errorf("effects %v, want %v", got.Effects, tt.effects)
			}
			if again, _ := observeGo(t, false, tt.tool, tt.input); !cmp.Equal(got, again) {
				t.Errorf("a second call differs:\n%s", cmp.Diff(got, again))
			}
			if testing.Short() {
				return // the machine takes its time, with the race detector most of all
			}
			if other, _ := observeGo(t, true, tt.tool, tt.input); !cmp.Equal(got, other) {
				t.Errorf("the machine differs:\n%s", cmp.Diff(got, other))
			}
		})
	}
}

// A Go runtime that lacks a resource dies in its own words, which must reach
// the reader of the error.
func TestAGoToolRunsIntoItsLimits(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: compiles a Go tool three times")
	}
	goCompiler := sync.OnceValue(func() *Engine { return keeping(t) })
	tests := []struct {
		tool   string
		limits Limits
		class  error
		text   string
	}{
		{"spin", Limits{Fuel: 30_000_000}, abi.ErrFuel, "more than 30000000 units"},
		{"recurse", Limits{Depth: 8192}, abi.ErrLimit, "call stack deeper than 8192 slots"},
		{"hoard", Limits{MemoryPages: 256}, abi.ErrLimit, "more than 16 MiB of memory, then a trap: unreachable"},
		{"flood", Limits{LogBytes: 1000}, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.tool, func(t *testing.T) {
			t.Parallel()
			var seen []observation
			onEveryEngine(t, func(t *testing.T, e *Engine) {
				if e == compiler() {
					e = goCompiler() // some of these limits are not in the code
				}
				m := load(t, e, goGuest(t, "tool"), tt.limits)
				got, err := observe(t, m, Call{Tool: tt.tool, Input: envelope(tt.tool, "null")}, &world{})
				if !errors.Is(err, tt.class) || !strings.Contains(got.Error, tt.text) {
					t.Errorf("error %v", err)
				}
				seen = append(seen, got)
			})
			for _, other := range seen[1:] {
				if !cmp.Equal(seen[0], other) {
					t.Errorf("the engines differ:\n%s", cmp.Diff(seen[0], other))
				}
			}
			if n := len(seen[0].Result.Meter.Log); tt.limits.LogBytes > 0 && n != int(tt.limits.LogBytes) {
				t.Errorf("a log of %d bytes", n)
			}
		})
	}
}
