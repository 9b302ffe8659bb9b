package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// end is the expected end of a hand-built guest.
type end struct {
	name   string
	module *wasmtest.Module
	limits Limits
	class  error
	text   string
}

func (tt end) check(t *testing.T) {
	t.Run(tt.name, func(t *testing.T) {
		var seen []observation
		onEveryEngine(t, func(t *testing.T, e *Engine) {
			m := load(t, e, tt.module.Bytes(), tt.limits)
			got, err := observe(t, m, Call{Input: []byte("some input")}, &world{})
			if !errors.Is(err, tt.class) || !strings.Contains(got.Error, tt.text) || strings.Contains(got.Error, "wasm") {
				t.Errorf("error %q, want class %v and %q", got.Error, tt.class, tt.text)
			}
			seen = append(seen, got)
		})
		if len(seen) == 2 && !cmp.Equal(seen[0], seen[1]) {
			t.Errorf("the engines differ:\n%s", cmp.Diff(seen[0], seen[1]))
		}
	})
}

// with changes the alloc, execute or other functions of a tiny tool.
func with(edit func(m *wasmtest.Module)) *wasmtest.Module {
	m := tiny(output("executed"))
	edit(m)
	return m
}

func allocates(code *wasm.Asm) *wasmtest.Module {
	return with(func(m *wasmtest.Module) { m.Funcs[0].Code = code })
}

func returns(address, length uint32) *wasmtest.Module {
	return tiny(asm().I64(int64(abi.Pack(address, length))))
}

func TestAGuestThatLies(t *testing.T) {
	t.Parallel()
	for _, tt := range []end{
		{name: "no room", module: allocates(asm().I32(0)), class: abi.ErrPanicked, text: "what starling_alloc returned"},
		{name: "room at the end of memory", module: allocates(asm().I32(65536 - 9)), class: abi.ErrPanicked, text: "(10 bytes at 0xfff7) is outside of memory"},
		{name: "room that just fits", module: allocates(asm().I32(65536 - 10))},
		{name: "room beyond the address space", module: allocates(asm().I32(-1)), class: abi.ErrPanicked, text: "(10 bytes at 0xffffffff)"},
		{name: "a document outside of memory", module: returns(65536, 1), class: abi.ErrPanicked, text: "what starling_execute returned (1 bytes at 0x10000)"},
		{name: "a document that wraps around", module: returns(math.MaxUint32, 2), class: abi.ErrPanicked, text: "outside of memory"},
		{name: "a document larger than memory", module: returns(0, 65537), class: abi.ErrPanicked, text: "outside of memory"},
		{name: "a document larger than its limit", module: returns(0, 65536), limits: Limits{OutputBytes: 65535}, class: abi.ErrLimit, text: "output of 65536 bytes, more than 65535"},
		{name: "a document of 4 GiB", module: returns(0, math.MaxUint32), class: abi.ErrLimit, text: "output of 4294967295 bytes"},
		{name: "an empty document at a wild address", module: returns(0xaaaaaaaa, 0)},
	} {
		tt.check(t)
	}
}

func TestATrapHasOneOfSevenNames(t *testing.T) {
	trap := func(name, text string, code *wasm.Asm) end {
		return end{name: name, module: tiny(code.Op(wasm.OpUnreachable)), class: abi.ErrPanicked, text: "trap: " + text}
	}
	indirect := func(index int32) *wasmtest.Module {
		m := tiny(asm().I32(0).I32(index).Index(wasm.OpCallIndirect, 1).Op(wasm.OpUnreachable))
		m.Table = wasmtest.Pages(4)
		m.Elements = []wasmtest.Element{{Offset: 1, Funcs: []uint32{0, 1}}}
		m.Types = []wasm.FuncType{wasmtest.Type("ii:I"), wasmtest.Type("i:i")}
		return m
	}
	tests := []end{
		trap("an unreachable instruction", "unreachable", asm()),
		trap("division by zero", "integer divide by zero", asm().I32(1).I32(0).Op(wasm.OpI32DivS, wasm.OpDrop)),
		trap("remainder by zero", "integer divide by zero", asm().I64(1).I64(0).Op(wasm.OpI64RemU, wasm.OpDrop)),
		trap("the one quotient that does not fit", "integer overflow", asm().I32(math.MinInt32).I32(-1).Op(wasm.OpI32DivS, wasm.OpDrop)),
		trap("a load outside of memory", "out of bounds memory access", asm().I32(65533).Access(wasm.OpI32Load, 0).Op(wasm.OpDrop)),
		trap("a store outside of memory", "out of bounds memory access", asm().I32(-1).I64(0).Access(i64Store, math.MaxUint32)),
		trap("filling beyond memory", "out of bounds memory access", asm().I32(65000).I32(0).I32(65536).Memory(wasm.OpMemoryFill)),
		trap("truncating what is no number", "invalid conversion to integer", nan()),
		trap("truncating what is too large", "integer overflow", asm().I64(math.MaxInt64).Op(f64ConvertI64S, i32TruncF64S, wasm.OpDrop)),
	}
	for _, tt := range tests {
		tt.check(t)
	}
	for _, tt := range []struct {
		name, text string
		index      int32
	}{
		{"calling an entry that is empty", "invalid table access", 0},
		{"calling beyond the table", "invalid table access", 4},
		{"calling beyond all tables", "invalid table access", -1},
		{"calling a function of another type", "indirect call type mismatch", 2},
	} {
		end{name: tt.name, module: indirect(tt.index), class: abi.ErrPanicked, text: "trap: " + tt.text}.check(t)
	}
}

// nan truncates 0/0.
func nan() *wasm.Asm {
	return asm().I32(0).Op(f64ConvertI32S).I32(0).Op(f64ConvertI32S, wasm.OpF64Div, i32TruncF64S, wasm.OpDrop)
}

// Instructions that have no name in package wasm.
const (
	i64Store       = wasm.Op(0x37)
	i32TruncF64S   = wasm.Op(0xaa)
	f64ConvertI32S = wasm.Op(0xb7)
	f64ConvertI64S = wasm.Op(0xb9)
)

func TestACallIsBoundedByFuelAndDepth(t *testing.T) {
	t.Parallel()
	spin := looping(asm())
	recursive := with(func(m *wasmtest.Module) { m.Funcs[2].Code = asm().I32(0).I32(0).Index(wasm.OpCall, 2) })
	for _, tt := range []end{
		{name: "a loop", module: tiny(spin), limits: Limits{Fuel: 12_000_000}, class: abi.ErrFuel, text: "more than 12000000 units"},
		{name: "a loop in the allocator", module: allocates(spin), limits: Limits{Fuel: 1000}, class: abi.ErrFuel, text: "more than 1000 units"},
		{name: "calls without end", module: recursive, limits: Limits{Depth: 5000}, class: abi.ErrLimit, text: "call stack deeper than 5000 slots"},
		{name: "filling memory for ever", module: withPages(tiny(looping(asm().I32(0).I32(7).I32(1<<24).Memory(wasm.OpMemoryFill))), 256),
			limits: Limits{Fuel: 50_000_000}, class: abi.ErrFuel},
		{name: "growing memory for ever", module: tiny(looping(asm().I32(1).Memory(wasm.OpMemoryGrow).Op(wasm.OpDrop))),
			limits: Limits{Fuel: 1_000_000, MemoryPages: 16}, class: abi.ErrFuel},
		{name: "asking for the time for ever", module: tiny(looping(asm().Index(wasm.OpCall, 0).Op(wasm.OpDrop)), "now"),
			class: abi.ErrLimit, text: "more than 1000 effects"},
		{name: "reading the clock for ever", module: tiny(looping(asm().I32(1).I64(0).I32(8).Index(wasm.OpCall, 0).Op(wasm.OpDrop)), "clock_time_get"),
			limits: Limits{Fuel: 5_000_000}, class: abi.ErrFuel},
		{name: "drawing random bytes for ever", module: withPages(tiny(looping(asm().I32(0).I32(1<<24).Index(wasm.OpCall, 0).Op(wasm.OpDrop)), "random_get"), 256),
			limits: Limits{Fuel: 40_000_000}, class: abi.ErrFuel},
	} {
		tt.check(t)
	}
}

// TestTheDeepestCallIsTheSameOnEveryEngine makes a guest nest as many calls as the
// budget has frames for. The interpreter has room for its default; beyond that the call
// has no outcome there, and never another one than the compiler's.
func TestTheDeepestCallIsTheSameOnEveryEngine(t *testing.T) {
	t.Parallel()
	if onJS {
		t.Skip("SKIPPED: there is no interpreter here")
	}
	m := tiny(asm().I32(0).I32(0).Index(wasm.OpCall, 2)).Bytes()
	for _, depth := range []uint32{interpreterDepth, DefaultLimits().Depth, MaxDepth} {
		limits := Limits{Depth: depth}
		want := endingOf(t, load(t, compiler(), m, limits), peace)
		if !strings.Contains(want, fmt.Sprintf("deeper than %d slots", depth)) {
			t.Errorf("depth %d: %s", depth, want)
		}
		if got := endingOf(t, load(t, own(), m, limits), peace); got != want {
			t.Errorf("depth %d\ncompiler %s\nmachine  %s", depth, want, got)
		}
		interpreted := load(t, interpreter(), m, limits)
		if depth > interpreterDepth {
			_, err := interpreted.Call(t.Context(), Call{Input: []byte("x")}, &world{})
			if !errors.Is(err, abi.ErrHost) || !strings.Contains(err.Error(), "call stack is too small") {
				t.Errorf("depth %d on the interpreter: %v", depth, err)
			}
		} else if got := endingOf(t, interpreted, peace); got != want {
			t.Errorf("depth %d\ncompiler    %s\ninterpreter %s", depth, want, got)
		}
	}
	if got := load(t, interpreter(), m, Limits{}).Limits().Depth; got != interpreterDepth {
		t.Errorf("the interpreter's default is %d", got)
	}
}

func withPages(m *wasmtest.Module, pages uint32) *wasmtest.Module {
	m.Memory = wasmtest.Pages(pages)
	return m
}

func TestEffectsAreCountedBeforeTheyHappen(t *testing.T) {
	forever := looping(asm().Index(wasm.OpCall, 0).Op(wasm.OpDrop))
	for _, tt := range []struct {
		limits Limits
		want   int
		text   string
	}{
		{Limits{Effects: 3}, 3, "more than 3 effects"},
		{Limits{EffectBytes: 39}, 4, "effects of more than 39 bytes"},
		{Limits{EffectBytes: 40}, 5, "effects of more than 40 bytes"},
	} {
		w := &world{}
		_, err := load(t, compiler(), tiny(forever, "random").Bytes(), tt.limits).Call(t.Context(), Call{Input: []byte("x")}, w)
		if !errors.Is(err, abi.ErrLimit) || !strings.Contains(err.Error(), tt.text) || len(w.effects) != tt.want {
			t.Errorf("%+v: %d effects, error %v", tt.limits, len(w.effects), err)
		}
	}
}

// A guest that asks for more memory than its limit gets an error; its peak is
// what it reached.
func TestMemoryEndsAtItsLimit(t *testing.T) {
	grow := func(pages int32) *wasm.Asm { return asm().I32(pages).Memory(wasm.OpMemoryGrow) }
	for _, tt := range []end{
		{name: "up to the limit", module: tiny(grow(15).Op(wasm.OpDrop).I64(0)), limits: Limits{MemoryPages: 16}},
		{name: "beyond", module: tiny(grow(16).Op(wasm.OpDrop).I64(0)), limits: Limits{MemoryPages: 16}},
	} {
		tt.check(t)
		m := load(t, compiler(), tt.module.Bytes(), tt.limits)
		got, _ := observe(t, m, Call{Input: []byte("x")}, &world{})
		if want := map[string]uint64{"up to the limit": 16 << 16, "beyond": 1 << 16}[tt.name]; got.Result.Meter.PeakMemory != want {
			t.Errorf("%s: peak %d, want %d", tt.name, got.Result.Meter.PeakMemory, want)
		}
	}
}

func TestStartUpRunsSealedAndInOrder(t *testing.T) {
	// Each function appends its digit to the number at 0; execute returns it.
	digit := func(d int32) *wasm.Asm {
		return asm().I32(0).I32(0).Access(wasm.OpI32Load, 0).I32(10).Op(i32Mul).I32(d).Op(wasm.OpI32Add).Access(wasm.OpI32Store, 0)
	}
	start := uint32(3)
	m := with(func(m *wasmtest.Module) {
		m.Start = &start
		m.Funcs[0].Code = digit(4).I32(roomAt)
		m.Funcs[2].Code = digit(5).I32(outputAt).I32(0).Access(wasm.OpI32Load, 0).Access(wasm.OpI32Store, 0).I64(int64(abi.Pack(outputAt, 4)))
		m.Funcs = append(m.Funcs,
			wasmtest.Func{Type: wasmtest.Type(":"), Code: digit(1)},
			wasmtest.Func{Type: wasmtest.Type(":"), Export: abi.ExportWarmup, Code: digit(3)},
			wasmtest.Func{Type: wasmtest.Type(":"), Export: abi.ExportInitialize, Code: digit(2)})
	})
	onEveryEngine(t, func(t *testing.T, e *Engine) {
		loaded := load(t, e, m.Bytes(), Limits{})
		for range 2 {
			got, err := loaded.Call(t.Context(), Call{Input: []byte("x")}, &world{})
			if err != nil || string(got.Output) != "\x39\x30\x00\x00" { // 12345
				t.Errorf("%x, %v", got.Output, err)
			}
		}
	})
}

const i32Mul = wasm.Op(0x6c)

func TestStartUpHasNoEffects(t *testing.T) {
	effect := func(code *wasm.Asm, imports ...string) *wasmtest.Module {
		m := tiny(output("executed"), imports...)
		m.Funcs = append(m.Funcs, wasmtest.Func{Type: wasmtest.Type(":"), Export: abi.ExportInitialize, Code: code})
		return m
	}
	call := asm().Index(wasm.OpCall, 0).Op(wasm.OpDrop)
	request := asm().I32(0).I32(1).I32(0).I32(0).Index(wasm.OpCall, 0).Op(wasm.OpDrop)
	for _, tt := range []end{
		{name: "the time", module: effect(call, "now"), class: abi.ErrPanicked, text: "starling:v1.now was called during _initialize, which may have no effects"},
		{name: "randomness", module: effect(call, "random"), class: abi.ErrPanicked, text: "starling:v1.random was called during _initialize"},
		{name: "a request", module: effect(request, "http"), class: abi.ErrPanicked, text: "starling:v1.http was called during _initialize"},
		{name: "an exit", module: effect(asm().I32(0).Index(wasm.OpCall, 0), "proc_exit"), class: abi.ErrPanicked, text: "exit code 0"},
		{name: "the time, in the start function", module: startsWith(effect(call, "now"), 4), class: abi.ErrPanicked,
			text: "in the start function: tool: panicked: starling:v1.now was called during the start function"},
		{name: "a trap", module: effect(asm().Op(wasm.OpUnreachable)), class: abi.ErrPanicked, text: "in _initialize: tool: panicked: trap: unreachable"},
	} {
		tt.check(t)
	}
}

func startsWith(m *wasmtest.Module, function uint32) *wasmtest.Module {
	m.Start = &function
	return m
}

func TestWhatStartUpWroteIsNotTheCallsLog(t *testing.T) {
	write := func(length int32) *wasm.Asm { // the first bytes of the output document
		return asm().I32(0).I32(outputAt).Access(wasm.OpI32Store, 0).I32(4).I32(length).Access(wasm.OpI32Store, 0).
			I32(1).I32(0).I32(1).I32(8).Index(wasm.OpCall, 0).Op(wasm.OpDrop)
	}
	m := tiny(write(2).I64(0), "fd_write")
	m.Funcs = append(m.Funcs, wasmtest.Func{Type: wasmtest.Type(":"), Export: abi.ExportInitialize, Code: write(8)})
	got, err := load(t, compiler(), m.Bytes(), Limits{}).Call(t.Context(), Call{Input: []byte("x")}, &world{})
	if err != nil || got.Meter.Log != "ex" {
		t.Errorf("log %q, %v", got.Meter.Log, err)
	}
	m.Funcs[len(m.Funcs)-1].Code = write(8).Op(wasm.OpUnreachable)
	_, err = load(t, compiler(), m.Bytes(), Limits{}).Call(t.Context(), Call{Input: []byte("x")}, &world{})
	if err == nil || !strings.HasSuffix(err.Error(), "trap: unreachable\nexecuted") {
		t.Errorf("error %v: it does not say what start-up wrote", err)
	}
}

func TestStartUpIsBounded(t *testing.T) {
	m := tiny(output("executed"))
	m.Funcs = append(m.Funcs, wasmtest.Func{Type: wasmtest.Type(":"), Export: abi.ExportInitialize, Code: looping(asm())})
	_, err := load(t, compiler(), m.Bytes(), Limits{}).Call(t.Context(), Call{Input: []byte("x")}, &world{})
	if !errors.Is(err, abi.ErrFuel) || !strings.Contains(err.Error(), "in _initialize: tool: out of fuel: more than 1000000000 units") {
		t.Errorf("error %v", err)
	}
}

func TestImportsCanEndTheCall(t *testing.T) {
	reason := errors.New("the log has stopped")
	w := &world{http: func(string) (string, abi.Status) { panic(reason) }}
	code := asm().I32(0).I32(4).I32(0).I32(0).Index(wasm.OpCall, 0).Op(wasm.OpUnreachable)
	onEveryEngine(t, func(t *testing.T, e *Engine) {
		_, err := load(t, e, tiny(code, "http").Bytes(), Limits{}).Call(t.Context(), Call{Input: []byte("x")}, w)
		if err != reason {
			t.Errorf("error %v, want it unchanged", err)
		}
	})
}

// A mistake in the host must not be written down as the guest's.
func TestAMistakeInImportsIsNotTheGuests(t *testing.T) {
	for _, panicked := range []func(){
		func() { panic("a mistake") },
		func() { var w *world; w.record("x") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not reach the caller")
				}
			}()
			w := &world{http: func(string) (string, abi.Status) { panicked(); return "", 0 }}
			code := asm().I32(0).I32(4).I32(0).I32(0).Index(wasm.OpCall, 0).Op(wasm.OpUnreachable)
			load(t, compiler(), tiny(code, "http").Bytes(), Limits{}).Call(t.Context(), Call{Input: []byte("x")}, w)
		}()
	}
}

// Every call finds memory as the module declares it, whatever other calls do
// at the same time.
func TestCallsDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	code := asm().I32(outputAt).I32(outputAt).Access(wasm.OpI32Load, 0).I32(1).Op(wasm.OpI32Add).Access(wasm.OpI32Store, 0).
		Index(wasm.OpCall, 0).Op(wasm.OpDrop).I64(int64(abi.Pack(outputAt, 4)))
	m := load(t, compiler(), tiny(code, "now").Bytes(), Limits{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				w := &world{}
				got, err := m.Call(t.Context(), Call{Input: []byte("x")}, w)
				if err != nil || string(got.Output) != "fxec" || len(w.effects) != 1 { // one more than 'e'
					t.Errorf("%q, %v, effects %v", got.Output, err, w.effects)
				}
			}
		})
	}
	wg.Wait()
}

func TestTheMeterCanBeReadDuringAndAfterTheCall(t *testing.T) {
	w := &world{}
	var meter func() Meter
	c := Call{Input: []byte("x"), Probe: func(f func() Meter) { meter, w.meter = f, f }}
	code := asm().Index(wasm.OpCall, 0).Op(wasm.OpDrop).Index(wasm.OpCall, 0).Op(wasm.OpDrop).I64(0)
	got, err := load(t, compiler(), tiny(code, "now").Bytes(), Limits{}).Call(context.Background(), c, w)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.fuel) != 2 || w.fuel[0] == 0 || w.fuel[1] < w.fuel[0] || got.Meter.Fuel < w.fuel[1] {
		t.Errorf("fuel at the effects %v, at the end %d", w.fuel, got.Meter.Fuel)
	}
	if diff := cmp.Diff(got.Meter, meter()); diff != "" {
		t.Error(diff)
	}
}
