package rewrite

import (
	"cmp"

	"github.com/starling-host/starling/internal/wasm"
)

// bodyScan is the counts of one pass over a function body. Its slices are
// used again for the next body.
type bodyScan struct {
	groups []wasm.LocalGroup
	open   []wasm.Op // the blocks that are open: block, loop, if or else

	locals, ops, blocks, loops, edges uint64
	calls, indirect, arity            uint64
	inLoops, loopDepths               uint64 // how many loops are open; the sum of that over all loops
	nesting, table                    int
}

func (g *gate) checkBodies() error {
	c := &g.info.Counts
	c.Functions = len(g.m.Code)
	imported := g.m.NumImportedFuncs()
	var totalLocals uint64
	for i := range g.m.Code {
		err := g.checkBody(i)
		totalLocals += g.scan.locals
		if err == nil {
			err = atMost("locals of all functions", g.m.Code[i].Pos, totalLocals, uint64(g.l.TotalLocals))
		}
		if err == nil {
			err = g.addCost(i)
		}
		if err != nil {
			return inFunc(g.work, err, g.m, imported+i)
		}
	}
	return nil
}

func (g *gate) checkBody(i int) error {
	code := g.m.Code[i]
	if err := atMost("bytes of a function body", code.Pos, uint64(code.End-code.Pos), uint64(g.l.BodyBytes)); err != nil {
		return err
	}
	if err := g.work.Spend(code.End - code.Pos); err != nil {
		return err
	}
	s := &g.scan
	*s = bodyScan{groups: s.groups[:0], open: s.open[:0]}
	groups, it, err := g.m.Body(i, s.groups)
	s.groups = groups
	if err != nil {
		return Malformed(err)
	}
	if err := g.checkLocals(i); err != nil {
		return err
	}
	for it.Next() {
		if err := g.checkInstr(&it); err != nil {
			return err
		}
	}
	return Malformed(it.Err())
}

func (g *gate) checkLocals(i int) error {
	s := &g.scan
	s.locals = uint64(len(g.m.Types[g.m.Funcs[i]].Params))
	for _, group := range s.groups {
		s.locals += uint64(group.Count)
		if !group.Type.IsNumber() {
			return refuseReference(g.m.Code[i].Pos, group.Type)
		}
	}
	return atMost("locals", g.m.Code[i].Pos, s.locals, uint64(g.l.Locals))
}

// checkInstr checks the indices of one instruction, refuses the instructions
// that have effects outside of memory, globals and the operand stack, and
// counts what compiling costs.
func (g *gate) checkInstr(it *wasm.Iter) error {
	s := &g.scan
	s.ops++
	g.used |= featureOf(it.Op)
	switch op := it.Op; op {
	case wasm.OpBlock, wasm.OpLoop, wasm.OpIf, wasm.OpElse, wasm.OpEnd:
		return g.checkControl(it)
	case wasm.OpBr, wasm.OpBrIf, wasm.OpBrTable:
		return g.checkBranch(it)
	case wasm.OpCall:
		if err := inRange(it.Instr.Pos, "function", it.Index, g.m.NumFuncs()); err != nil {
			return err
		}
		s.addCall(g.funcType(int(it.Index)))
	case wasm.OpCallIndirect:
		if err := cmp.Or(inRange(it.Instr.Pos, "type", it.Index, len(g.m.Types)), inRange(it.Instr.Pos, "table", it.Index2, len(g.m.Tables))); err != nil {
			return err
		}
		s.addCall(g.m.Types[it.Index])
		s.indirect++
	case wasm.OpLocalGet, wasm.OpLocalSet, wasm.OpLocalTee:
		return inRange(it.Instr.Pos, "local", it.Index, int(s.locals))
	case wasm.OpGlobalGet, wasm.OpGlobalSet:
		return inRange(it.Instr.Pos, "global", it.Index, len(g.m.Globals))
	case wasm.OpMemoryCopy, wasm.OpMemoryFill:
		if err := inRange(it.Instr.Pos, "memory", 0, len(g.m.Memories)); err != nil {
			return err
		}
		return g.addBlocks(it, 4)
	case wasm.OpRefFunc, wasm.OpRefNull, wasm.OpRefIsNull, wasm.OpTableGet, wasm.OpTableSet, wasm.OpTableInit,
		wasm.OpTableCopy, wasm.OpTableGrow, wasm.OpTableSize, wasm.OpTableFill, wasm.OpElemDrop,
		wasm.OpMemoryInit, wasm.OpDataDrop:
		return refuse(it.Instr.Pos, opHint(op), "%s is not allowed", op)
	}
	if it.Op == wasm.OpMemoryGrow {
		s.calls++ // of the code that replaces it
	}
	if it.Op >= wasm.OpI32Load && it.Op <= wasm.OpMemoryGrow {
		return inRange(it.Instr.Pos, "memory", 0, len(g.m.Memories))
	}
	return nil
}

func opHint(op wasm.Op) string {
	if op == wasm.OpMemoryInit || op == wasm.OpDataDrop {
		return "build without passive data segments, which threads need"
	}
	return "build without reference types; the function table is read only"
}

func (g *gate) checkControl(it *wasm.Iter) error {
	s := &g.scan
	switch it.Op {
	case wasm.OpElse:
		top := len(s.open) - 1
		if top < 0 || s.open[top] != wasm.OpIf {
			return refuse(it.Instr.Pos, "", "malformed module: else without if")
		}
		s.open[top] = wasm.OpElse
		return nil
	case wasm.OpEnd:
		if top := len(s.open) - 1; top >= 0 {
			if s.open[top] == wasm.OpLoop {
				s.inLoops--
			}
			s.open = s.open[:top]
		}
		return nil
	case wasm.OpLoop:
		s.loops++
		s.inLoops++
		s.loopDepths += s.inLoops
	case wasm.OpIf:
		s.blocks++
	}
	if index, ok := it.Block.Index(); ok && int64(index) >= int64(len(g.m.Types)) {
		return outOfRange(it.Instr.Pos, "type", index, len(g.m.Types))
	}
	if t, ok := it.Block.Result(); ok && !t.IsNumber() {
		return refuseReference(it.Instr.Pos, t)
	}
	s.open = append(s.open, it.Op)
	s.nesting = max(s.nesting, len(s.open))
	if err := atMost("nesting of blocks", it.Instr.Pos, uint64(len(s.open)), uint64(g.l.Nesting)); err != nil {
		return err
	}
	return g.addBlocks(it, 1)
}

func (g *gate) addBlocks(it *wasm.Iter, n uint64) error {
	g.scan.blocks += n
	return atMost("blocks of a function", it.Instr.Pos, g.scan.blocks, uint64(g.l.Blocks))
}

func (g *gate) checkBranch(it *wasm.Iter) error {
	s := &g.scan
	labels := len(s.open) + 1 // the last one is the function
	if it.Op != wasm.OpBrTable {
		s.edges++
		if err := inRange(it.Instr.Pos, "label", it.Index, labels); err != nil {
			return err
		}
		return g.addBlocks(it, 1)
	}
	if err := atMost("labels of a br_table", it.Instr.Pos, uint64(it.Index), uint64(g.l.BranchTable)); err != nil {
		return err
	}
	s.table = max(s.table, int(it.Index))
	s.edges += uint64(it.Index)
	for label := range it.Labels {
		if err := inRange(it.Instr.Pos, "label", label, labels); err != nil {
			return err
		}
	}
	return nil
}

func (s *bodyScan) addCall(t wasm.FuncType) {
	s.calls++
	s.arity += uint64(len(t.Params) + len(t.Results))
}

// addCost adds up the body's compile cost, and refuses too much.
func (g *gate) addCost(i int) error {
	s, c, at := &g.scan, &g.info.Counts, g.m.Code[i].Pos
	cost := s.compileCost()
	c.Instructions += int(s.ops)
	c.LargestBody = max(c.LargestBody, g.m.Code[i].End-at)
	c.MostLocals = max(c.MostLocals, int(s.locals))
	c.MostBlocks = max(c.MostBlocks, int(s.blocks))
	c.DeepestNesting = max(c.DeepestNesting, s.nesting)
	c.LongestTable = max(c.LongestTable, s.table)
	c.FunctionCost = max(c.FunctionCost, cost)
	c.ModuleCost += cost
	if err := atMost("estimated cost of compiling the function", at, cost, g.l.FunctionCost); err != nil {
		return err
	}
	return atMost("estimated cost of compiling the module", at, c.ModuleCost, g.l.ModuleCost)
}

// compileCost estimates the cost of an optimising compiler for the rewritten body; a
// unit is 15 to 100 ns on a machine of 2025, 20 to 30 ns in large programs, and up to
// 210 ns in rows of floating-point operations. It is linear in the instructions,
// quadratic in the blocks and more so in the loops (4,096 nested loops take two
// seconds), and has the products that were measured to hurt: values alive across
// blocks, locals carried through loops and joins, labels, and the operands of calls.
// Locals that are alive in loops cost the square of their number, once for each loop
// and again for each loop around it: 100 nested loops of 1,000 locals, in 9 KB, compile
// for more than 20 seconds. A label of a br_table is a block of its own, and so is the
// check of the fuel that the rewriter writes after each indirect call, and after some
// of the direct ones.
func (s *bodyScan) compileCost() uint64 {
	values := min(s.ops, 20_000)
	return s.ops*24 +
		s.blocks*s.blocks/4 +
		s.loops*s.loops*2 +
		s.blocks*values/256 +
		s.blocks*s.locals*(16+s.locals/128) +
		s.loops*(s.locals*8+values/4) +
		s.loopDepths*s.locals*s.locals/16 +
		s.edges*200 + s.edges*s.edges/1024 +
		s.calls*200 + s.calls*s.calls/256 +
		s.indirect*1800 + s.indirect*s.indirect/8 +
		s.arity*16
}
