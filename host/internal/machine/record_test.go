package machine

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
)

var imports = []wasmtest.Import{
	{Module: "starling:v1", Name: "random", Type: wasmtest.Type(":I")},
	{Module: "wasi_snapshot_preview1", Name: "clock_time_get", Type: wasmtest.Type("iIi:i")},
}

// recorded records a call of some random program, with a snapshot every so many operations. Its host, which
// answers at least so often, writes to memory.
func recorded(t *testing.T, random *rand.Rand, every uint64, answers int) *Recording {
	for {
		seed := make([]byte, 200+random.IntN(1000))
		for i := range seed {
			seed[i] = byte(random.Uint32())
		}
		res, err := rewrite.Rewrite(work.Trusted(context.Background()), wasmtest.Generate(seed, wasmtest.Config{Imports: imports}), rewrite.DefaultLimits(), rewrite.Options{MemoryPages: 4})
		if err != nil {
			t.Fatal(err)
		}
		code, err := Translate(context.Background(), res.Wasm, rewrite.GlobalFuel)
		if err != nil {
			t.Fatal(err)
		}
		var m *Machine
		var hosts []Host
		for _, im := range code.Imports {
			hosts = append(hosts, func(slots []uint64) {
				if im.Module == rewrite.RefillModule {
					panic(errors.New("out of fuel"))
				}
				slots[0] = random.Uint64() >> 40
				m.Write(uint32(slots[0])%max(m.Size(), 1), []byte{1, 2, 3, 4})
				m.Global(rewrite.GlobalFuel).Set(m.Global(rewrite.GlobalFuel).Get() + 3)
			})
		}
		m = New(code, hosts)
		for _, d := range res.Data {
			m.Write(d.Offset, d.Bytes)
		}
		m.Record(every)
		decoded, err := wasm.Decode(work.Trusted(context.Background()), res.Wasm)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range decoded.Exports {
			if e.Kind != wasm.ExternFunc {
				continue
			}
			stack := make([]uint64, 20)
			for i := range stack {
				stack[i] = random.Uint64() >> random.IntN(64)
			}
			m.Global(rewrite.GlobalFuel).Set(0)
			m.Global(rewrite.GlobalLimit).Set(20_000)
			m.Global(rewrite.GlobalDepth).Set(rewrite.DefaultDepth)
			m.Call(t.Context(), e.Name, stack)
			if r := m.Recording(); r.End() > 500 && len(r.Effects()) >= answers {
				return r
			}
		}
	}
}

// state is what the test knows of a position.
type state struct {
	place place
	depth int
	fuel  uint64
	wrote [2]bool // whether the next operation writes a range
}

var hashSeed = maphash.MakeSeed()

// digest is everything observable at the position. Slots that no operation has used yet are stale.
func (r *Recording) digest() string {
	var locals [][]uint64
	for _, f := range r.Frames() {
		locals = append(locals, f.Locals)
	}
	return fmt.Sprint(r.m.place, r.m.frames, locals, r.Globals(), r.Size(), maphash.Bytes(hashSeed, r.m.mem), r.next)
}

// TestGoingBack compares every way to a position with single steps from the beginning.
func TestGoingBack(t *testing.T) {
	n := treetest.Count(6, 6, 20)
	random := rand.New(rand.NewPCG(1, 2))
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	found, answers := map[Reason]int{}, 0
	for i := range n {
		r := recorded(t, random, 20+random.Uint64N(300), i%2)
		end, atEnd := r.End(), r.digest()
		answers += len(r.Effects())
		ranges := [2]Range{{uint32(random.Uint64N(uint64(r.Size()) + 1)), 1 + uint32(random.Uint64N(2000))}, {0, 1 << 31}}
		sampled := map[uint64]string{0: "", end: ""}
		for range 30 {
			sampled[random.Uint64N(end+1)] = ""
		}
		states := make([]state, end+1)
		must(r.Seek(ctx, 0))
		for at := range end + 1 {
			if r.At() != at {
				t.Fatalf("at %d, not %d", r.At(), at)
			}
			if _, ok := sampled[at]; ok {
				sampled[at] = r.digest()
			}
			states[at] = state{place: r.m.place, depth: r.Depth(), fuel: r.Fuel()}
			for i := range ranges {
				must(r.Seek(ctx, at))
				reason, err := r.Run(ctx, at+1, Stop{Writes: ranges[i : i+1]})
				must(err)
				states[at].wrote[i] = reason == Written
			}
		}
		if sampled[end] != atEnd {
			t.Errorf("the end by steps is not the end of the call:\n%s\n%s", sampled[end], atEnd)
		}
		for round := range 2 {
			for at, want := range sampled {
				must(r.Seek(ctx, at))
				if got := r.digest(); got != want {
					t.Errorf("position %d of %d:\ngot  %s\nwant %s", at, end, got, want)
				}
			}
			if round == 0 {
				r.thin()
			}
		}
		last := func(before uint64, holds func(at uint64) bool) (uint64, bool) {
			for at := before; at > 0; at-- {
				if holds(at - 1) {
					return at - 1, true
				}
			}
			return 0, false
		}
		first := func(after uint64, holds func(at uint64) bool) (uint64, bool) {
			for at := after + 1; at <= end; at++ {
				if holds(at) {
					return at, true
				}
			}
			return end, false
		}
		for range 20 {
			here := random.Uint64N(end + 1)
			aim := states[random.Uint64N(end+1)]
			f := r.m.code.funcs[aim.place.fn]
			pc := slices.Index(f.offsets, f.offsets[aim.place.pc])
			atOffset := func(at uint64) bool { return states[at].place.fn == f.index && states[at].place.pc == pc }
			for i, s := range []Stop{
				{Offsets: []uint32{f.offsets[pc]}}, {Writes: ranges[:1]}, {Writes: ranges[1:]}, {Below: aim.depth}, {Fuel: aim.fuel},
			} {
				if s.Fuel > 0 && states[here].fuel >= s.Fuel {
					continue
				}
				must(r.Seek(ctx, here))
				why, err := r.Run(ctx, end, s)
				must(err)
				want, ok := first(here, [5]func(uint64) bool{
					atOffset,
					func(at uint64) bool { return states[at-1].wrote[0] },
					func(at uint64) bool { return states[at-1].wrote[1] },
					func(at uint64) bool { return states[at].depth < states[at-1].depth && states[at].depth < aim.depth },
					func(at uint64) bool {
						return states[at].fuel > states[at-1].fuel && states[at].fuel >= aim.fuel && aim.fuel > 0
					},
				}[i])
				if r.At() != want || want < end && (why != Position) != ok {
					t.Errorf("from %d to %+v: %d (%v), want %d", here, s, r.At(), why, want)
				}
				found[why]++
			}
			must(r.SeekFuel(ctx, aim.fuel))
			want := uint64(slices.IndexFunc(states, func(s state) bool { return s.fuel >= aim.fuel }))
			if r.At() != want {
				t.Errorf("fuel %d is spent at %d, not %d", aim.fuel, want, r.At())
			}
			for i, w := range ranges {
				must(r.Seek(ctx, here))
				at, ok, err := r.LastWrite(ctx, here, w)
				must(err)
				if want, is := last(here, func(at uint64) bool { return states[at].wrote[i] }); is != ok || ok && at != want || r.At() != here {
					t.Errorf("last write before %d: %d %v, want %d %v, and it stands at %d", here, at, ok, want, is, r.At())
				}
			}
		}
	}
	if len(found) != 5 || answers < 10 {
		t.Errorf("not every reason was met: %v, with %d answers of the host", found, answers)
	}
}

// TestARecordingIsCancelled while it executes, and stays where it was.
func TestARecordingIsCancelled(t *testing.T) {
	r := recorded(t, rand.New(rand.NewPCG(3, 4)), 100, 0)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok, err := r.LastWrite(cancelled, r.End(), Range{0, 1 << 31}); ok || !errors.Is(err, context.Canceled) || r.At() != r.End() {
		t.Errorf("last write: %v %v, at %d of %d", ok, err, r.At(), r.End())
	}
	if _, err := r.Run(cancelled, r.End(), Stop{}); err != nil {
		t.Errorf("an execution that is over: %v", err)
	}
	if err := r.Seek(cancelled, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("seek: %v", err)
	}
	if err := r.Seek(t.Context(), r.End()+1); err == nil {
		t.Error("a position behind the end exists")
	}
}
