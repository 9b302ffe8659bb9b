package wit

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The most core values that parameters and a result are passed as. What has more is passed by an
// address.
const (
	maxFlatParams  = 16
	maxFlatResults = 1
)

// flat returns the core types of the parameters and of the result: i, I, f and F for i32, i64, f32
// and f64.
func (f *Func) flat() (params, result string) {
	for _, p := range f.Params {
		params = clip(params + flat(p.Type))
	}
	return params, clip(flat(f.Result))
}

// clip keeps a flat form short, which otherwise doubles with each of some types.
func clip(s string) string { return s[:min(len(s), maxFlatParams+1)] }

func (f *Func) indirect() bool { params, _ := f.flat(); return len(params) > maxFlatParams }

func (f *Func) byAddress() bool { _, result := f.flat(); return len(result) > maxFlatResults }

func flat(t *Type) string {
	if t == nil {
		return ""
	}
	switch t.Kind {
	case "u64", "s64":
		return "I"
	case "f32":
		return "f"
	case "f64":
		return "F"
	case "string", "list":
		return "ii"
	case "def":
		if d := t.Def; d.flat == "" {
			d.flat = flat(d.Type)
		}
		return t.Def.flat
	case "record", "tuple":
		out := ""
		for _, f := range t.Items {
			if out += flat(f.Type); len(out) > maxFlatParams {
				break
			}
		}
		return clip(out)
	case "variant", "result", "option":
		out := ""
		for _, f := range append([]Field{{Type: t.Elem}}, t.Items...) {
			out = join(out, flat(f.Type))
		}
		return clip("i" + out)
	}
	return "i"
}

// join returns core types that hold either of two lists of them.
func join(a, b string) string {
	out := []byte(a)
	for i := range len(b) {
		switch {
		case i >= len(a):
			out = append(out, b[i])
		case a[i] == b[i]:
		case strings.ContainsRune("if", rune(a[i])) && strings.ContainsRune("if", rune(b[i])):
			out[i] = 'i'
		default:
			out[i] = 'I'
		}
	}
	return string(out)
}

func uleb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func sleb(n int) []byte {
	if n < 64 {
		return []byte{byte(n)}
	}
	return append([]byte{byte(n&0x7f | 0x80)}, sleb(n>>7)...)
}

func name(s string) []byte { return append(uleb(len(s)), s...) }

// vec joins items, and puts their number before them.
func vec(items ...[]byte) []byte { return append(uleb(len(items)), slices.Concat(items...)...) }

// external is the name of an import or export.
func external(s string) []byte { return append([]byte{0}, name(s)...) }

// encoder writes a component, and counts its index spaces.
type encoder struct {
	out                                                []byte
	w                                                  *World
	main                                               scope
	insts                                              map[*unit]int
	funcs, instances, components, coreFuncs, coreInsts int
	units                                              []*unit
	instanceOf                                         int // of the module
}

// scope writes types of the component, of an instance that it imports, or of one that it exports.
type scope struct {
	declare func(form byte, body []byte)
	foreign func(d *Def) int        // returns the index of the type that d stands for
	named   func(d *Def, i int) int // gives a type its name
	types   int
	known   map[*Def]int
}

func (e *encoder) section(id byte, body []byte) {
	e.out = append(append(append(e.out, id), uleb(len(body))...), body...)
}

// item writes a section of one item, or a custom section.
func (e *encoder) item(id byte, body ...[]byte) {
	e.section(id, append([]byte{1}, slices.Concat(body...)...))
}

// Sections of a component, sorts of items, and forms of types.
const (
	sectionCoreInstance, sectionComponent, sectionInstance, sectionAlias, sectionType, sectionCanon, sectionImport, sectionExport = 2, 4, 5, 6, 7, 8, 10, 11

	sortFunc, sortType, sortInstance          = 1, 3, 5
	coreFunc, coreTable, coreMemory, coreInst = 0, 1, 2, 0x12
	formAlias, formType, formExport           = 2, 1, 4
)

const header = "\x00asm\x0d\x00\x01\x00"

// Component returns the component that a core module becomes, which exports the functions of the
// world under the names of the canonical ABI. imports are what the module imports, module and name,
// and exports what it exports.
func (w *World) Component(module []byte, imports [][2]string, exports []string) ([]byte, error) {
	for _, ex := range w.Exports {
		for _, f := range ex.functions() {
			if core := strings.TrimPrefix(ex.Name+"#"+f.Name, f.Name+"#"); !slices.Contains(exports, core) {
				return nil, fmt.Errorf("the module does not export %s", core)
			}
		}
	}
	e := &encoder{out: []byte(header), w: w, insts: map[*unit]int{}, units: w.units()}
	e.main.declare = e.types
	e.main.known = map[*Def]int{}
	e.main.foreign = func(d *Def) int { return e.alias(d.Used, false) }
	e.main.named = func(d *Def, i int) int {
		e.item(sectionImport, external(d.Name), []byte{sortType, 0}, uleb(i))
		e.main.types++
		return e.main.types - 1
	}
	for _, u := range e.units {
		if !u.exported {
			e.importUnit(u)
		}
	}
	for _, d := range w.Defs {
		if plain(d) {
			e.main.def(d)
		}
	}
	var needed []needed
	for _, im := range imports {
		n, ok := e.imported(im[0], im[1])
		if !ok {
			return nil, fmt.Errorf("the module imports %s of %s, which is not a function of the world %s", im[1], im[0], w.Name)
		}
		needed = append(needed, n)
	}
	e.section(1, module)
	memory := e.core(needed)
	for _, ex := range w.Exports {
		if ex.Func != nil {
			f := e.lift(ex.Name, ex.Func, memory)
			e.item(sectionExport, external(ex.Name), []byte{sortFunc}, uleb(f), []byte{0})
			e.funcs++ // the export has an index of its own
		}
	}
	for _, u := range e.units {
		if u.exported {
			e.exportUnit(u, memory)
		}
	}
	own, interfaces := w.documentation()
	for _, section := range []struct {
		name string
		docs object
	}{{"package-docs", object{"worlds": object{"root": own}}}, {DocsSection, object{"interfaces": interfaces}}} {
		docs, err := json.Marshal(section.docs)
		if err != nil {
			return nil, err
		}
		e.section(0, slices.Concat(name(section.name), []byte{1}, docs))
	}
	return e.out, nil
}

// DocsSection is the custom section with the comments on the functions of interfaces. In
// package-docs, which has the other comments, a component cannot have any on an interface of
// another package.
const DocsSection = "starling:docs"

// value returns a reference to a type.
func (s *scope) value(t *Type) []byte {
	if at := slices.Index(strings.Fields(primitives), t.Kind); at >= 0 {
		return []byte{byte(0x7f - at)}
	}
	if t.Def != nil {
		return sleb(s.def(t.Def))
	}
	return sleb(s.define(t))
}

// define writes the structure of a type.
func (s *scope) define(t *Type) int {
	maybe := func(t *Type) []byte {
		if t == nil {
			return []byte{0}
		}
		return append([]byte{1}, s.value(t)...)
	}
	var body []byte
	var items [][]byte
	for _, f := range t.Items {
		switch t.Kind {
		case "record":
			items = append(items, append(name(f.Name), s.value(f.Type)...))
		case "variant":
			items = append(items, slices.Concat(name(f.Name), maybe(f.Type), []byte{0}))
		case "tuple":
			items = append(items, s.value(f.Type))
		case "enum", "flags":
			items = append(items, name(f.Name))
		}
	}
	form := map[string]byte{"record": 0x72, "variant": 0x71, "list": 0x70, "tuple": 0x6f, "flags": 0x6e, "enum": 0x6d, "option": 0x6b, "result": 0x6a}[t.Kind]
	switch t.Kind {
	case "list", "option":
		body = s.value(t.Elem)
	case "result":
		body = append(maybe(t.Items[0].Type), maybe(t.Items[1].Type)...)
	default:
		body = vec(items...)
	}
	if form == 0 { // another name of a primitive type
		body = s.value(t)
	} else {
		body = append([]byte{form}, body...)
	}
	return s.add(formType, body)
}

func (s *scope) add(form byte, body []byte) int {
	s.declare(form, body)
	s.types++
	return s.types - 1
}

// def returns the index of a named type, which it writes if it is new here.
func (s *scope) def(d *Def) int {
	if i, ok := s.known[d]; ok {
		return i
	}
	var i int
	switch {
	case d.Used != nil:
		i = s.foreign(d)
	case d.Type.Kind == "def": // another name
		i = s.def(d.Type.Def)
	default:
		i = s.define(d.Type)
	}
	s.known[d] = s.named(d, i)
	return s.known[d]
}

// types writes a type or an alias of the component.
func (e *encoder) types(form byte, body []byte) {
	e.item(map[byte]byte{formType: sectionType, formAlias: sectionAlias}[form], body)
}

// alias returns the index of a type of an instance: an exported one, if the component has one and
// an exported one may use it.
func (e *encoder) alias(d *Def, exported bool) int {
	u := e.unit(d.In, exported && e.w.exports(d.In))
	return e.main.add(formAlias, slices.Concat([]byte{sortType, 0}, uleb(e.insts[u]), name(d.Name)))
}

func (e *encoder) unit(i *Interface, exported bool) *unit {
	at := slices.IndexFunc(e.units, func(u *unit) bool { return u.Interface == i && u.exported == exported })
	return e.units[at]
}

// function writes the type of a function.
func (s *scope) function(f *Func) int {
	var params [][]byte
	for _, p := range f.Params {
		params = append(params, append(name(p.Name), s.value(p.Type)...))
	}
	result := []byte{1, 0}
	if f.Result != nil {
		result = append([]byte{0}, s.value(f.Result)...)
	}
	return s.add(formType, slices.Concat([]byte{0x40}, vec(params...), result))
}

// importUnit imports an interface: its types, and the functions that a tool can call.
func (e *encoder) importUnit(u *unit) {
	var declarations [][]byte
	s := &scope{known: map[*Def]int{}, declare: func(form byte, body []byte) {
		declarations = append(declarations, append([]byte{form}, body...))
	}}
	s.foreign = func(d *Def) int {
		return s.add(formAlias, slices.Concat([]byte{sortType, 2, 1}, uleb(e.alias(d.Used, false))))
	}
	s.named = func(d *Def, i int) int {
		return s.add(formExport, slices.Concat(external(d.Name), []byte{sortType, 0}, uleb(i)))
	}
	for _, d := range u.Defs {
		if plain(d) {
			s.def(d)
		}
	}
	for _, f := range u.funcs {
		i := s.function(f)
		s.declare(formExport, slices.Concat(external(f.Name), []byte{sortFunc}, uleb(i)))
	}
	t := e.main.add(formType, append([]byte{0x42}, vec(declarations...)...))
	e.item(sectionImport, external(u.name), []byte{sortInstance}, uleb(t))
	e.insts[u] = e.instances
	e.instances++
}

// needed is an imported function that the module uses.
type needed struct {
	*Func
	module string
	unit   *unit // or nil
}

func (e *encoder) imported(module, name string) (needed, bool) {
	for _, u := range e.units {
		for _, f := range u.funcs {
			if !u.exported && u.name == module && f.Name == name {
				return needed{f, module, u}, true
			}
		}
	}
	for _, im := range e.w.Imports {
		if im.Func != nil && module == "$root" && im.Name == name {
			return needed{im.Func, module, nil}, true
		}
	}
	return needed{}, false
}

// core instantiates the module, and returns the options for what it lifts. Imported functions need
// the memory of the module, which needs the functions. So it is given functions that call what a
// table has, and the table is filled afterwards.
func (e *encoder) core(all []needed) (options [][]byte) {
	aliasCore := func(sort byte, instance int, what string) {
		e.item(sectionAlias, []byte{0, sort, 1}, uleb(instance), name(what))
	}
	var arguments [][]byte
	if len(all) > 0 {
		e.section(1, shim(all))
		e.section(1, fixup(all))
		e.item(sectionCoreInstance, []byte{0, 1, 0})
		shimInstance := e.coreInsts
		e.coreInsts++
		modules := map[string][][]byte{}
		var order []string
		for i, n := range all {
			aliasCore(coreFunc, shimInstance, fmt.Sprint(i))
			if modules[n.module] == nil {
				order = append(order, n.module)
			}
			modules[n.module] = append(modules[n.module], slices.Concat(name(n.Name), []byte{coreFunc}, uleb(e.coreFuncs)))
			e.coreFuncs++
		}
		for _, module := range order {
			e.item(sectionCoreInstance, []byte{1}, vec(modules[module]...))
			arguments = append(arguments, slices.Concat(name(module), []byte{coreInst}, uleb(e.coreInsts)))
			e.coreInsts++
		}
	}
	e.item(sectionCoreInstance, []byte{0, 0}, vec(arguments...))
	main := e.coreInsts
	e.coreInsts++
	aliasCore(coreMemory, main, "memory")
	aliasCore(coreFunc, main, "cabi_realloc")
	options = [][]byte{{0}, {3, 0}, append([]byte{4}, uleb(e.coreFuncs)...)}
	e.coreFuncs++
	if len(all) > 0 {
		aliasCore(coreTable, main-len(arguments)-1, "$imports")
		items := [][]byte{append(name("$imports"), coreTable, 0)}
		for i, n := range all {
			f := 0
			if n.unit != nil {
				e.item(sectionAlias, []byte{sortFunc, 0}, uleb(e.insts[n.unit]), name(n.Name))
			} else {
				t := e.main.function(n.Func)
				e.item(sectionImport, external(n.Name), []byte{sortFunc}, uleb(t))
			}
			f = e.funcs
			e.funcs++
			e.item(sectionCanon, []byte{1, 0}, uleb(f), vec(options...))
			items = append(items, slices.Concat(name(fmt.Sprint(i)), []byte{coreFunc}, uleb(e.coreFuncs)))
			e.coreFuncs++
		}
		e.item(sectionCoreInstance, []byte{1}, vec(items...))
		e.item(sectionCoreInstance, []byte{0, 2}, vec(slices.Concat(name(""), []byte{coreInst}, uleb(e.coreInsts))))
		e.coreInsts += 2
	}
	e.instanceOf = main
	return options
}

// lift makes a function of an export of the module.
func (e *encoder) lift(export string, f *Func, options [][]byte) int {
	t := e.main.function(f)
	alias := func(export string) []byte {
		e.item(sectionAlias, []byte{0, coreFunc, 1}, uleb(e.instanceOf), name(export))
		e.coreFuncs++
		return uleb(e.coreFuncs - 1)
	}
	core := alias(export)
	options = slices.Clone(options)
	if f.byAddress() {
		options = append(options, append([]byte{5}, alias("cabi_post_"+export)...))
	}
	e.item(sectionCanon, []byte{0, 0}, core, vec(options...), uleb(t))
	e.funcs++
	return e.funcs - 1
}

// exportUnit exports an instance with the types and functions of an interface. It is an instance of
// a component that imports them and exports them again, since each export is a type of its own.
func (e *encoder) exportUnit(u *unit, options [][]byte) {
	s, inner := &e.main, &encoder{out: []byte(header)}
	s.known = map[*Def]int{}
	s.foreign = func(d *Def) int { return e.alias(d.Used, true) }
	s.named = func(_ *Def, i int) int { return i }
	var arguments [][]byte
	in := &inner.main
	in.declare, in.known = inner.types, map[*Def]int{}
	in.foreign = func(d *Def) int { return in.def(d.Used) }
	in.named = func(d *Def, i int) int {
		if d.Used != nil {
			return i
		}
		export := fmt.Sprint("import-type-", d.Name, len(arguments)) // two interfaces can have the same name
		inner.item(sectionImport, external(export), []byte{sortType, 0}, uleb(i))
		in.types++
		outer := 0
		if d.In == u.Interface {
			outer = s.def(d)
		} else {
			outer = e.alias(d, true)
		}
		arguments = append(arguments, slices.Concat(name(export), []byte{sortType}, uleb(outer)))
		return in.types - 1
	}
	for _, d := range u.Defs {
		if plain(d) {
			in.def(d)
		}
	}
	for _, f := range u.funcs {
		inner.item(sectionImport, external("import-func-"+f.Name), []byte{sortFunc}, uleb(in.function(f)))
		arguments = append(arguments, slices.Concat(name("import-func-"+f.Name), []byte{sortFunc}, uleb(e.lift(u.name+"#"+f.Name, f, options))))
	}
	maps.DeleteFunc(in.known, func(d *Def, _ int) bool { return d.In == u.Interface })
	in.named = func(d *Def, i int) int {
		inner.item(sectionExport, external(d.Name), []byte{sortType}, uleb(i), []byte{0})
		in.types++
		return in.types - 1
	}
	for _, d := range u.Defs {
		if plain(d) {
			in.def(d)
		}
	}
	for i, f := range u.funcs {
		inner.item(sectionExport, external(f.Name), []byte{sortFunc}, uleb(i), []byte{1, sortFunc}, uleb(in.function(f)))
	}
	e.section(sectionComponent, inner.out)
	e.item(sectionInstance, []byte{0}, uleb(e.components), vec(arguments...))
	e.components++
	e.item(sectionExport, external(u.name), []byte{sortInstance}, uleb(e.instances), []byte{0})
	e.insts[u] = e.instances + 1 // that of the export
	e.instances += 2
}

// shim returns a module whose functions call the entries of a table, and fixup one that fills it.
func shim(all []needed) []byte {
	var functions, exports, codes [][]byte
	types := coreTypes(all)
	for i, n := range all {
		functions = append(functions, uleb(i))
		exports = append(exports, slices.Concat(name(fmt.Sprint(i)), []byte{coreFunc}, uleb(i)))
		code := []byte{0}
		for p := range n.core() {
			code = append(append(code, 0x20), uleb(p)...)
		}
		code = slices.Concat(code, []byte{0x41}, sleb(i), []byte{0x11}, uleb(i), []byte{0, 0x0b})
		codes = append(codes, append(uleb(len(code)), code...))
	}
	e := &encoder{out: []byte("\x00asm\x01\x00\x00\x00")}
	e.section(1, types)
	e.section(3, vec(functions...))
	e.section(4, slices.Concat([]byte{1, 0x70, 1}, uleb(len(all)), uleb(len(all))))
	e.section(7, vec(append(exports, append(name("$imports"), coreTable, 0))...))
	e.section(10, vec(codes...))
	return e.out
}

func fixup(all []needed) []byte {
	imports := [][]byte{slices.Concat(name(""), name("$imports"), []byte{coreTable, 0x70, 1}, uleb(len(all)), uleb(len(all)))}
	var functions [][]byte
	for i := range all {
		imports = append(imports, slices.Concat(name(""), name(fmt.Sprint(i)), []byte{coreFunc}, uleb(i)))
		functions = append(functions, uleb(i))
	}
	e := &encoder{out: []byte("\x00asm\x01\x00\x00\x00")}
	e.section(1, coreTypes(all))
	e.section(2, vec(imports...))
	e.section(9, slices.Concat([]byte{1, 0, 0x41, 0, 0x0b}, vec(functions...)))
	return e.out
}

var coreType = map[rune]byte{'i': 0x7f, 'I': 0x7e, 'f': 0x7d, 'F': 0x7c}

// core returns the core parameters of an imported function.
func (n needed) core() string {
	params, _ := n.flat()
	if n.indirect() {
		params = "i"
	}
	if n.byAddress() {
		params += "i"
	}
	return params
}

func coreTypes(all []needed) []byte {
	var types [][]byte
	for _, n := range all {
		t := append([]byte{0x60}, uleb(len(n.core()))...)
		for _, c := range n.core() {
			t = append(t, coreType[c])
		}
		_, result := n.flat()
		if result == "" || n.byAddress() {
			t = append(t, 0)
		} else {
			t = append(t, 1, coreType[rune(result[0])])
		}
		types = append(types, t)
	}
	return vec(types...)
}

type object = map[string]any

// documentation returns the comments on the functions of the world and on those of its interfaces,
// in the form of the section package-docs.
func (w *World) documentation() (own, interfaces object) {
	comments := func(all []*Func) object {
		out := object{}
		for _, f := range all {
			if f.Doc != "" {
				out[f.Name] = object{"docs": f.Doc}
			}
		}
		return out
	}
	var funcs []*Func
	interfaces = object{}
	for _, e := range w.Exports {
		if e.Func != nil {
			funcs = append(funcs, e.Func)
		} else {
			interfaces[e.Interface.Name] = object{"funcs": comments(e.Interface.Funcs)}
		}
	}
	return object{"func_exports": comments(funcs)}, interfaces
}
