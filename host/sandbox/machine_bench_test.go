//go:build unix

package sandbox

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/starling-host/starling/host/internal/machine"
	"golang.org/x/sys/unix"
)

// BenchmarkEngines compares the time of the slow engines for the same call, which is that of the
// process: the garbage collector's is part of it.
func BenchmarkEngines(b *testing.B) {
	machine, interpreter := load(b, engineWith(b, Config{Machine: true}), goGuest(b, "tool"), Limits{}), load(b, engineWith(b, Config{Interpreter: true}), goGuest(b, "tool"), Limits{})
	var took [2]time.Duration
	var fuel uint64
	for b.Loop() {
		for i, m := range []*Module{machine, interpreter} {
			before := userTime(b)
			r, err := m.Call(b.Context(), workFor(20), &world{})
			if err != nil {
				b.Fatal(err)
			}
			took[i] += userTime(b) - before
			fuel = r.Meter.Fuel
		}
	}
	b.ReportMetric(float64(took[0])/float64(took[1]), "machine/interpreter")
	b.ReportMetric(float64(fuel)*float64(b.N)/took[0].Seconds()/1e6, "Munits/s")
	b.ReportMetric(float64(fuel), "fuel/op")
}

func userTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano())
}

// BenchmarkRecording goes through a recorded call of some 100 million units: one step back from anywhere, a jump to
// anywhere, and the last write to a place. It reports time of the processor, which other load does not change.
func BenchmarkRecording(b *testing.B) {
	m := load(b, engineWith(b, Config{Machine: true}), goGuest(b, "tool"), Limits{})
	var r *machine.Recording
	call := workFor(20)
	call.Recorded = func(recorded *machine.Recording) { r = recorded }
	began := userTime(b)
	if _, err := m.Call(b.Context(), call, &world{}); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d operations, %d units, %d MiB of memory, recorded in %s", r.End(), r.Fuel(), r.Size()>>20, (userTime(b) - began).Round(time.Millisecond))
	random := rand.New(rand.NewPCG(1, 1))
	somewhere := func(b *testing.B) uint64 {
		at := 1 + random.Uint64N(r.End()-1)
		if err := r.Seek(b.Context(), at); err != nil {
			b.Fatal(err)
		}
		return at
	}
	timed := func(name string, f func(b *testing.B) time.Duration) {
		b.Run(name, func(b *testing.B) {
			var all []time.Duration
			for b.Loop() {
				all = append(all, f(b))
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "median-ms")
			b.ReportMetric(float64(all[len(all)*9/10].Microseconds())/1000, "p90-ms")
			b.ReportMetric(float64(all[len(all)-1].Microseconds())/1000, "max-ms")
		})
	}
	timed("step back", func(b *testing.B) time.Duration {
		at := somewhere(b)
		began := userTime(b)
		if err := r.Seek(b.Context(), at-1); err != nil {
			b.Fatal(err)
		}
		return userTime(b) - began
	})
	timed("jump", func(b *testing.B) time.Duration {
		began := userTime(b)
		somewhere(b)
		return userTime(b) - began
	})
	lastWrite := func(written bool) func(b *testing.B) time.Duration {
		return func(b *testing.B) time.Duration {
			for {
				at, addr := somewhere(b), uint32(random.Uint64N(uint64(r.Size()-4)))
				began := userTime(b)
				_, ok, err := r.LastWrite(b.Context(), at, machine.Range{Addr: addr, Len: 4})
				if err != nil {
					b.Fatal(err)
				}
				if ok == written {
					return userTime(b) - began
				}
			}
		}
	}
	timed("last write", lastWrite(true))
	timed("no write", lastWrite(false))
}
