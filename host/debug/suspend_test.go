package debug_test

import (
	"slices"
	"testing"

	"github.com/starling-host/starling/host/debug"
)

const suspending = `import { tool } from "starling";

function fib(n) {
  if (n < 2)
    return n;
  const a = fib(n - 1);
  const b = fib(n - 2);
  return a + b;
}

async function later(x) {
  await null;
  return Number(x) + 1;
}

export default tool({
  name: "suspending",
  description: "Waits.",

  async execute() {
    const r = fib(3);
    const l = await later(r);
    return { sum: Number(l) };
  },
});
`

// TestSuspendedFunctions follows one function while another is suspended. A function that has just been
// called is at its beginning, although its frame still has the place of an older one.
func TestSuspendedFunctions(t *testing.T) {
	s, _, _ := openScript(t, suspending)
	// The second stop in line 22 is where the function goes on.
	for motion, want := range map[debug.Motion][]int{debug.Over: {20, 21, 22, 22, 23}} {
		if _, err := s.Goto(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		there, lines := walk(t, s, motion, false, debug.Ending)
		if !slices.Equal(lines, want) {
			t.Errorf("motion %d stops in lines %d, not %d", motion, lines, want)
		}
		if _, err := s.Goto(t.Context(), there[len(there)-1]); err != nil {
			t.Fatal(err)
		}
		back, _ := walk(t, s, motion, true, debug.Beginning)
		if slices.Reverse(back); !slices.Equal(back, there[:len(there)-1]) {
			t.Errorf("motion %d:\nthere %d\nback  %d", motion, there, back)
		}
	}
	if _, err := s.Break("tool.js:7"); err != nil {
		t.Fatal(err)
	}
	back, _ := walk(t, s, debug.Continue, true, debug.Beginning)
	there, _ := walk(t, s, debug.Continue, false, debug.Ending)
	if slices.Reverse(back); len(there) != 2 || len(back) > 2 {
		t.Errorf("the line stops at %d, and back at %d", there, back)
	}
}
