package rewrite

import (
	"sort"

	"github.com/starling-host/starling/internal/wasm"
)

// Offsets relates the instructions of a rewritten module to those of the module as it came. Both
// sides are offsets in the module's bytes, as [wasm.Instr] counts them.
type Offsets struct{ spans []span }

// span begins a run of rewritten code. The run is a copy of the original's bytes, or was added for
// the instruction at the offset: it charges for it, replaces it, or corrects its result.
type span struct {
	rewritten, original uint32
	added               bool
}

// Original returns the offset of the instruction that the code at a rewritten offset belongs to. It
// reports false for the helpers that the rewriter adds, and for what is not code.
func (o *Offsets) Original(rewritten uint32) (uint32, bool) {
	i := sort.Search(len(o.spans), func(i int) bool { return o.spans[i].rewritten > rewritten }) - 1
	if i < 0 || i == len(o.spans)-1 {
		return 0, false
	}
	p := o.spans[i]
	if p.added {
		return p.original, true
	}
	return p.original + rewritten - p.rewritten, true
}

// Rewritten returns where the code of an original instruction begins. Execution arrives there before
// the instruction has had any effect.
func (o *Offsets) Rewritten(original uint32) (uint32, bool) {
	i := sort.Search(len(o.spans), func(i int) bool { return o.spans[i].original >= original })
	if i > 0 {
		p := o.spans[i-1]
		if at := p.rewritten + original - p.original; !p.added && at < o.spans[i].rewritten {
			return at, true
		}
	}
	if i >= len(o.spans)-1 || o.spans[i].original != original {
		return 0, false
	}
	return o.spans[i].rewritten, true
}

// mark begins a span at offset at of the body that is written.
func (w *meter) mark(at, original int, added bool) {
	if w.o.Offsets {
		w.spans = append(w.spans, span{uint32(at), uint32(original), added})
	}
}

// offsets returns the spans with offsets in the rewritten module, or nil.
func (w *meter) offsets(out []byte) *Offsets {
	if !w.o.Offsets {
		return nil
	}
	m, err := wasm.Split(out)
	if err != nil || m.Section(wasm.SectionCode) == nil {
		return &Offsets{}
	}
	for i := range w.spans {
		w.spans[i].rewritten += uint32(m.Section(wasm.SectionCode).Offset)
	}
	return &Offsets{w.spans}
}
