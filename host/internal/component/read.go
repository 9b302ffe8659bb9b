package component

import (
	"errors"
	"fmt"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// maxNesting bounds components in components and types in types, as they are instantiated and not
// only as they are written. It protects the stack: each level is a few calls of this package. What
// reading costs is bounded by the budget.
const maxNesting = 100

// What one thing of a kind holds in memory, at most: with its part of the lists and maps that have it.
const (
	itemBytes  = 64  // in an index space
	namedBytes = 192 // under a name in a map, without the bytes of the name
	typeBytes  = 320 // a value type
	scopeBytes = 1 << 10
	funcBytes  = 512 // a function of the joined module, without its code
)

// coreInstance is an instance of a core module, or a bundle of exports.
type coreInstance struct {
	module []byte                   // of a core module, else nil
	number int                      // among the instances of modules
	args   map[string]*coreInstance // what its imports are resolved with
	inline map[string]coreItem      // of a bundle
}

// coreItem is an entity of core WebAssembly: a function, or what an instance exports under a
// name.
type coreItem struct {
	kind wasm.ExternKind
	fn   *coreFunc
	inst *coreInstance
	name string
}

// builtin says what a core function is: its number is that of the canonical definition in the
// binary format, and of an export one that no definition has.
type builtin int

const (
	builtinExport     builtin = -1
	builtinLower      builtin = 0x01
	builtinNew        builtin = 0x02
	builtinDrop       builtin = 0x03
	builtinRep        builtin = 0x04
	builtinDropAsync  builtin = 0x07 // read as builtinDrop
	builtinReturn     builtin = 0x09
	builtinContextGet builtin = 0x0a
	builtinContextSet builtin = 0x0b
	builtinSetNew     builtin = 0x1f
	builtinSetPoll    builtin = 0x21
)

// coreFunc is a core function: an export of an instance, or a canonical definition.
type coreFunc struct {
	kind   builtin
	export coreItem   // of an export
	fn     *function  // that is lowered
	opts   options    // of the lowering
	res    *resource  // of a builtin of resources
	result *valueType // of task.return
	slot   uint32     // of context.get and context.set
	owner  int        // the component instance that defines it
}

// options are those of a lifted or lowered function.
type options struct {
	encoding                byte // of strings; 0 is UTF-8
	realloc, post, callback *coreFunc
	async                   bool
}

// function is a function of the component model: imported from outside, or lifted.
type function struct {
	iface, name string // of an import
	t           *funcType
	lift        *coreFunc
	opts        options
	owner       int // the component instance that lifts it
}

func (f *function) String() string { return f.iface + "#" + f.name }

// instance is a component instance: its exports.
type instance struct {
	names []string
	items map[string]item
}

func (i *instance) add(name string, it item) {
	if _, ok := i.items[name]; ok {
		failf("", "two exports are named %q", name)
	}
	i.names, i.items[name] = append(i.names, name), it
}

// item is an entity of the component model. Its sort is the byte of the binary format.
type item struct {
	sort byte
	v    any // []byte, *function, *valueType, *funcType, *resource, *section or *instance
}

const (
	sortCoreModule = 0
	sortFunc       = 1
	sortType       = 3
	sortComponent  = 4
	sortInstance   = 5
)

// sortNames name the kinds of items that a component can have.
var sortNames = map[byte]string{sortCoreModule: "core module", sortFunc: "function", sortType: "type", sortComponent: "component", sortInstance: "instance"}

// section is a part of the binary that is read each time that it is instantiated: the body of a
// component, or the declarations of an instance type.
type section struct {
	pos, end int
	scope    *scope
	isType   bool
}

// scope holds the index spaces of a component that is being instantiated, or of a type with
// declarations.
type scope struct {
	*reading
	up      *scope
	number  int             // of the component instance
	nesting int             // of the instances and types that are being read
	args    map[string]item // nil: imports come from the outside
	out     *instance

	core      [wasm.ExternGlobal + 1][]coreItem
	coreInsts []*coreInstance
	items     [sortInstance + 1][]any // by their sort
}

// reading is what a component comes to once its instantiation is followed as far as nothing
// runs.
type reading struct {
	budget  *work.Budget
	buf     []byte
	parts   []*coreInstance // instances of core modules, in their order
	imports []string
	parents []int // of component instances: the one that instantiates it, or -1
	tasks   bool  // it has context.get or context.set
}

// failure is the panic of a component that is refused; Link recovers it.
type failure struct{ *rewrite.Refusal }

// exhausted is the panic at the end of the budget, or of its context.
type exhausted struct{ error }

// spend charges n items that are visited.
func (l *reading) spend(n int) {
	if err := l.budget.Spend(n); err != nil {
		panic(exhausted{err})
	}
}

// hold charges n bytes, which are kept until the component is linked.
func (l *reading) hold(n int) {
	if err := l.budget.Hold(n); err != nil {
		panic(exhausted{err})
	}
}

// count reads the length of a list whose items take least bytes in the component and held bytes in
// memory, and charges for them.
func (l *reading) count(r *wasm.Reader, what string, least, held int) int {
	n := r.Count(what, least)
	l.spend(n)
	l.hold(n * held)
	return n
}

// text charges for a name, which is compared and kept.
func (l *reading) text(name string) string {
	l.spend(1 + len(name)/8)
	l.hold(len(name))
	return name
}

func failf(hint, format string, args ...any) { panic(failure{refusal(hint, format, args...)}) }

func refusal(hint, format string, args ...any) *rewrite.Refusal {
	const most = 1_000 // bytes, since names are the component's
	return &rewrite.Refusal{What: display.Clip("component: "+fmt.Sprintf(format, args...), most), Func: -1, Offset: -1, Hint: hint}
}

func malformed(r *wasm.Reader) {
	if err := r.Err(); err != nil {
		failf("", "%v", err)
	}
}

// unreadable refuses a core module for an error of its decoder, if there is one.
func unreadable(name string, err error) {
	if _, malformed := errors.AsType[*wasm.FormatError](err); err != nil && !malformed {
		panic(exhausted{err})
	}
	if r, ok := errors.AsType[*rewrite.Refusal](rewrite.Malformed(err)); ok {
		failf(r.Hint, "%s: %s", name, r.What)
	}
}

func at[T any](list []T, i uint32, what string) T {
	if int64(i) >= int64(len(list)) {
		failf("", "malformed: %s index %d, but there are %d", what, i, len(list))
	}
	return list[i]
}

// entity is a type of one of several kinds.
func entity[T any](s *scope, i uint32, what string) T {
	v, ok := s.get(sortType, i).v.(T)
	if !ok {
		failf("", "malformed: type %d is not %s", i, what)
	}
	return v
}

// within returns the scope of a component or type that is read next, in one of this nesting.
func (l *reading) within(nesting int, up *scope) *scope {
	if nesting++; nesting > maxNesting {
		failf("", "it has components or types of instances that are nested deeper than %d", maxNesting)
	}
	l.hold(scopeBytes)
	return &scope{reading: l, up: up, nesting: nesting, out: &instance{items: map[string]item{}}}
}

// component follows the instantiation of a component, in another one of this nesting, and returns
// what it exports.
func (l *reading) component(c *section, args map[string]item, parent, nesting int) *instance {
	s := l.within(nesting, c.scope)
	s.number, s.args = len(l.parents), args
	l.parents = append(l.parents, parent)
	r := wasm.NewReader(l.buf, c.pos, c.end)
	for r.Len() > 0 {
		l.spend(1)
		id, size := r.Byte(), r.U32()
		start := r.Pos()
		r.Bytes(size)
		malformed(&r)
		s.section(id, start, r.Pos())
	}
	malformed(&r)
	return s.out
}

func (s *scope) section(id byte, start, end int) {
	var read func(*wasm.Reader)
	switch id {
	case 0:
		return
	case 1:
		s.hold(itemBytes)
		s.push(item{sortCoreModule, s.buf[start:end]})
		return
	case 2:
		read = s.coreInstance
	case 3:
		return // types of core modules: the modules have their own
	case 4:
		if !wasm.IsComponent(s.buf[start:end]) {
			failf("", "malformed: a nested component without a header")
		}
		s.hold(itemBytes)
		s.push(item{sortComponent, &section{pos: start + 8, end: end, scope: s}})
		return
	case 5:
		read = s.instance
	case 6:
		read = s.alias
	case 7:
		read = func(r *wasm.Reader) { s.push(item{sortType, s.define(r)}) }
	case 8:
		read = s.canon
	case 10:
		read = s.importItem
	case 11:
		read = s.exportItem
	default:
		failf("build it without values", "it has a section %d, which holds values", id)
	}
	r := wasm.NewReader(s.buf, start, end)
	for n := s.count(&r, "items", 1, itemBytes); n > 0 && r.Err() == nil; n-- {
		read(&r)
	}
	malformed(&r)
	if r.Len() > 0 {
		failf("", "malformed: section %d has %d bytes too many", id, r.Len())
	}
}

// named reads a list of names, each followed by what item reads.
func named[T any](l *reading, r *wasm.Reader, item func(name string) T) map[string]T {
	all := map[string]T{}
	for n := l.count(r, "arguments", 3, namedBytes); n > 0 && r.Err() == nil; n-- {
		key := l.text(r.Name())
		if _, ok := all[key]; ok {
			failf("", "malformed: two arguments are named %q", key)
		}
		all[key] = item(key)
	}
	return all
}

func (s *scope) coreInstance(r *wasm.Reader) {
	i := &coreInstance{}
	switch form := r.Byte(); form {
	case 0:
		i.module = s.get(sortCoreModule, r.U32()).v.([]byte)
		i.args = named(s.reading, r, func(string) *coreInstance {
			r.Byte()
			return at(s.coreInsts, r.U32(), "core instance")
		})
		s.hold(scopeBytes)
		i.number = len(s.parts)
		s.parts = append(s.parts, i)
	case 1:
		i.inline = named(s.reading, r, func(string) coreItem { return s.coreItem(wasm.ExternKind(r.Byte()), r.U32()) })
	default:
		r.Failf("unknown form %d of a core instance", form)
	}
	s.coreInsts = append(s.coreInsts, i)
}

func (s *scope) coreItem(kind wasm.ExternKind, i uint32) coreItem {
	if int(kind) >= len(s.core) {
		failf("", "a core item of sort %d is not supported (4 is exception handling)", kind)
	}
	return at(s.core[kind], i, "core "+kind.String())
}

func (s *scope) coreFunc(r *wasm.Reader) *coreFunc { return s.coreItem(wasm.ExternFunc, r.U32()).fn }

// export returns an export of a core instance. Whether a module has it shows when it is joined.
func (i *coreInstance) export(kind wasm.ExternKind, name string) coreItem {
	it := coreItem{kind: kind, inst: i, name: name}
	if i.module == nil {
		var ok bool
		if it, ok = i.inline[name]; !ok || it.kind != kind {
			failf("", "malformed: a core instance does not export the %s %q", kind, name)
		}
	} else if kind == wasm.ExternFunc {
		it.fn = &coreFunc{kind: builtinExport, export: it}
	}
	return it
}

func (s *scope) push(it item) { s.items[it.sort] = append(s.items[it.sort], it.v) }

// item reads a sort and an index.
func (s *scope) item(r *wasm.Reader) item {
	sort := r.Byte()
	if sort == sortCoreModule && r.Byte() != 0x11 {
		failf("", "malformed: a core item that is not a module")
	}
	return s.get(sort, r.U32())
}

func (s *scope) get(sort byte, i uint32) item {
	what := sortNames[sort]
	if what == "" {
		failf("", "malformed: an item of sort %d", sort)
	}
	return item{sort, at(s.items[sort], i, what)}
}

func (s *scope) instance(r *wasm.Reader) {
	switch form := r.Byte(); form {
	case 0:
		c := s.get(sortComponent, r.U32()).v.(*section)
		args := named(s.reading, r, func(string) item { return s.item(r) })
		malformed(r)
		s.push(item{sortInstance, s.component(c, args, s.number, s.nesting)})
	case 1:
		i := &instance{items: map[string]item{}}
		for n := s.count(r, "exports", 3, namedBytes); n > 0 && r.Err() == nil; n-- {
			i.add(s.externName(r), s.item(r))
		}
		s.push(item{sortInstance, i})
	default:
		r.Failf("unknown form %d of an instance", form)
	}
}

func (s *scope) externName(r *wasm.Reader) string {
	form := r.Byte()
	name := s.text(r.Name())
	switch form {
	case 0, 1:
	case 2:
		for n := s.count(r, "attributes", 2, 0); n > 0 && r.Err() == nil; n-- {
			r.Byte()
			s.text(r.Name())
		}
	default:
		r.Failf("unknown form %d of a name", form)
	}
	return name
}

func (s *scope) alias(r *wasm.Reader) {
	sort, core := r.Byte(), byte(0)
	if sort == 0 {
		core = r.Byte()
	}
	switch form := r.Byte(); form {
	case 0:
		i, name := s.get(sortInstance, r.U32()).v.(*instance), s.text(r.Name())
		it, ok := i.items[name]
		if !ok || it.sort != sort {
			failf("", "malformed: an instance does not export %q as an item of sort %d", name, sort)
		}
		s.push(it)
	case 1:
		i := at(s.coreInsts, r.U32(), "core instance")
		s.hold(funcBytes)
		it := i.export(wasm.ExternKind(core), s.text(r.Name()))
		if int(it.kind) >= len(s.core) {
			failf("", "a core item of sort %d is not supported (4 is exception handling)", it.kind)
		}
		s.core[it.kind] = append(s.core[it.kind], it)
	case 2:
		from := s
		for n := r.U32(); n > 0 && from != nil; n-- { // not more often than things are nested
			from = from.up
		}
		i := r.U32()
		switch {
		case from == nil:
			failf("", "malformed: an alias to outside of the component")
		case sort == 0 && core == 0x10: // types of core modules are not kept
		default:
			s.push(from.get(sort, i))
		}
	default:
		r.Failf("unknown form %d of an alias", form)
	}
}

func (s *scope) importItem(r *wasm.Reader) {
	name := s.externName(r)
	if s.args == nil {
		it := s.external(r, "", name)
		if it.sort != sortType {
			s.imports = append(s.imports, name)
		}
		s.push(it)
		return
	}
	sort := r.Byte() // its type is that of the argument
	if sort == sortCoreModule || sort == sortType {
		r.Byte()
	}
	if sort != sortType || s.buf[r.Pos()-1] == 0 {
		r.U32()
	}
	it, ok := s.args[name]
	if !ok || it.sort != sort {
		failf("", "malformed: a nested component lacks the argument %q", name)
	}
	s.push(it)
}

func (s *scope) exportItem(r *wasm.Reader) {
	name := s.externName(r)
	s.hold(namedBytes)
	it := s.item(r)
	if r.Byte() == 1 {
		s.external(r, "", name) // a view of it
	}
	if res, ok := it.v.(*resource); ok && res.name == "" {
		res.name = name
	}
	s.push(it)
	s.out.add(name, it)
}

// canon reads a canonical definition.
func (s *scope) canon(r *wasm.Reader) {
	s.hold(funcBytes)
	code := builtin(r.Byte())
	f := &coreFunc{kind: code, owner: s.number}
	switch code {
	case 0:
		r.Byte()
		core := s.coreFunc(r)
		opts := s.options(r)
		t := entity[*funcType](s, r.U32(), "a function type")
		s.push(item{sortFunc, &function{t: t, lift: core, opts: opts, owner: s.number}})
		return
	case builtinLower:
		r.Byte()
		f.fn = s.get(sortFunc, r.U32()).v.(*function)
		f.opts = s.options(r)
	case builtinNew, builtinDrop, builtinRep, builtinDropAsync:
		if code == builtinDropAsync {
			f.kind = builtinDrop
		}
		f.res = entity[*resource](s, r.U32(), "a resource")
	case builtinReturn:
		if r.Byte() == 0 {
			f.result = s.value(r)
		} else {
			r.Byte()
		}
		f.opts = s.options(r)
	default:
		letters, ok := immediates[code]
		if !ok {
			failf("", "malformed: unknown canonical definition %#x", int(code))
		}
		s.tasks = s.tasks || f.kind == builtinContextGet || f.kind == builtinContextSet
		for _, c := range letters {
			switch c {
			case 'b':
				r.Byte()
			case 'i':
				f.slot = r.U32()
			case 'o':
				s.options(r)
			}
		}
	}
	s.core[wasm.ExternFunc] = append(s.core[wasm.ExternFunc], coreItem{kind: wasm.ExternFunc, fn: f})
}

// immediates are what the builtins of WASI 0.3 have in the binary: bytes, indices and options.
var immediates = map[builtin]string{
	0x05: "", 0x08: "", 0x0d: "", 0x1e: "", 0x1f: "", 0x22: "", 0x23: "", 0x24: "", 0x25: "", 0x26: "", 0x28: "",
	0x06: "b", 0x0c: "b", 0x29: "b", 0x2a: "b", 0x2b: "b", 0x2c: "b", 0x2d: "b", 0x0e: "i", 0x13: "i", 0x14: "i", 0x15: "i", 0x1a: "i", 0x1b: "i",
	0x0f: "io", 0x10: "io", 0x16: "io", 0x17: "io", 0x11: "ib", 0x12: "ib", 0x18: "ib", 0x19: "ib", 0x1c: "o", 0x1d: "o",
	0x0a: "bi", 0x0b: "bi", 0x20: "bi", 0x21: "bi", 0x27: "ii",
}

func (s *scope) options(r *wasm.Reader) (o options) {
	for n := s.count(r, "options", 1, 0); n > 0 && r.Err() == nil; n-- {
		switch k := r.Byte(); k {
		case 0, 1, 2:
			o.encoding = k
		case 3: // the parts have one memory
			s.hold(itemBytes)
			s.coreItem(wasm.ExternMemory, r.U32())
		case 4:
			o.realloc = s.coreFunc(r)
		case 5:
			o.post = s.coreFunc(r)
		case 6:
			o.async = true
		case 7:
			o.callback = s.coreFunc(r)
		default:
			r.Failf("unknown option %d", k)
		}
	}
	return o
}

// custom returns the custom sections of a component by name: the first of each.
func (l *reading) custom(b []byte) map[string][]byte {
	all := map[string][]byte{}
	r := wasm.NewReader(b, 8, len(b))
	for r.Len() > 0 {
		l.spend(1)
		id := r.Byte()
		body := r.Bytes(r.U32())
		if id != 0 {
			continue
		}
		l.hold(namedBytes)
		sub := wasm.NewReader(body, 0, len(body))
		name := l.text(sub.Name())
		if _, ok := all[name]; !ok && sub.Err() == nil {
			all[name] = body[sub.Pos():]
		}
	}
	return all
}
