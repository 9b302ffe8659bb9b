package debug_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/debug"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agent"
)

const script = `import { tool } from "starling";

function twice(n) {
  const m = n + n;
  return Number(m);
}

export default tool({
  name: "adder",
  description: "Adds.",

  execute() {
    let sum = Math.round(Math.random());
    for (const n of [1, 2, 3]) {
      sum += twice(n);
    }
    return { sum };
  },
});
`

// open records a call of the script, and begins a session at its end.
func open(t *testing.T) (*debug.Session, []event.Event, *store.MemoryLog) {
	return openScript(t, script)
}

func openScript(t *testing.T, script string) (*debug.Session, []event.Event, *store.MemoryLog) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tool.js")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return openFile(t, path, `{}`, nil)
}

// openFile records a call of the tool in a file, and begins a session at its end.
func openFile(t *testing.T, path, input string, own func(file string) bool) (*debug.Session, []event.Event, *store.MemoryLog) {
	t.Helper()
	ctx, log := t.Context(), store.Memory()
	source, err := guest.Find(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := sandbox.New(ctx, sandbox.Config{Interpreter: true})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(ctx)
	if _, err := log.PutModule(ctx, source.Wasm); err != nil {
		t.Fatal(err)
	}
	module, err := guest.Load(ctx, guest.Inline(engine), source.Wasm, guest.Options{Name: source.Name})
	if err != nil {
		t.Fatal(err)
	}
	defer module.Close(ctx)
	result, err := agent.Direct{Log: log, Tool: module.Tools()[0]}.Run(ctx, []byte(input))
	if err != nil {
		t.Fatal(err)
	}
	events, err := log.Read(ctx, result.RunID)
	if err != nil {
		t.Fatal(err)
	}
	target, err := debug.Find(events, "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := debug.Open(ctx, events, target, debug.Options{Modules: log, Own: own})
	if err != nil {
		t.Fatal(err)
	}
	return s, events, log
}

// walk moves until the session arrives at a reason, and returns where it has stopped.
func walk(t *testing.T, s *debug.Session, m debug.Motion, back bool, until debug.Reason) (stops []uint64, lines []int) {
	t.Helper()
	for range 1000 {
		stop, err := s.Move(t.Context(), m, back)
		if err != nil {
			t.Fatal(err)
		}
		if stop.Reason == until {
			return stops, lines
		}
		at, _, _ := s.Position()
		stops, lines = append(stops, at), append(lines, s.Frames()[0].Line)
	}
	t.Fatalf("1000 motions do not arrive at %s", until)
	return nil, nil
}

// TestThereAndBack steps through a call in both directions: by lines, by lines of one function, and
// from breakpoint to breakpoint, which stop at the same places.
func TestThereAndBack(t *testing.T) {
	s, _, _ := open(t)
	_, end, _ := s.Position()
	if _, err := s.Goto(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	back, _ := walk(t, s, debug.Line, true, debug.Beginning)
	there, lines := walk(t, s, debug.Line, false, debug.Ending)
	slices.Reverse(back)
	if !slices.Equal(there, back) || len(there) < 9 {
		t.Errorf("by lines:\nthere %d\nback  %d", there, back)
	}
	for _, line := range []int{13, 15, 3, 5} {
		if !slices.Contains(lines, line) {
			t.Errorf("no step stopped in line %d: %d", line, lines)
		}
	}
	if _, err := s.Break("tool.js:15"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Break("effect"); err != nil {
		t.Fatal(err)
	}
	back, lines = walk(t, s, debug.Continue, true, debug.Beginning)
	there, _ = walk(t, s, debug.Continue, false, debug.Ending)
	slices.Reverse(back)
	if !slices.Equal(there, back) || len(there) != 1+len(s.Effects()) || len(s.Effects()) == 0 {
		t.Errorf("by breakpoints, in lines %d:\nthere %d\nback  %d", lines, there, back)
	}
	for _, b := range s.Breakpoints() {
		s.Delete(b.ID)
	}
	for _, at := range []uint64{1, end / 3, end / 2, end - 1} {
		if _, err := s.Goto(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		walkOne(t, s, debug.Instruction, true)
		before, _, _ := s.Position()
		walkOne(t, s, debug.Instruction, false)
		walkOne(t, s, debug.Instruction, true)
		if again, _, _ := s.Position(); again != before {
			t.Errorf("an instruction there and back from %d ends at %d", before, again)
		}
	}
}

const recursion = `import { tool } from "starling";

function depth(n) {
  if (n === 0) {
    return Number(0);
  }
  const deeper = depth(n - 1);
  return Number(deeper) + 1;
}

export default tool({
  name: "recursion",
  description: "Recurses.",

  execute() {
    const deep = depth(2);
    return { deep };
  },
});
`

// TestRecursion steps through a function that calls itself, and stops at a breakpoint on the way.
func TestRecursion(t *testing.T) {
	s, _, _ := openScript(t, recursion)
	if _, err := s.Goto(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Break("depth"); err != nil {
		t.Fatal(err)
	}
	for i, move := range []struct {
		motion debug.Motion
		back   bool
		want   string
	}{
		{debug.Continue, false, "breakpoint depth:3 execute:16"},
		{debug.Line, false, "step depth:7 execute:16"},
		{debug.Out, false, "breakpoint depth:3 depth:7 execute:16"},
		{debug.Over, false, "step depth:7 depth:7 execute:16"},
		{debug.Over, false, "breakpoint depth:3 depth:7 depth:7 execute:16"},
		{debug.Line, false, "step depth:5 depth:7 depth:7 execute:16"},
		{debug.Line, false, "step depth:8 depth:7 execute:16"},
		{debug.Line, false, "step depth:8 execute:16"},
		{debug.Out, false, "step execute:16"},
		{debug.Line, false, "the end of the call"},
		{debug.Line, true, "step depth:8 execute:16"},
		{debug.Line, true, "step depth:8 depth:7 execute:16"},
		{debug.Line, true, "step depth:5 depth:7 depth:7 execute:16"},
		{debug.Over, true, "breakpoint depth:3 depth:7 depth:7 execute:16"},
		{debug.Out, true, "step depth:7 depth:7 execute:16"},
		{debug.Line, true, "breakpoint depth:3 depth:7 execute:16"},
		{debug.Out, true, "step depth:7 execute:16"},
		{debug.Line, true, "breakpoint depth:3 execute:16"},
		{debug.Over, true, "step execute:16"},
	} {
		stop, err := s.Move(t.Context(), move.motion, move.back)
		if err != nil {
			t.Fatal(err)
		}
		got := string(stop.Reason)
		for _, f := range s.Frames() {
			if f.Script && f.Function != "" {
				got += fmt.Sprintf(" %s:%d", f.Function, f.Line)
			}
		}
		if got != move.want {
			t.Errorf("%d: %s, not %s", i, got, move.want)
		}
	}
}

func walkOne(t *testing.T, s *debug.Session, m debug.Motion, back bool) {
	t.Helper()
	if _, err := s.Move(t.Context(), m, back); err != nil {
		t.Fatal(err)
	}
}

// TestWhoWrote finds the last write of an address, and arrives there by a watchpoint as well.
func TestWhoWrote(t *testing.T) {
	s, _, _ := open(t)
	_, end, _ := s.Position()
	if _, err := s.Goto(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	const address = 0x11_f000 // where the interpreter's stack begins, downwards
	stop, err := s.LastWrite(t.Context(), address, 1<<12)
	at, _, _ := s.Position()
	if err != nil || stop.Reason != debug.Written || at == end {
		t.Fatalf("%+v at %d, %v", stop, at, err)
	}
	b, err := s.Watch(address, 1<<12)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Goto(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	stop, err = s.Move(t.Context(), debug.Continue, true)
	if again, _, _ := s.Position(); err != nil || stop.Reason != debug.Written || stop.Breakpoint != b || again != at {
		t.Errorf("the watchpoint stops at %d and not at %d: %+v, %v", again, at, stop, err)
	}
}

// TestAnInterruptedMotion ends where it began.
func TestAnInterruptedMotion(t *testing.T) {
	s, events, log := open(t)
	at, _, _ := s.Position()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, m := range []debug.Motion{debug.Line, debug.Over, debug.Out, debug.Instruction} {
		stop, err := s.Move(ctx, m, true)
		if now, _, _ := s.Position(); err != nil || stop.Reason != debug.Interrupted || now != at {
			t.Errorf("motion %d: %+v at %d, %v", m, stop, now, err)
		}
	}
	target, _ := debug.Find(events, "")
	if _, err := debug.Open(ctx, events, target, debug.Options{Modules: log}); !errors.Is(err, context.Canceled) {
		t.Errorf("a session opens with %v", err)
	}
}

// TestFind names places of a run.
func TestFind(t *testing.T) {
	s, events, log := open(t)
	last, end, _ := s.Position()
	effect := s.Effects()[0]
	seq := func(n uint64) string { return string(rune('0' + n)) }
	for at, want := range map[string]uint64{"": last, "2": 0, seq(effect.Seq): effect.At, seq(effect.Seq + uint64(len(s.Effects()))): last, "2/9G": end} {
		target, err := debug.Find(events, at)
		if err != nil {
			t.Errorf("%q: %v", at, err)
			continue
		}
		s, err := debug.Open(t.Context(), events, target, debug.Options{Modules: log})
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := s.Position(); got != want {
			t.Errorf("%q is at %d, not at %d", at, got, want)
		}
	}
	for _, at := range []string{"1", "99", "nothing", "/", "2/x", "-1"} {
		if _, err := debug.Find(events, at); !errors.As(err, new(*debug.NoCallError)) {
			t.Errorf("%q: %v", at, err)
		}
	}
}

// TestExpressions only read, and refuse what is not there.
func TestExpressions(t *testing.T) {
	s, _, _ := open(t)
	f := s.Frames()[0]
	for _, text := range []string{"", "nothing", "0xffffffff", "local999", "local0+x", "a.b[", "1 = 2", "&"} {
		if v, err := s.Eval(f, text); err == nil {
			t.Errorf("%q is %+v", text, v)
		}
	}
	for _, what := range []string{"", "effect none", "fuel much", "0xzz", "0x1", "nowhere.c:"} {
		if b, err := s.Break(what); err == nil && what != "" && what != "nowhere.c:" { // which may be functions of the script
			t.Errorf("%q is %+v", what, b)
		}
	}
}

// TestBreakpointsAreBounded adds breakpoints until they are refused. Room comes from deleting some.
func TestBreakpointsAreBounded(t *testing.T) {
	s, _, _ := open(t)
	n := 0
	for ; n < 2000; n++ {
		if _, err := s.Break("twice"); err != nil {
			break
		}
	}
	_, err := s.Watch(0, 4)
	if n != 1000 || err == nil || !strings.Contains(err.Error(), "1000 breakpoints") {
		t.Errorf("%d breakpoints, then a watchpoint: %v", n, err)
	}
	s.Delete(1)
	if _, err := s.Watch(0, 4); err != nil {
		t.Error(err)
	}
}

// checks begins a tool with 12 lines.
const checks = `import { tool } from "starling";
const text = (v) => {
  const s = String(v);
  return s;
};
function check(v) {
  if (v > 5)
    throw new Error("too much: " + text(v));
}
export default tool({
  name: "score", description: "Scores.",
  execute() {
`

// TestASessionBeginsAtTheLineThatFailed: the line calls a function of the user for the text of its error, whose
// lines are the last ones to begin.
func TestASessionBeginsAtTheLineThatFailed(t *testing.T) {
	for name, c := range map[string]struct {
		code, input, function string
		line                  int
	}{
		"tool.js": {checks + `    check(8);
  },
});
`, `{}`, "check", 8},
		"tool.py": {`def text(v):
    s = str(v)
    return s

def check(v):
    if v > 5:
        raise ValueError("too much: " + text(v))

def score(points: int) -> int:
    """Scores."""
    try:
        check(points)
    except ValueError as e:
        raise RuntimeError(text(1)) from e
    return points
`, `{"points":8}`, "score", 14},
		"handled.js": {checks + `    try {
      check(8);
    } catch (e) {
      console.error(e);
    }
    throw new Error("in the end: " + text(1));
  },
});
`, `{}`, "execute", 18},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(path, []byte(c.code), 0o600); err != nil {
				t.Fatal(err)
			}
			s, _, _ := openFile(t, path, c.input, func(file string) bool { return filepath.Base(file) == name })
			f := s.Frames()[0]
			if f.Line != c.line || !strings.Contains(f.Function, c.function) {
				t.Errorf("it begins at line %d of %s, want %d of %s", f.Line, f.Function, c.line, c.function)
			}
			if len(s.Breakpoints()) != 0 {
				t.Error("a breakpoint is left")
			}
		})
	}
}
