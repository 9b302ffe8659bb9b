package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// The commands of a scribbler. Each is eight bytes: the command, and an
// argument in the last four.
const (
	scribbleStore  = iota // the argument somewhere in memory
	scribbleGlobal        // add the argument to the globals
	scribbleGrow          // memory by up to three pages
	scribbleFill          // four kilobytes somewhere
	scribbleLook          // at one word of every kilobyte of memory, at its size and at the globals
	scribbleRecurse
	scribbleTrap
)

// scribbler is a tool that does what its input says to everything that it can
// change, and whose output depends on everything that it has looked at.
func scribbler() []byte {
	const (
		cursor = 2 + iota
		command
		arg
		sum
		at
	)
	get := func(a *wasm.Asm, i uint32) *wasm.Asm { return a.Index(wasm.OpLocalGet, i) }
	// bytes pushes the size of memory, minus something.
	bytes := func(a *wasm.Asm, less int32) *wasm.Asm {
		return a.Memory(wasm.OpMemorySize).I32(16).Op(wasm.OpI32Shl).I32(less).Op(wasm.OpI32Sub)
	}
	// somewhere pushes an address that is a multiple of 1024.
	somewhere := func(a *wasm.Asm) *wasm.Asm {
		return bytes(get(a, arg), 8192).Op(wasm.OpI32RemU).I32(-1024).Op(wasm.OpI32And)
	}
	// mix folds the top of the stack into the sum.
	mix := func(a *wasm.Asm) *wasm.Asm {
		return get(a, sum).Op(wasm.OpI32Xor).I32(0x01000193).Op(wasm.OpI32Mul).Index(wasm.OpLocalSet, sum)
	}
	when := func(a *wasm.Asm, c int32) *wasm.Asm {
		return get(a, command).I32(c).Op(wasm.OpI32Eq).Block(wasm.OpIf, wasm.BlockEmpty)
	}
	a := asm().Block(wasm.OpBlock, wasm.BlockEmpty).Block(wasm.OpLoop, wasm.BlockEmpty)
	get(get(get(a, cursor), 0).Op(wasm.OpI32Add), 0)
	get(a, 1).Op(wasm.OpI32Add).Op(wasm.OpI32GeU).Index(wasm.OpBrIf, 1)
	get(get(a, cursor), 0).Op(wasm.OpI32Add).Access(wasm.OpI32Load8U, 0).Index(wasm.OpLocalSet, command)
	get(get(a, cursor), 0).Op(wasm.OpI32Add).Access(wasm.OpI32Load, 4).Index(wasm.OpLocalSet, arg)
	get(get(somewhere(when(a, scribbleStore)), arg), sum).Op(wasm.OpI32Xor).Access(wasm.OpI32Store, 0).Op(wasm.OpEnd)
	get(when(a, scribbleGlobal).Index(wasm.OpGlobalGet, 0), arg).Op(wasm.OpI32Add).Index(wasm.OpGlobalSet, 0)
	get(a.Index(wasm.OpGlobalGet, 1), arg).Op(wasm.OpI64ExtendI32U, wasm.OpI64Add).Index(wasm.OpGlobalSet, 1).Op(wasm.OpEnd)
	mix(get(when(a, scribbleGrow), arg).I32(3).Op(wasm.OpI32And).Memory(wasm.OpMemoryGrow)).Op(wasm.OpEnd)
	get(somewhere(when(a, scribbleFill)), arg).I32(4096).Memory(wasm.OpMemoryFill).Op(wasm.OpEnd)
	bytes(when(a, scribbleLook), 4).I32(-1024).Op(wasm.OpI32And).Index(wasm.OpLocalSet, at)
	mix(get(a.Block(wasm.OpLoop, wasm.BlockEmpty), at).Access(wasm.OpI32Load, 0))
	get(a, at).I32(1024).Op(wasm.OpI32Sub).Index(wasm.OpLocalTee, at).I32(0).Op(wasm.OpI32GtS).Index(wasm.OpBrIf, 0).Op(wasm.OpEnd)
	mix(a.Index(wasm.OpGlobalGet, 0))
	mix(a.Index(wasm.OpGlobalGet, 1).Op(wasm.OpI32WrapI64))
	mix(a.Memory(wasm.OpMemorySize)).Op(wasm.OpEnd)
	when(a, scribbleRecurse).I32(0).I32(0).Index(wasm.OpCall, 3).Op(wasm.OpDrop, wasm.OpEnd)
	when(a, scribbleTrap).Op(wasm.OpUnreachable, wasm.OpEnd)
	get(a, cursor).I32(8).Op(wasm.OpI32Add).Index(wasm.OpLocalSet, cursor)
	get(a.Index(wasm.OpBr, 0).Op(wasm.OpEnd, wasm.OpEnd).I32(outputAt), sum).Access(wasm.OpI32Store, 0)
	a.I64(int64(abi.Pack(outputAt, 4)))

	m := tiny(a)
	m.Memory = wasmtest.Pages(2)
	m.Globals = []wasmtest.Global{{Type: wasm.I32, Mutable: true, Value: 7}, {Type: wasm.I64, Mutable: true, Value: 1 << 40}}
	m.Funcs[2].Locals = []wasm.LocalGroup{{Count: 5, Type: wasm.I32}}
	m.Funcs = append(m.Funcs, wasmtest.Func{Type: wasmtest.Type("ii:I"), Code: asm().
		Index(wasm.OpGlobalGet, 0).I32(1).Op(wasm.OpI32Add).Index(wasm.OpGlobalSet, 0).
		I32(0).I32(0).Index(wasm.OpCall, 3)})
	m.Data = append(m.Data, wasmtest.Data{Offset: 0x8000, Bytes: "kept"})
	return m.Bytes()
}

// scribble draws the input of a call. It begins and ends with a look.
func scribble(r *rand.Rand) []byte {
	input := []byte{scribbleLook, 0, 0, 0, 0, 0, 0, 0}
	for range r.IntN(12) {
		command := byte(r.IntN(scribbleRecurse))
		if r.IntN(40) == 0 {
			command = byte(scribbleRecurse + r.IntN(2))
		}
		input = binary.LittleEndian.AppendUint32(append(input, command, 0, 0, 0), r.Uint32())
	}
	return append(input, scribbleLook, 0, 0, 0, 0, 0, 0, 0)
}

// callOutcome is all that a call leaves, for comparison.
func callOutcome(t *testing.T, m *Module, c Call) string {
	got, err := m.Call(t.Context(), c, &world{})
	class := "none"
	for _, sentinel := range []error{abi.ErrPanicked, abi.ErrFuel, abi.ErrLimit, abi.ErrTimeout} {
		if errors.Is(err, sentinel) {
			class = sentinel.Error()
		}
	}
	return fmt.Sprintf("%x %q fuel %d memory %d log %q (%s)", got.Output, fmt.Sprint(err), got.Meter.Fuel, got.Meter.PeakMemory, got.Meter.Log, class)
}

// TestUsedInstancesAreAsGoodAsNewOnes makes random calls on used instances, four
// at a time, and repeats each on a new instance: by every method of resetting,
// verified after each call.
func TestUsedInstancesAreAsGoodAsNewOnes(t *testing.T) {
	t.Parallel()
	calls := treetest.Count(500, 1_000, 10_000)
	fresh := load(t, engineWith(t, Config{Reset: ResetFresh}), scribbler(), Limits{MemoryPages: 16, Depth: 4096})
	for _, reset := range []Reset{ResetScan, ResetCompare} {
		t.Run(string(reset), func(t *testing.T) {
			pooled := load(t, engineWith(t, Config{Reset: reset, VerifyEvery: 1}), scribbler(), Limits{MemoryPages: 16, Depth: 4096})
			var group sync.WaitGroup
			for goroutine := range 4 {
				group.Go(func() {
					r := rand.New(rand.NewPCG(uint64(goroutine), 1))
					for range calls / 4 {
						c := Call{Tool: "scribbler", Input: scribble(r)}
						if diff := cmp.Diff(callOutcome(t, fresh, c), callOutcome(t, pooled, c)); diff != "" {
							t.Errorf("input %x:\n%s", c.Input, diff)
							return
						}
					}
				})
			}
			group.Wait()
			callOutcome(t, pooled, Call{Tool: "scribbler", Input: []byte{scribbleLook, 0, 0, 0, 0, 0, 0, 0}}) // a call that traps leaves no instance
			if idle := len(pooled.pool.idle); idle == 0 || idle > 4 {
				t.Errorf("%d instances are idle after four callers", idle)
			}
		})
	}
}

func engineWith(t testing.TB, c Config) *Engine {
	t.Helper()
	e, err := New(t.Context(), c)
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	t.Cleanup(func() { e.Close(t.Context()) })
	return e
}

// TestAGoToolIsPristineEveryTime makes friendly and hostile calls of a Go tool
// in one order on used instances, and in another on new ones.
func TestAGoToolIsPristineEveryTime(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: compiles a Go tool and verifies all of its memory many times")
	}
	module := goGuest(t, "tool")
	pooled := load(t, engineWith(t, Config{VerifyEvery: 1, CacheDir: treetest.CodeFolder()}), module, Limits{})
	fresh := load(t, engineWith(t, Config{Reset: ResetFresh, CacheDir: treetest.CodeFolder()}), module, Limits{})
	tools := []string{"maps", "goroutines", "garbage", "print", "flood", "panic", "nil", "exit", "deadlock", "recovered", "echo"}
	want := map[string]string{}
	for _, name := range tools {
		want[name] = callOutcome(t, fresh, Call{Tool: name, Input: envelope(name, `null`)})
	}
	calls := treetest.Count(20, 20, 100)
	r := rand.New(rand.NewPCG(1, 2))
	for range calls {
		name := tools[r.IntN(len(tools))]
		if diff := cmp.Diff(want[name], callOutcome(t, pooled, Call{Tool: name, Input: envelope(name, `null`)})); diff != "" {
			t.Fatalf("%s:\n%s", name, diff)
		}
	}
}

// TestVerifyNoticesWhatAResetForgot changes an instance where no reset looks: in
// a global after it was set, and after the guest's memory.
func TestVerifyNoticesWhatAResetForgot(t *testing.T) {
	m := load(t, engineWith(t, Config{}), scribbler(), Limits{MemoryPages: 16})
	spoil := map[string]func(i *instance){
		"a global":                 func(i *instance) { i.globals[0].Set(8) },
		"a byte of memory":         func(i *instance) { i.memory.Write(0x8000, []byte{'S'}) },
		"the length of the memory": func(i *instance) { i.memory.Grow(1) },
	}
	for name, change := range spoil {
		i, err := m.acquire()
		if err != nil {
			t.Fatal(err)
		}
		if i.mapping == nil {
			t.Skip("SKIPPED: no instance is used twice here")
		}
		if err := i.verify(m.start); err != nil {
			t.Fatalf("before %s: %v", name, err)
		}
		change(i)
		if i.verify(m.start) == nil {
			t.Errorf("%s was changed, and verify found nothing", name)
		}
		i.discard()
	}
}

// TestAShrunkMemoryIsShort grows an instance, resets it, and asks compiled code
// for the length of memory and the bytes after its end.
func TestAShrunkMemoryIsShort(t *testing.T) {
	code := asm().
		Memory(wasm.OpMemorySize).I32(2).Op(wasm.OpI32Ne).Block(wasm.OpIf, wasm.BlockEmpty).Op(wasm.OpUnreachable, wasm.OpEnd).
		I32(9).Memory(wasm.OpMemoryGrow).Op(wasm.OpDrop).
		I32(10<<16).I32(1).Access(wasm.OpI32Store, 0).
		I64(int64(abi.Pack(outputAt, 8)))
	m := tiny(code)
	m.Memory = wasmtest.Pages(2)
	onEveryEngine(t, func(t *testing.T, e *Engine) {
		grows := load(t, e, m.Bytes(), Limits{MemoryPages: 16})
		for range 3 {
			got, err := grows.Call(t.Context(), Call{Input: []byte("x")}, &world{})
			if err != nil || got.Meter.PeakMemory != 11<<16 {
				t.Fatalf("%v, %+v", err, got.Meter)
			}
		}
		if grows.start.image.Mapped() && len(grows.pool.idle) != 1 {
			t.Errorf("%d instances are idle: the engine's memory was not shrunk", len(grows.pool.idle))
		}
	})
}

// TestAnIdleCallAllocatesOneThing: the output. The reset allocates nothing.
func TestAnIdleCallAllocatesOneThing(t *testing.T) {
	m := load(t, engineWith(t, Config{}), tiny(output("executed")).Bytes(), Limits{})
	if !m.start.image.Mapped() {
		t.Skip("SKIPPED: instances are not reset on this system")
	}
	call, w, ctx := Call{Tool: "tiny", Input: []byte("x")}, &world{}, t.Context()
	if n := testing.AllocsPerRun(1000, func() { m.Call(ctx, call, w) }); n > 1 {
		t.Errorf("%v allocations in a call", n)
	}
	i, err := m.acquire()
	if err != nil {
		t.Fatal(err)
	}
	defer i.discard()
	if n := testing.AllocsPerRun(1000, func() { i.reset(m.start) }); n > 0 {
		t.Errorf("%v allocations in a reset", n)
	}
}
