//go:build !js

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/machine"
	"github.com/starling-host/starling/internal/wasm"
)

// workFor is a call of the Go guest that does a bit of everything.
func workFor(rounds int) Call {
	return Call{Tool: "work", Input: envelope("work", fmt.Sprint(rounds))}
}

// TestACallIsRecorded however it ends: the outcome and the count are those of a call that is not recorded, and the
// recording goes from its beginning to its end.
func TestACallIsRecorded(t *testing.T) {
	t.Parallel()
	stop := errors.New("recorded")
	divides := asm().I32(1).I32(0).Op(wasm.OpI32DivS).Op(wasm.OpDrop).Index(wasm.OpLocalGet, 2)
	for name, tt := range map[string]struct {
		module []byte
		limits Limits
		call   Call
		err    error
		last   wasm.Op // of the operation that ended the call, if it is known
	}{
		"returns":          {module: busy(), limits: Limits{MemoryPages: 32}},
		"traps":            {module: tiny(divides).Bytes(), err: abi.ErrPanicked, last: wasm.OpI32DivS},
		"out of fuel":      {module: busy(), limits: Limits{MemoryPages: 32, Fuel: 7_000_000}, err: abi.ErrFuel},
		"stopped":          {module: busy(), limits: Limits{MemoryPages: 32}, call: Call{StopAt: 1_000_000, StopErr: stop}, err: stop},
		"an import panics": {module: tiny(looping(asm().Index(wasm.OpCall, 0).Op(wasm.OpDrop)), "now").Bytes(), err: abi.ErrLimit, last: wasm.OpCall},
	} {
		t.Run(name, func(t *testing.T) {
			m := load(t, own(), tt.module, tt.limits)
			tt.call.Input, tt.call.NoTimeout = []byte("x"), true
			want, wantErr := m.Call(t.Context(), tt.call, &world{})
			var r *machine.Recording
			tt.call.Recorded = func(recorded *machine.Recording) { r = recorded }
			got, err := m.Call(t.Context(), tt.call, &world{})
			if diff := cmp.Diff(want, got); diff != "" || fmt.Sprint(err) != fmt.Sprint(wantErr) || tt.err != nil && !errors.Is(err, tt.err) {
				t.Fatalf("error %v, not recorded %v\n%s", err, wantErr, diff)
			}
			if r.At() != r.End() || r.Fuel() > got.Meter.Fuel || r.Fuel()+1000 < got.Meter.Fuel {
				t.Errorf("it stands at %d of %d, with %d of %d units", r.At(), r.End(), r.Fuel(), got.Meter.Fuel)
			}
			p := own().whole(t, tt.module, m.limits)
			if offset, _ := r.Where(); tt.last != 0 && wasm.Op(p.Wasm[offset]) != tt.last {
				t.Errorf("it ends at %#x", p.Wasm[offset])
			}
			frames := fmt.Sprint(r.Frames()[0].Locals)
			must(t, r.Seek(t.Context(), 0))
			if r.Fuel() > 100 || r.Depth() != 1 {
				t.Errorf("it begins with %d units, in %d frames", r.Fuel(), r.Depth())
			}
			must(t, r.Seek(t.Context(), r.End()))
			if again := fmt.Sprint(r.Frames()[0].Locals); again != frames {
				t.Errorf("the end is %s, then %s", frames, again)
			}
		})
	}
	cancelled, cancel := context.WithCancel(t.Context())
	w := &cancelling{at: 1, cancel: cancel}
	m := load(t, own(), busy(), Limits{MemoryPages: 32})
	var r *machine.Recording
	if _, err := m.Call(cancelled, Call{Input: []byte("x"), Recorded: func(recorded *machine.Recording) { r = recorded }}, w); !errors.Is(err, abi.ErrCancelled) || r == nil {
		t.Errorf("cancelled: %v, %v", err, r)
	}
	if _, err := load(t, compiler(), busy(), Limits{MemoryPages: 32}).Call(t.Context(), Call{Recorded: func(*machine.Recording) {}}, &world{}); err == nil {
		t.Error("the compiler records")
	}
}

// TestExecutionsAreCounted: each instruction of a loop is executed as often as the loop runs.
func TestExecutionsAreCounted(t *testing.T) {
	t.Parallel()
	counted := map[uint64]int{} // instructions, by how often they were executed
	e := engineWith(t, Config{Machine: true, Observers: Observers{Source: func(string) Source { return nil }}})
	loop := asm().Block(wasm.OpLoop, wasm.BlockEmpty).
		Index(wasm.OpLocalGet, 2).I64(1).Op(wasm.OpI64Add).Index(wasm.OpLocalTee, 2).I64(777).Op(wasm.OpI64LtS).Index(wasm.OpBrIf, 0).Op(wasm.OpEnd)
	m := load(t, e, tiny((*wasm.Asm)(loop).I64(int64(abi.Pack(outputAt, 8)))).Bytes(), Limits{})
	s, err := m.begin()
	must(t, err)
	s.endStart()
	s.imports = &world{}
	s.attend(t.Context(), false)
	s.allow(m.limits.Fuel)
	_, err = s.execute([]byte("x"))
	must(t, err)
	for _, n := range s.instance.module.(*machineModule).m.Counts() {
		counted[n]++
	}
	must(t, m.end(s))
	if counted[777] < 2 || counted[1] == 0 || counted[0] == 0 || len(counted) != 3 { // 0 is not executed, in a function that was called
		t.Errorf("%v", counted)
	}
}
