package sandbox

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/internal/hostiletest"
	"github.com/starling-host/starling/internal/wasm"
)

// tally is a profiler that adds up.
type tally struct {
	deepest, entered, imports int
	own                       map[uint32]uint64 // fuel by function
	stack                     []uint32
	last, total               uint64
	ended                     bool
}

func (p *tally) spend(fuel uint64) {
	if n := len(p.stack); n > 0 {
		p.own[p.stack[n-1]] += fuel - p.last
	}
	p.total += fuel - p.last
	p.last = fuel
}

func (p *tally) Enter(function uint32, fuel uint64) {
	p.spend(fuel)
	p.entered++
	p.stack = append(p.stack, function)
	p.deepest = max(p.deepest, len(p.stack))
}

func (p *tally) EnterImport(_ string, fuel uint64) {
	p.Enter(1<<31, fuel)
	p.imports++
}

func (p *tally) Line(int, string, string, int, uint64) {}

func (p *tally) Leave(fuel uint64) {
	p.spend(fuel)
	p.stack = p.stack[:len(p.stack)-1]
}

func (p *tally) End(fuel uint64) { p.spend(fuel); p.ended = true }

// TestAProfileHasEveryUnit profiles calls that end in all ways, of a Go tool and
// of hostile ones: nothing else about them changes, and the profile accounts for
// all of their fuel.
func TestAProfileHasEveryUnit(t *testing.T) {
	t.Parallel()
	var p *tally
	profiled := engineWith(t, Config{Observers: Observers{Profile: func(string) Profiler {
		p = &tally{own: map[uint32]uint64{}}
		return p
	}}})
	plain := compiler()
	compare := func(name string, unprofiled, m *Module, c Call) {
		t.Helper()
		want := endingOf(t, unprofiled, c)
		p = nil
		if diff := cmp.Diff(want, endingOf(t, m, c)); diff != "" {
			t.Errorf("%s (-plain +profiled):\n%s", name, diff)
		}
		got, _ := m.Call(t.Context(), c, &world{})
		if p == nil {
			return // its start fails
		}
		if !p.ended || p.total != got.Meter.Fuel || p.entered == 0 {
			t.Errorf("%s: the profile has %d of %d units, %d calls", name, p.total, got.Meter.Fuel, p.entered)
		}
	}
	for _, run := range hostiletest.Runs() {
		compare(run.Name, load(t, plain, run.Wasm, hostileLimits), load(t, profiled, run.Wasm, hostileLimits), attack)
	}
	if testing.Short() {
		return
	}
	m := load(t, profiled, goGuest(t, "tool"), Limits{})
	for _, name := range []string{"echo", "maps", "panic", "exit"} {
		compare(name, goTool(t, false), m, Call{Tool: name, Input: envelope(name, `null`)})
		if p.deepest < 5 || p.imports+len(p.own) < 20 {
			t.Errorf("%s: %d deep, %d functions", name, p.deepest, len(p.own))
		}
	}
}

// TestProgressHasAllFuel adds up the reports for a call that ends by its budget, and
// for a call that is shorter than a slice.
func TestProgressHasAllFuel(t *testing.T) {
	spinning := asm().Block(wasm.OpLoop, wasm.BlockEmpty).Index(wasm.OpBr, 0).Op(wasm.OpEnd).I64(0)
	for _, c := range []struct {
		name  string
		code  *wasm.Asm
		least int
	}{{"long", spinning, 3}, {"short", output("executed"), 1}} {
		var spent uint64
		told := 0
		e := engineWith(t, Config{Observers: Observers{Progress: func(fuel uint64) { spent, told = spent+fuel, told+1 }}})
		r, err := load(t, e, tiny(c.code).Bytes(), Limits{Fuel: 5 * firstSlice}).Call(t.Context(), Call{Tool: "x"}, &world{})
		if spent != r.Meter.Fuel || spent == 0 || told < c.least {
			t.Errorf("%s: told %d times of %d units in all, of %d; %v", c.name, told, spent, r.Meter.Fuel, err)
		}
	}
}
