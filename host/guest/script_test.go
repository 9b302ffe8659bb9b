package guest_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/profile"
	"github.com/starling-host/starling/runtime/agent"
)

const recursion = `import { tool } from "starling";

function depth(n) {
  if (n === 0) {
    return Number(0);
  }
  return depth(n - 1) + Number(1);
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

// follower writes down the lines of a script.
type follower struct {
	*profile.Call
	text strings.Builder
}

func (f *follower) Line(depth int, function, file string, line int, fuel uint64) {
	if file == "tool.js" {
		fmt.Fprintf(&f.text, "%d %s:%d ", depth, function, line)
	}
	f.Call.Line(depth, function, file, line, fuel)
}

// TestLinesOfAScript profiles a tool in JavaScript.
func TestLinesOfAScript(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tool.js")
	if err := os.WriteFile(path, []byte(recursion), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := guest.Find(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	p, f := profile.New("", nil), &follower{}
	engine, err := sandbox.New(t.Context(), sandbox.Config{Machine: true, Observers: sandbox.Observers{Profile: func(tool string) sandbox.Profiler {
		f.Call = p.Call(tool)
		return f
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(t.Context())
	module, err := guest.Load(t.Context(), guest.Inline(engine), found.Wasm, guest.Options{Name: "recursion"})
	if err != nil {
		t.Fatal(err)
	}
	defer module.Close(t.Context())
	log := store.Memory()
	if _, err := log.PutModule(t.Context(), found.Wasm); err != nil {
		t.Fatal(err)
	}
	if _, err := (agent.Direct{Log: log, Tool: module.Tools()[0]}).Run(t.Context(), []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	want := "3 execute:14 3 execute:15 4 depth:4 4 depth:7 5 depth:4 5 depth:7 6 depth:4 6 depth:5 5 depth:7 4 depth:7 3 execute:15 "
	if got := f.text.String(); got != want {
		t.Errorf("the script went\n%s, not\n%s", got, want)
	}
	stack, total := "", uint64(0)
	for frame := p.Trees(1 << 20)[0]; frame != nil; {
		stack, total = stack+fmt.Sprint(frame.Name, " ", frame.File, " ", frame.Calls, ", "), total+frame.Self
		callees := frame.Callees
		frame = nil
		for _, callee := range callees {
			if callee.Name == profile.Interpreter {
				total += callee.Self
			} else {
				frame = callee
			}
		}
	}
	if want := "recursion  1, execute tool.js 1, depth tool.js 1, depth tool.js 1, depth tool.js 1, "; stack != want || total != p.Trees(1)[0].Total {
		t.Errorf("the stack is %s with %d units", stack, total)
	}
	times := map[int]uint64{}
	p.Calls()[0].Lines(func(_, _ string, line int, n, fuel uint64) {
		if times[line] = n; fuel == 0 {
			t.Errorf("line %d spent nothing", line)
		}
	})
	if want := map[int]uint64{14: 1, 15: 1, 4: 3, 5: 1, 7: 2}; !maps.Equal(times, want) {
		t.Errorf("lines began %v times, not %v", times, want)
	}
}
