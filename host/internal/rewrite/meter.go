package rewrite

import (
	"slices"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// meter writes the metered module. Indices that it adds come after the module's
// own, except for the imports: the first is function NumImportedFuncs, and they
// move the functions with bodies up.
type meter struct {
	work   *work.Budget
	m      *wasm.Module
	o      Options
	types  []wasm.FuncType   // the module's, then the added ones
	typeAt map[string]uint32 // the first index of each of these, by its bytes

	refill                      uint32   // function
	added                       uint32   // imports
	fuel, limit, depth, refused uint32   // globals
	trap                        uint32   // global, with Options.Explain
	whole                       uint32   // function
	fill, copy, grow            uint32   // functions, when there is a memory
	explain                     uint32   // the first function of Options.Explain
	mutable                     []string // names of the module's own mutable globals
	leaves                      []int    // the cost of each body that is a leaf
	p                           profile
	n                           operandScan
	scratch32, scratch64        uint32 // locals of the body that is written, where a NaN may be
	condition, bits32, bits64   uint32 // locals of the body that is written, where floats are selected
	counter                     uint32 // local of the body being written, unless it is a leaf
	arithmetic, canonicalized   int    // float instructions of all bodies
	spans                       []span // with Options.Offsets; rewritten counts from the code section's body
}

func newMeter(budget *work.Budget, m *wasm.Module, o Options) *meter {
	globals := uint32(len(m.Globals))
	w := &meter{
		work: budget, m: m, o: o, types: slices.Clone(m.Types), typeAt: map[string]uint32{},
		refill: uint32(m.NumImportedFuncs()),
		fuel:   globals, limit: globals + 1, depth: globals + 2, refused: globals + 3, trap: globals + 4,
	}
	for i, t := range slices.Backward(m.Types) {
		w.typeAt[string(t.Append(nil))] = uint32(i)
	}
	w.added = 1
	if o.Profile {
		w.added = 3
	}
	first := uint32(m.NumFuncs()) + w.added
	w.whole, w.fill, w.copy, w.grow, w.explain = first, first+1, first+2, first+3, first+4
	if len(m.Memories) == 0 {
		w.explain = first + 1
	}
	return w
}

// moved returns the new index of one of the module's functions.
func (w *meter) moved(index uint32) uint32 {
	if index >= w.refill {
		return index + w.added
	}
	return index
}

// typeIndex returns the index of a type, and adds the type if it is missing.
func (w *meter) typeIndex(t wasm.FuncType) uint32 {
	key := string(t.Append(nil))
	i, ok := w.typeAt[key]
	if !ok {
		i = uint32(len(w.types))
		w.types, w.typeAt[key] = append(w.types, t), i
	}
	return i
}

// function appends the metered form of body i to dst, without its size. A
// function other than a leaf takes its frame from the depth budget. Its code
// becomes one block, so that every way out gives the frame back: branches to
// the function's label by construction, return as a branch.
func (w *meter) function(dst wasm.Asm, i int) (wasm.Asm, error) {
	t := w.m.Types[w.m.Funcs[i]]
	if err := w.work.Spend(3 * (w.m.Code[i].End - w.m.Code[i].Pos)); err != nil { // profileBody, scan and code
		return nil, err
	}
	groups, it, err := w.m.Body(i, nil)
	if err != nil {
		return nil, Malformed(err)
	}
	locals := len(t.Params)
	for _, g := range groups {
		locals += int(g.Count)
	}
	if err := w.p.profileBody(w.m, it, locals, w.leaves[i] != notLeaf, w.leaves); err != nil {
		return nil, err
	}
	w.n.scan(w.m, it, t.Params, groups, w.p.floats || w.p.choose)
	w.arithmetic += len(w.n.sources)
	w.canonicalized += len(w.n.canonical)
	w.mark(len(dst), it.Pos(), true)
	a := w.locals(dst, w.m.Code[i], it.Pos(), locals)
	if !w.wrapped() {
		a = w.code(a, &it)
		return a, Malformed(it.Err())
	}
	if w.o.Profile {
		a.I32(int32(w.m.NumImportedFuncs()+i)).Index(wasm.OpCall, w.refill+1)
	}
	if !w.p.leaf { // it takes its frame, and a copy of the counter
		w.frame(&a, -w.p.slots)
		a.Index(wasm.OpGlobalGet, w.depth).I32(0).Op(wasm.OpI32LtS).Block(wasm.OpIf, wasm.BlockEmpty)
		a.Op(wasm.OpUnreachable, wasm.OpEnd)
		w.take(&a)
	}
	a.Op(wasm.OpBlock)
	a = w.resultBlock(t).Append(a)
	a = w.code(a, &it)
	if !w.p.leaf { // and gives both back
		w.put(&a)
		w.frame(&a, w.p.slots)
	}
	if w.o.Profile {
		a.Index(wasm.OpCall, w.refill+2)
	}
	a.Op(wasm.OpEnd)
	return a, Malformed(it.Err())
}

// locals appends the local declarations of a body, which end at the offset
// code, with those added that its new instructions need.
func (w *meter) locals(a wasm.Asm, body wasm.Code, code, locals int) wasm.Asm {
	declared, next := w.m.Bytes(body.Pos, code), uint32(locals)
	if len(w.n.canonical) > 0 {
		w.scratch32, w.scratch64 = next, next+1
		declared, next = wasm.AppendItems(declared, []byte{1, byte(wasm.F32)}, []byte{1, byte(wasm.F64)}), next+2
	}
	if len(w.n.selects) > 0 {
		w.condition, w.bits32, w.bits64 = next, next+1, next+2
		declared, next = wasm.AppendItems(declared, []byte{2, byte(wasm.I32)}, []byte{1, byte(wasm.I64)}), next+3
	}
	if !w.p.leaf {
		w.counter = next
		declared = wasm.AppendItems(declared, []byte{1, byte(wasm.I64)})
	}
	return append(a, declared...)
}

// frame changes the depth budget by n slots.
func (w *meter) frame(a *wasm.Asm, n int) {
	a.Index(wasm.OpGlobalGet, w.depth).I32(int32(n)).Op(wasm.OpI32Add).Index(wasm.OpGlobalSet, w.depth)
}

// resultBlock returns the type of a block with the results of t.
func (w *meter) resultBlock(t wasm.FuncType) wasm.BlockType {
	switch len(t.Results) {
	case 0:
		return wasm.BlockEmpty
	case 1:
		return wasm.BlockOf(t.Results[0])
	}
	return wasm.BlockType(w.typeIndex(wasm.FuncType{Results: t.Results}))
}

// code appends the instructions, up to the last end, with the charges put in
// between and the few instructions changed that name functions or leave.
func (w *meter) code(a wasm.Asm, it *wasm.Iter) wasm.Asm {
	from, next, canonical, found := it.Pos(), 0, w.n.canonical, w.n.selects
	var in wasm.Instr
	// upTo copies the instructions up to an offset. What is added next is for the instruction in.
	upTo := func(end int) {
		w.mark(len(a), from, false)
		a = append(a, w.m.Bytes(from, end)...)
		from = end
		w.mark(len(a), in.Pos, true)
	}
	var f fusion
	for it.Next() {
		in = it.Instr
		for ; next < len(w.p.charges) && w.p.charges[next].pos <= in.Pos; next++ {
			upTo(in.Pos)
			w.head(&a, w.p.charges[next])
		}
		if f.step(in.Op) {
			upTo(in.Pos)
			hide(&a, in.Op)
		}
		if len(found) > 0 && found[0].pos == in.Pos {
			upTo(in.Pos)
			w.selectBits(&a, found[0].t)
			from, found = in.End, found[1:]
		}
		if len(canonical) > 0 && canonical[0] == in.Pos {
			upTo(in.End)
			canonical = canonical[1:]
			w.canonicalize(&a, in.Op)
		}
		if !w.changes(&in) {
			continue
		}
		upTo(in.Pos)
		from = in.End
		w.instr(&a, &in, it.Depth())
	}
	upTo(it.Pos())
	return a
}

// changes reports whether an instruction cannot stay as it is.
func (w *meter) changes(in *wasm.Instr) bool {
	switch in.Op {
	case wasm.OpCall, wasm.OpCallIndirect:
		return true
	case wasm.OpReturn:
		return w.wrapped()
	}
	if _, ok := w.truncation(in.Op); ok {
		return true
	}
	return in.Op == wasm.OpMemoryGrow || in.Op == wasm.OpMemoryFill || in.Op == wasm.OpMemoryCopy
}

func (w *meter) instr(a *wasm.Asm, in *wasm.Instr, depth int) {
	if helper, ok := w.truncation(in.Op); ok {
		a.Index(wasm.OpCall, helper) // which does not count
		return
	}
	switch in.Op {
	case wasm.OpCall:
		a.Index(wasm.OpCall, w.moved(in.Index))
	case wasm.OpCallIndirect:
		if w.o.Explain {
			a.Index(wasm.OpCall, w.entryProbe())
		}
		*a = append(*a, w.m.Bytes(in.Pos, in.End)...)
	case wasm.OpReturn:
		a.Index(wasm.OpBr, uint32(depth))
		return
	case wasm.OpMemoryGrow:
		a.Index(wasm.OpCall, w.grow)
	case wasm.OpMemoryFill:
		a.Index(wasm.OpCall, w.fill)
	case wasm.OpMemoryCopy:
		a.Index(wasm.OpCall, w.copy)
	}
	w.take(a)
}

// wrapped reports whether the code of the function that is written becomes one
// block, so that every way out leads to its end.
func (w *meter) wrapped() bool { return !w.p.leaf || w.o.Profile }
