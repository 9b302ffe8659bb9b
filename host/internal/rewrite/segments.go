package rewrite

import "github.com/starling-host/starling/internal/wasm"

// Segments are copied at instantiation, before any fuel is counted, so they
// must be plain: active, at a constant place, and within bounds. wazero ignores
// an element segment that is out of bounds instead of trapping.

func (g *gate) checkElements() error {
	m := g.m
	for i := range m.Elements {
		e := &m.Elements[i]
		switch {
		case e.Mode != wasm.Active:
			return refusePassive(e.Pos)
		case int64(e.Table) >= int64(len(m.Tables)):
			return outOfRange(e.Pos, "table", e.Table, len(m.Tables))
		case e.Type != wasm.FuncRef:
			return refuseReference(e.Pos, e.Type)
		}
		g.info.Counts.ElementItems += e.Count
		if err := atMost("items of element segments", e.Pos, uint64(g.info.Counts.ElementItems), uint64(g.l.ElementItems)); err != nil {
			return err
		}
		if err := g.checkPlace(&e.Start, e.Count, uint64(m.Tables[e.Table].Limits.Min), "table entries"); err != nil {
			return err
		}
		if err := g.checkItems(e); err != nil {
			return err
		}
	}
	return nil
}

func (g *gate) checkItems(e *wasm.Element) error {
	funcs := g.m.NumFuncs()
	if err := g.work.Spend(e.Count); err != nil {
		return err
	}
	for item := range g.m.Items(e) {
		switch {
		case item.Op == wasm.OpRefNull && item.Value == uint64(wasm.FuncRef):
		case item.Op != wasm.OpRefFunc:
			return refuse(item.Pos, "", "malformed module: %s where a function must stand", item.Op)
		case item.Value >= uint64(funcs):
			return outOfRange(item.Pos, "function", uint32(item.Value), funcs)
		}
	}
	return nil
}

func (g *gate) checkData() error {
	for i := range g.m.Data {
		d := &g.m.Data[i]
		if d.Mode != wasm.Active {
			return refusePassive(d.Pos)
		}
		if int64(d.Memory) >= int64(len(g.m.Memories)) {
			return outOfRange(d.Pos, "memory", d.Memory, len(g.m.Memories))
		}
		size := uint64(g.info.Memory.Min) * wasm.PageSize
		if err := g.checkPlace(&d.Start, d.End-d.Pos, size, "bytes of memory"); err != nil {
			return err
		}
	}
	g.info.Counts.DataSegments = len(g.m.Data)
	return nil
}

func refusePassive(at int) error {
	return refuse(at, "build without -mbulk-memory passive segments, which threads need", "passive and declarative segments are not allowed")
}

// checkPlace refuses a segment of count items that does not fit into size.
func (g *gate) checkPlace(start *wasm.Const, count int, size uint64, what string) error {
	if err := g.checkConst(start, wasm.I32); err != nil {
		return err
	}
	end := uint64(uint32(start.Value)) + uint64(count)
	if end > size {
		return &Refusal{What: "a segment is out of bounds: " + what, Func: -1, Offset: start.Pos, Limit: size, Value: end}
	}
	return nil
}
