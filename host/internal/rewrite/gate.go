package rewrite

import (
	"errors"
	"fmt"
	"strings"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// gate is the state of one check.
type gate struct {
	work *work.Budget
	m    *wasm.Module
	l    Limits
	info Info
	used features
	scan bodyScan
}

// pass is the gate: it decides whether a module may come near the engine. allowed decides about imports.
// Bytes go from the cheapest question to the dearest, and each answer bounds
// what the next one costs: size, frame, counts, declarations, bodies. So a few
// hostile bytes are refused in microseconds, and a count that the module
// states is compared with the remaining bytes and with a limit before anything
// is allocated for it.
//
// A nil error means that the module stays within l, imports only what the host
// has, uses only instructions that the rewriter knows, and has no index out of
// range. It does not mean that the module is valid: the engine checks operand
// types. All that is visited and kept draws from the budget.
func pass(w *work.Budget, b []byte, l Limits, allowed lookup) (*gate, error) {
	if err := atMost("bytes of the module", -1, uint64(len(b)), uint64(max(l.ModuleBytes, 0))); err != nil {
		return nil, hinted(err, Strip)
	}
	frame, err := wasm.Split(b)
	if err != nil {
		return nil, Malformed(err)
	}
	if err := checkCounts(frame, l); err != nil {
		return nil, err
	}
	m, err := wasm.Decode(w, b)
	if err != nil {
		return nil, Malformed(err)
	}
	declared := len(m.Types) + len(m.Imports) + len(m.Funcs) + len(m.Globals) + len(m.Exports) + len(m.Elements) + len(m.Data)
	if err := w.Spend(declared); err != nil {
		return nil, err
	}
	g := &gate{work: w, m: m, l: l}
	for _, step := range []func() error{
		g.checkTypes,
		func() error { return checkImports(m, l, allowed) },
		g.checkFuncs, g.checkTable, g.checkMemory, g.checkGlobals, g.checkExports,
		g.checkElements, g.checkData, g.checkBodies,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	g.info.Features = (g.used | declaredFeatures(m)).names()
	return g, nil
}

// checkCounts compares the number that each section begins with to its limit,
// before any section is decoded.
func checkCounts(frame *wasm.Module, l Limits) error {
	limits := map[wasm.SectionID]struct {
		what string
		most int
	}{
		wasm.SectionType: {"types", l.Types}, wasm.SectionImport: {"imports", l.Imports}, wasm.SectionFunction: {"functions", l.Functions},
		wasm.SectionTable: {"tables", 1}, wasm.SectionMemory: {"memories", 1}, wasm.SectionGlobal: {"globals", l.Globals},
		wasm.SectionExport: {"exports", l.Exports}, wasm.SectionElement: {"element segments", l.ElementSegments},
		wasm.SectionCode: {"functions", l.Functions}, wasm.SectionData: {"data segments", l.DataSegments},
	}
	for i := range frame.Sections {
		s := &frame.Sections[i]
		limit, listed := limits[s.ID]
		if !listed {
			continue
		}
		r := wasm.NewReader(s.Body, 0, len(s.Body))
		if err := atMost(limit.what, s.Offset, uint64(r.U32()), uint64(max(limit.most, 0))); err != nil {
			return err
		}
	}
	return nil
}

func (g *gate) checkTypes() error {
	at := g.offset(wasm.SectionType)
	for _, t := range g.m.Types {
		if err := atMost("parameters of a function type", at, uint64(len(t.Params)), uint64(g.l.Params)); err != nil {
			return err
		}
		if err := atMost("results of a function type", at, uint64(len(t.Results)), uint64(g.l.Results)); err != nil {
			return err
		}
		for _, ts := range [][]wasm.ValType{t.Params, t.Results} {
			for _, v := range ts {
				if !v.IsNumber() {
					return refuseReference(at, v)
				}
			}
		}
	}
	for i := range g.m.Imports {
		if im := &g.m.Imports[i]; im.Kind == wasm.ExternFunc && int64(im.Type) >= int64(len(g.m.Types)) {
			return outOfRange(im.Offset, "type", im.Type, len(g.m.Types))
		}
	}
	return nil
}

func refuseReference(at int, t wasm.ValType) error {
	return refuse(at, "build without reference types in functions; function pointers in a table are fine",
		"values of type %s are not allowed", t)
}

// outOfRange refuses an index beyond the module's own index space. The check
// is here and not left to the engine, because the rewriter appends to these
// spaces: an index that points past the end could mean the fuel counter.
func outOfRange(at int, what string, index uint32, size int) error {
	return refuse(at, "", "malformed module: %s index %d, but the module has %d", what, index, size)
}

// inRange is outOfRange for an index that is.
func inRange(at int, what string, index uint32, size int) error {
	if int64(index) >= int64(size) {
		return outOfRange(at, what, index, size)
	}
	return nil
}

func (g *gate) offset(id wasm.SectionID) int {
	if s := g.m.Section(id); s != nil {
		return s.Offset
	}
	return -1
}

func (g *gate) checkFuncs() error {
	for _, t := range g.m.Funcs {
		if int64(t) >= int64(len(g.m.Types)) {
			return outOfRange(g.offset(wasm.SectionFunction), "type", t, len(g.m.Types))
		}
	}
	if s := g.m.Start; s != nil {
		if int64(*s) >= int64(g.m.NumFuncs()) {
			return outOfRange(g.offset(wasm.SectionStart), "function", *s, g.m.NumFuncs())
		}
		if t := g.funcType(int(*s)); len(t.Params)+len(t.Results) > 0 {
			return refuse(g.offset(wasm.SectionStart), "", "malformed module: the start function has type %s", t)
		}
		g.info.HasStart = true
	}
	for i := range g.m.Imports { // functions only, checkImports has seen to it
		im := &g.m.Imports[i]
		g.info.Imports = append(g.info.Imports, Import{im.Module, im.Name, g.m.Types[im.Type]})
	}
	return nil
}

// funcType returns the type of a function whose type index was checked.
func (g *gate) funcType(index int) wasm.FuncType {
	return g.m.Types[g.m.FuncTypeIndex(index)]
}

func (g *gate) checkTable() error {
	for _, t := range g.m.Tables {
		if t.Elem != wasm.FuncRef {
			return refuse(t.Offset, "build without reference types", "tables of %s are not allowed", t.Elem)
		}
		if err := atMost("table entries", t.Offset, uint64(t.Limits.Min), uint64(g.l.TableEntries)); err != nil {
			return err
		}
		if t.Limits.HasMax && t.Limits.Max < t.Limits.Min {
			return refuse(t.Offset, "", "malformed module: table of at least %d and at most %d entries", t.Limits.Min, t.Limits.Max)
		}
		g.info.Counts.TableEntries = int(t.Limits.Min)
	}
	return nil
}

func (g *gate) checkMemory() error {
	at := g.offset(wasm.SectionMemory)
	for _, mem := range g.m.Memories {
		d := Memory{Present: true, Min: mem.Min, Max: wasm.MaxPages}
		if mem.HasMax {
			d.Max = mem.Max
		}
		if d.Max > wasm.MaxPages || d.Min > d.Max {
			return refuse(at, "", "malformed module: memory of at least %d and at most %d pages", mem.Min, d.Max)
		}
		g.info.Memory = d
	}
	return nil
}

func (g *gate) checkGlobals() error {
	for i := range g.m.Globals {
		gl := &g.m.Globals[i]
		if !gl.Type.IsNumber() {
			return refuseReference(gl.Offset, gl.Type)
		}
		if err := g.checkConst(&gl.Init, gl.Type); err != nil {
			return err
		}
	}
	return nil
}

// checkConst accepts the constant of the wanted type. There is no other case:
// global.get could only name an imported global.
func (g *gate) checkConst(c *wasm.Const, want wasm.ValType) error {
	has := map[wasm.Op]wasm.ValType{
		wasm.OpI32Const: wasm.I32, wasm.OpI64Const: wasm.I64, wasm.OpF32Const: wasm.F32, wasm.OpF64Const: wasm.F64,
	}[c.Op]
	if has != want {
		return refuse(c.Pos, "", "malformed module: %s where a constant of type %s must stand", c.Op, want)
	}
	return nil
}

// reserved is the prefix of the exports that the rewriter adds.
const reserved = "starling:"

func (g *gate) checkExports() error {
	m := g.m
	seen := make(map[string]bool, len(m.Exports))
	spaces := [...]int{m.NumFuncs(), len(m.Tables), len(m.Memories), len(m.Globals)} // only functions are imported
	for i := range m.Exports {
		e := &m.Exports[i]
		if err := atMost("bytes of an export name", e.Offset, uint64(len(e.Name)), uint64(g.l.NameBytes)); err != nil {
			return err
		}
		switch space := spaces[e.Kind]; {
		case int64(e.Index) >= int64(space):
			return outOfRange(e.Offset, e.Kind.String(), e.Index, space)
		case seen[e.Name]:
			return refuse(e.Offset, "", "malformed module: two exports are named %q", e.Name)
		case strings.HasPrefix(e.Name, reserved):
			return refuse(e.Offset, "rename the export", "the export name %q is reserved", e.Name)
		}
		seen[e.Name] = true
		out := Export{Name: e.Name, Kind: e.Kind}
		if e.Kind == wasm.ExternFunc {
			out.Type = g.funcType(int(e.Index))
		}
		g.info.Exports = append(g.info.Exports, out)
	}
	return nil
}

// Refusal is the reason why a module is not accepted. It is the only kind of
// error that [Rewrite] returns before their budget's context ends.
type Refusal struct {
	What     string // the refused thing: "locals", "ref.func", "malformed module: ..."
	Func     int    // index of the function it is in, imports counted; -1 outside of functions
	FuncName string // its name in the module, or ""
	Offset   int    // of the byte in question, from the start of the module; -1 without a single byte
	Limit    uint64 // the accepted maximum; with Value, zero when no number is exceeded
	Value    uint64 // the module's number
	Hint     string // advice for its author, or ""
}

// Error returns the refusal in one line, without the hint.
func (r *Refusal) Error() string {
	var b strings.Builder
	b.WriteString("rewrite: ")
	if r.Func >= 0 {
		fmt.Fprintf(&b, "function %d", r.Func)
		if r.FuncName != "" {
			fmt.Fprintf(&b, " %q", r.FuncName)
		}
		b.WriteString(": ")
	}
	b.WriteString(r.What)
	if r.Value > r.Limit {
		fmt.Fprintf(&b, ": %d, the limit is %d", r.Value, r.Limit)
	}
	if r.Offset >= 0 {
		fmt.Fprintf(&b, " (at byte %#x)", r.Offset)
	}
	return b.String()
}

// Advice implements [hint.Hinted].
func (r *Refusal) Advice() string { return r.Hint }

// refuse makes a refusal of something that is not allowed at all.
func refuse(offset int, hint, format string, args ...any) *Refusal {
	return &Refusal{What: fmt.Sprintf(format, args...), Func: -1, Offset: offset, Hint: hint}
}

// atMost refuses value when it is over limit.
func atMost(what string, offset int, value, limit uint64) error {
	if value <= limit {
		return nil
	}
	return &Refusal{What: "too many or too large: " + what, Func: -1, Offset: offset, Limit: limit, Value: value}
}

// hinted adds a hint for the module's author to a refusal.
func hinted(err error, hint string) error {
	var r *Refusal
	if errors.As(err, &r) {
		r.Hint = hint
	}
	return err
}

// Malformed turns the error of a decoder, or of a budget that is used up, into a refusal.
func Malformed(err error) error {
	if errors.Is(err, work.ErrExceeded) {
		return refuse(-1, "remove what repeats: the same few bytes, again and again, become many more", "%v", err)
	}
	var f *wasm.FormatError
	if err == nil || !errors.As(err, &f) {
		return err
	}
	what := f.Msg
	if f.Feature == "" {
		what = "malformed module: " + what
	}
	return &Refusal{What: what, Func: -1, Offset: f.Offset, Hint: cureOfFeature[f.Feature]}
}

// inFunc adds to a refusal which function it is in. The budget has to suffice for the names.
func inFunc(w *work.Budget, err error, m *wasm.Module, index int) error {
	var r *Refusal
	if errors.As(err, &r) {
		r.Func = index
		if names := m.Custom("name"); names != nil && w.Spend(len(names.Body)) == nil {
			r.FuncName = m.FuncName(index)
		}
	}
	return err
}
