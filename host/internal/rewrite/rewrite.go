package rewrite

import (
	"cmp"
	"math"

	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// CostTableVersion is the version of the cost table in spec/determinism.md. It
// changes when any module could get another count. It belongs into the key of
// every cache of rewritten modules and into the log.
const CostTableVersion = 1

// The import that a rewritten module adds to its own: a function () -> (),
// called when the counter is over the limit. It returns to let the guest
// continue, usually after raising the limit, or does not return.
const (
	RefillModule = "starling:fuel"
	RefillName   = "refill"
)

// Further imports from [RefillModule] in a module rewritten for profiling:
// functions (i32) -> () and () -> (). Enter gets the function's index in the
// original module, as the name section uses it, and is called before the
// function is charged for anything. Leave is called when it returns, not when
// it traps. At both times [GlobalFuel] is the count.
const (
	EnterName = "enter"
	LeaveName = "leave"
)

// The exports that a rewritten module adds to its own. The globals are
// mutable. A guest whose allocator gives up traps like any other; only
// [GlobalRefused] shows that memory was the reason. After a trap [GlobalDepth]
// is stale: set it before every call that does not happen within another one.
// The module's own mutable globals get names of the same prefix, see
// [Result].
const (
	GlobalFuel    = reserved + "fuel"    // i64: units charged so far; begins at 0, only grows
	GlobalLimit   = reserved + "limit"   // i64, unsigned: beyond it the guest calls refill; begins at 0
	GlobalDepth   = reserved + "depth"   // i32: free slots of the call stack; begins at Options.Depth; negative after an overflow
	GlobalRefused = reserved + "refused" // i32: 1 once a memory.grow has failed, else 0
	GlobalTrap    = reserved + "trap"    // i32: why the guest traps, see TrapNotNumber; only with Options.Explain
	ExportStart   = reserved + "start"   // () -> (): the start function, if there was one
	ExportWhole   = reserved + "whole"   // () -> (): does nothing, and traps in a [Shell]
)

// Result is a rewritten module. An instance of it can change only its memory
// and the exported globals, so restoring these puts an instance back to an
// earlier state.
type Result struct {
	Wasm      []byte
	Info      Info      // of the module as it came
	CostTable uint32    // [CostTableVersion]
	Globals   []string  // the exports of the module's own mutable globals, in the order of their indices
	Data      []Segment // the initial content of an instance's memory, in order
	Offsets   *Offsets  // with Options.Offsets

	// Arithmetic counts the instructions that can give a NaN, and Canonicalized
	// those whose NaN is made canonical.
	Arithmetic, Canonicalized int
}

// Segment is a piece of memory's first contents. It lies within the memory that
// an instance begins with. Bytes belong to the module that was rewritten.
type Segment struct {
	Offset uint32
	Bytes  []byte
}

// Rewrite lets b pass the gate and returns the metered module. The error is a [*Refusal], or the cause of
// the end of the budget's context. The same bytes, limits and options give the same result.
func Rewrite(w *work.Budget, b []byte, l Limits, o Options) (*Result, error) {
	result, err := rewriteWith(w, b, l, o, ImportType)
	return result, Malformed(err)
}

func rewriteWith(budget *work.Budget, b []byte, l Limits, o Options, allowed lookup) (*Result, error) {
	g, err := pass(budget, b, l, allowed)
	if err != nil {
		return nil, err
	}
	o.MemoryPages, o.Depth = cmp.Or(o.MemoryPages, DefaultMemoryPages), cmp.Or(o.Depth, DefaultDepth)
	if err := atMost("slots of the depth budget", -1, uint64(o.Depth), math.MaxInt32/2); err != nil {
		return nil, err
	}
	if err := atMost("pages of memory at start", g.offset(wasm.SectionMemory), uint64(g.info.Memory.Min), uint64(o.MemoryPages)); err != nil {
		return nil, hinted(err, "a page has 64 KiB: let its calls have as much memory, or build it to begin with less")
	}
	if err := budget.Hold(2 * len(b)); err != nil { // the sections other than the code, twice, and segments
		return nil, err
	}
	w := newMeter(budget, g.m, o)
	if err := w.sections(min(g.info.Memory.Max, o.MemoryPages)); err != nil {
		return nil, err
	}
	if err := budget.Hold(len(g.m.Section(wasm.SectionCode).Body)); err != nil {
		return nil, err
	}
	out := g.m.Encode()
	return &Result{
		Wasm: out, Offsets: w.offsets(out), Info: g.info, CostTable: CostTableVersion,
		Globals: w.mutable, Data: lists.Map(g.m.Data, func(d wasm.Data) Segment {
			return Segment{Offset: uint32(d.Start.Value), Bytes: g.m.Bytes(d.Pos, d.End)}
		}),
		Arithmetic: w.arithmetic, Canonicalized: w.canonicalized,
	}, nil
}

// Shell returns a rewritten module with bodies that only trap. All else is the
// module's, so an engine that has the code of the whole module needs only this to run
// it; reading and validating the bodies is most of the cost of loading a module. An
// engine without the code runs the shell instead, so call [ExportWhole] before
// anything of the module. It returns an error for bytes that are not a module, and that of the budget.
func Shell(w *work.Budget, rewritten []byte) ([]byte, error) {
	m, err := wasm.Decode(w, rewritten)
	if err == nil {
		err = w.Hold(len(rewritten) + 8*len(m.Code)) // as long at most, and the new bodies
	}
	if err != nil {
		return nil, Malformed(err)
	}
	code := wasm.AppendU32(nil, uint32(len(m.Code)))
	for range m.Code {
		code = append(wasm.AppendU32(code, uint32(len(trapBody))), trapBody...)
	}
	m.SetBody(wasm.SectionCode, code)
	return m.Encode(), nil
}

var (
	wholeBody = wasm.Asm{noLocals, byte(wasm.OpEnd)}
	trapBody  = wasm.Asm{noLocals, byte(wasm.OpUnreachable), byte(wasm.OpEnd)}
)
