package rewrite

import (
	"math"
	"reflect"
	"slices"
	"strconv"

	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/wasm"
)

// sections replaces the sections that change. Data segments leave the module:
// the host copies them faster than the engine does, once, and keeps the image.
func (w *meter) sections(maxPages uint32) error {
	m := w.m
	imports := w.addedImports()
	var err error
	if w.leaves, err = leaves(w.work, m); err != nil {
		return err
	}
	code, err := w.codeSection(maxPages)
	if err != nil {
		return err
	}
	m.SetBody(wasm.SectionCode, code)
	funcs := w.extend(wasm.SectionFunction, w.helperTypes()...)
	m.SetBody(wasm.SectionFunction, funcs)
	m.SetBody(wasm.SectionImport, w.extend(wasm.SectionImport, imports...))
	m.SetBody(wasm.SectionGlobal, w.extend(wasm.SectionGlobal, w.globals()...))
	m.SetBody(wasm.SectionType, w.extend(wasm.SectionType, lists.Map(w.types[len(w.m.Types):], func(t wasm.FuncType) []byte { return t.Append(nil) })...))
	m.SetBody(wasm.SectionExport, w.exports())
	m.SetBody(wasm.SectionStart, nil)
	if len(m.Elements) > 0 {
		m.SetBody(wasm.SectionElement, m.AppendElements(nil, w.moved))
	}
	if len(m.Memories) > 0 {
		body := wasm.AppendU32([]byte{1, 1}, m.Memories[0].Min)
		m.SetBody(wasm.SectionMemory, wasm.AppendU32(body, maxPages))
	}
	m.SetBody(wasm.SectionData, nil)
	m.SetBody(wasm.SectionDataCount, nil)
	m.DropCustom()
	return nil
}

// addedImports are the functions that the rewriter imports, refill first.
func (w *meter) addedImports() [][]byte {
	add := func(name string, t wasm.FuncType) []byte {
		return importOf(RefillModule, name, wasm.ExternFunc, wasm.AppendU32(nil, w.typeIndex(t)))
	}
	added := [][]byte{add(RefillName, wasm.FuncType{})}
	if w.o.Profile {
		added = append(added, add(EnterName, Signature("i:")), add(LeaveName, wasm.FuncType{}))
	}
	return added
}

// extend returns the body of a list section with items added. The existing
// items keep their bytes.
func (w *meter) extend(id wasm.SectionID, items ...[]byte) []byte {
	if s := w.m.Section(id); s != nil {
		return wasm.AppendItems(s.Body, items...)
	}
	return wasm.AppendItems(nil, items...)
}

// globals are the counter, the limit, the depth budget and the flag of refused
// memory, in the order of their indices.
func (w *meter) globals() [][]byte {
	const mutable = 1
	counter := wasm.Asm{byte(wasm.I64), mutable}
	counter.I64(0).Op(wasm.OpEnd)
	number := func(n int32) wasm.Asm {
		a := wasm.Asm{byte(wasm.I32), mutable}
		a.I32(n).Op(wasm.OpEnd)
		return a
	}
	all := [][]byte{counter, counter, number(int32(w.o.Depth)), number(0)}
	if w.o.Explain {
		all = append(all, number(0))
	}
	return all
}

// helperTypes are the type indices of the helpers, in the order of their indices. The helpers for
// bulk memory need a type.
func (w *meter) helperTypes() [][]byte {
	whole := wasm.AppendU32(nil, w.typeIndex(wasm.FuncType{}))
	if len(w.m.Memories) == 0 {
		return append([][]byte{whole}, w.explainTypes()...)
	}
	bulk := wasm.AppendU32(nil, w.typeIndex(bulkType))
	return append([][]byte{whole, bulk, bulk, wasm.AppendU32(nil, w.typeIndex(numberType))}, w.explainTypes()...)
}

// exports are the module's own, the four globals, the module's own mutable
// globals, the function that tells a whole module, and the start function.
func (w *meter) exports() []byte {
	all := slices.Clone(w.m.Exports)
	for i, e := range all {
		if e.Kind == wasm.ExternFunc {
			all[i].Index = w.moved(e.Index)
		}
	}
	add := func(name string, kind wasm.ExternKind, index uint32) {
		all = append(all, wasm.Export{Name: name, Kind: kind, Index: index})
	}
	add(GlobalFuel, wasm.ExternGlobal, w.fuel)
	add(GlobalLimit, wasm.ExternGlobal, w.limit)
	add(GlobalDepth, wasm.ExternGlobal, w.depth)
	add(GlobalRefused, wasm.ExternGlobal, w.refused)
	if w.o.Explain {
		add(GlobalTrap, wasm.ExternGlobal, w.trap)
	}
	for i, g := range w.m.Globals {
		if g.Mutable {
			name := reserved + "global" + strconv.Itoa(i)
			w.mutable = append(w.mutable, name)
			add(name, wasm.ExternGlobal, uint32(i))
		}
	}
	add(ExportWhole, wasm.ExternFunc, w.whole)
	if s := w.m.Start; s != nil {
		add(ExportStart, wasm.ExternFunc, w.moved(*s))
	}
	return wasm.AppendItems(nil, lists.Map(all, func(e wasm.Export) []byte { return e.Append(nil) })...)
}

// room returns b with room for n more bytes, which it holds before it allocates.
func (w *meter) room(b []byte, n int) ([]byte, error) {
	if cap(b)-len(b) >= n {
		return b, nil
	}
	size := max(len(b)+n, cap(b)+cap(b)/4)
	if err := w.work.Hold(size); err != nil {
		return nil, err
	}
	w.work.Release(cap(b)) // of which only b is read now
	return append(make([]byte, 0, size), b...), nil
}

// scratch is how many bytes the meter keeps from one body to the next.
func (w *meter) scratch() int {
	p, n := &w.p, &w.n
	return sizeOf(p.charges) + sizeOf(p.frames) + sizeOf(n.canonical) + sizeOf(n.selects) + sizeOf(n.sources) +
		sizeOf(n.class) + sizeOf(n.seen) + sizeOf(n.locals) + sizeOf(n.stack) + sizeOf(n.frames) + sizeOf(w.spans)
}

func sizeOf[T any](s []T) int { return cap(s) * int(reflect.TypeFor[T]().Size()) }

func (w *meter) codeSection(maxPages uint32) ([]byte, error) {
	helpers := []wasm.Asm{wholeBody}
	if len(w.m.Memories) > 0 {
		helpers = append(helpers, w.fillBody(), w.copyBody(), w.growBody(maxPages))
	}
	helpers = append(helpers, w.explainBodies()...)
	size := 0
	if s := w.m.Section(wasm.SectionCode); s != nil {
		size = len(s.Body)
	}
	section, err := w.room(nil, 1<<10+size+size/3) // also for the helpers
	if err != nil {
		return nil, err
	}
	section = wasm.AppendU32(section, uint32(len(w.m.Code)+len(helpers)))
	var body wasm.Asm
	marked, scratch := 0, 0
	for i := range w.m.Code {
		if body, err = w.function(body[:0], i); err != nil {
			return nil, inFunc(w.work, err, w.m, w.m.NumImportedFuncs()+i)
		}
		if now := cap(body) + w.scratch(); now > scratch { // one body more, whose length is limited
			if err := w.work.Hold(now - scratch); err != nil {
				return nil, err
			}
			scratch = now
		}
		if section, err = w.room(section, 1<<10+len(body)); err != nil {
			return nil, err
		}
		section = wasm.AppendU32(section, uint32(len(body)))
		for ; marked < len(w.spans); marked++ {
			w.spans[marked].rewritten += uint32(len(section))
		}
		section = append(section, body...)
	}
	w.mark(len(section), math.MaxInt32, true)
	for _, h := range helpers {
		section = append(wasm.AppendU32(section, uint32(len(h))), h...)
	}
	return section, nil
}
