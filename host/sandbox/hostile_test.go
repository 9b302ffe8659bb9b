package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/hostiletest"
)

// hostileLimits make every attack end soon, by whatever it runs into.
var hostileLimits = Limits{Fuel: 3_000_000, Depth: interpreterDepth, MemoryPages: 64, Effects: 50, EffectBytes: 1 << 20, LogBytes: 1 << 10, OutputBytes: 1 << 16}

var attack, peace = Call{Tool: "hostile", Input: []byte(hostiletest.Attack)}, Call{Tool: "hostile", Input: []byte("p")}

// endingOf describes how a call ended: its output, the class of its error, its meter.
func endingOf(t *testing.T, m *Module, c Call) string {
	t.Helper()
	got, err := m.Call(t.Context(), c, &world{})
	if errors.Is(err, abi.ErrHost) {
		t.Fatalf("the host failed: %v", err)
	}
	return fmt.Sprintf("%q, %v, fuel %d, memory %d, %d bytes of log", got.Output, err, got.Meter.Fuel, got.Meter.PeakMemory, len(got.Meter.Log))
}

// TestHostileRuns makes every attack on all engines, and on code that was kept: it
// ends, with the same outcome and the same count; the next call of the same module
// succeeds, in an instance that is as good as new.
func TestHostileRuns(t *testing.T) {
	t.Parallel()
	runs := hostiletest.Runs()
	if len(runs) < 25 {
		t.Errorf("%d families", len(runs))
	}
	engine := keeping(t)
	for _, run := range runs {
		t.Run(run.Name, func(t *testing.T) {
			t.Parallel()
			compiled := load(t, compiler(), run.Wasm, hostileLimits)
			want := endingOf(t, compiled, attack)
			if got := endingOf(t, compiled, attack); got != want {
				t.Errorf("first %s\nthen %s", want, got)
			}
			kept := load(t, engine, run.Wasm, hostileLimits)
			if got := endingOf(t, kept, attack); got != want {
				t.Errorf("compiler %s\nkept code %s", want, got)
			}
			if run.Always && strings.Contains(want, abi.ErrFuel.Error()) {
				return // the budget of a start takes the interpreter half a minute
			}
			interpreted, translated := load(t, interpreter(), run.Wasm, hostileLimits), load(t, own(), run.Wasm, hostileLimits)
			for name, m := range map[string]*Module{"interpreter": interpreted, "machine": translated} {
				if got := endingOf(t, m, attack); got != want {
					t.Errorf("compiler %s\n%s %s", want, name, got)
				}
			}
			if run.Always {
				return
			}
			for _, m := range []*Module{compiled, kept, interpreted, translated} {
				if got, err := m.Call(t.Context(), peace, &world{}); err != nil || string(got.Output) != hostiletest.Answer {
					t.Errorf("the next call: %q, %v", got.Output, err)
				}
			}
		})
	}
}

// TestHostileRunsEndInTime gives every attack unlimited fuel and a deadline. It
// ends by that, or before by itself; an end by the deadline is repeated at the
// same count, on the other engine, without a clock.
func TestHostileRunsEndInTime(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: takes the time that the attacks are given")
	}
	limits := hostileLimits
	limits.Fuel, limits.Effects, limits.EffectBytes, limits.TimeoutMs = 1<<50, 1<<40, 1<<50, 30
	var worst time.Duration
	var which string
	for _, run := range hostiletest.Runs() {
		if run.Always {
			continue
		}
		m, other := load(t, engineWith(t, Config{}), run.Wasm, limits), load(t, own(), run.Wasm, limits)
		began := time.Now()
		recorded, err := m.Call(t.Context(), attack, &world{})
		if late := time.Since(began) - 30*time.Millisecond; late > worst {
			worst, which = late, run.Name
		}
		if !errors.Is(err, abi.ErrTimeout) || recorded.Meter.Fuel > 100_000_000 {
			continue // too slow for the machine
		}
		stop := errors.New("recorded")
		again := attack
		again.NoTimeout, again.StopAt, again.StopErr = true, recorded.Meter.Fuel, stop
		replayed, err := other.Call(t.Context(), again, &world{})
		if err != stop || replayed.Meter != recorded.Meter {
			t.Errorf("%s: %v\nrecorded %+v\nreplayed %+v", run.Name, err, recorded.Meter, replayed.Meter)
		}
	}
	t.Logf("at most %s after the deadline, in %q", worst.Round(time.Millisecond), which)
	if worst > 10*time.Second {
		t.Errorf("%s after the deadline is no deadline", worst)
	}
}

// TestSandboxBesideHostileGuests has eight attackers at once, again and again, and a
// tool that means well beside them.
func TestSandboxBesideHostileGuests(t *testing.T) {
	e := engineWith(t, Config{VerifyEvery: 16})
	limits := hostileLimits
	limits.Fuel, limits.TimeoutMs = 1<<50, 2000
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	runs := hostiletest.Runs()
	for i := range 8 {
		m := load(t, e, runs[i].Wasm, limits)
		group.Go(func() {
			for ctx.Err() == nil {
				m.Call(ctx, attack, &world{})
			}
		})
	}
	good := load(t, e, tiny(output("executed")).Bytes(), Limits{})
	for range 200 {
		if got, err := good.Call(t.Context(), Call{Input: []byte("x")}, &world{}); err != nil || string(got.Output) != "executed" {
			t.Fatalf("%q, %v", got.Output, err)
		}
	}
	cancel()
	group.Wait()
}

// TestFamiliesAreNamedOnce keeps two attacks from being told apart by nothing.
func TestFamiliesAreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, run := range hostiletest.Runs() {
		if seen[run.Name] || strings.TrimSpace(run.Attack) == "" {
			t.Errorf("%q is there twice, or attacks nothing", run.Name)
		}
		seen[run.Name] = true
	}
}
