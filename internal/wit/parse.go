package wit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// World is what a component imports and exports.
type World struct {
	Interface // its own types
	Imports   []*Extern
	Exports   []*Extern

	includes []path
}

// Extern is a function or an interface that a world imports or exports.
type Extern struct {
	Name      string // of a function; of an interface such as wasi:clocks/wall-clock@0.2.0
	Func      *Func
	Interface *Interface

	path path // of an interface that is declared elsewhere
}

// Interface is a set of types and functions.
type Interface struct {
	Name, ID, Doc string // ID such as wasi:clocks/wall-clock@0.2.0
	Defs          []*Def
	Funcs         []*Func

	pkg   *pkg
	names map[string]*Def
	state int // of its resolution
	at    place
}

// Def is a type that has a name. If Used is not nil, it stands for that type of another interface.
type Def struct {
	Name, Doc string
	Type      *Type
	Used      *Def
	In        *Interface

	flat  string // core types that it is passed as
	path  path   // of Used
	state int    // of its resolution
	at    place
}

// Func is a function. Result is nil if it returns nothing.
type Func struct {
	Name, Doc string
	Params    []Field
	Result    *Type
	at        place
}

// Field is a field, a parameter, a case, a name of an enumeration or of flags, or, without a
// name, an element of a tuple.
type Field struct {
	Name, Doc string
	Type      *Type // or nil
}

// Type is a type: a primitive one such as u8, or one of the kinds list, option, tuple, result,
// record, variant, enum, flags, and def, which is a reference to a named type. The items of a
// result are ok and err. The kind odd is everything that no tool can be made of.
type Type struct {
	Kind  string
	Elem  *Type
	Items []Field
	Def   *Def

	name string // of a def, or what an odd type is
	at   place
}

type pkg struct {
	id         string // such as wasi:clocks@0.2.0
	version    string // such as @0.2.0
	interfaces map[string]*Interface
	worlds     map[string]*World
	order      []*Interface
	uses       map[string]map[string]path // of each file: other names of interfaces
}

// path names an interface or a world: with a package, or of this one.
type path struct {
	pkg, name string
	at        place
	file      string
}

type place struct {
	file         string
	line, column int
}

// Error is a mistake in a file, at a line and column that count from 1.
type Error struct {
	File         string
	Line, Column int
	Reason       string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Reason)
}

func failf(at place, format string, args ...any) {
	panic(&Error{at.file, at.line, at.column, fmt.Sprintf(format, args...)})
}

// The bounds of a set of files.
const (
	maxBytes   = 1 << 20
	maxNesting = 50
)

// Parse reads the files of a package, which names have slashes, and below deps/ those of other
// packages. It returns the only world of the package. The error is an [*Error].
func Parse(files map[string][]byte) (w *World, err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case *Error:
			w, err = nil, v
		default:
			panic(v)
		}
	}()
	r := &resolver{pkgs: map[string]*pkg{}}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if size += len(files[name]); size > maxBytes {
			failf(place{name, 1, 1}, "the files have more than %d bytes together", maxBytes)
		}
		p := &parser{resolver: r, text: strings.ReplaceAll(string(files[name]), "\r\n", "\n"), at: place{name, 1, 1}}
		if at := strings.IndexFunc(p.text, func(c rune) bool { return c == utf8.RuneError || c < ' ' && !strings.ContainsRune(" \t\n", c) }); at >= 0 {
			p.advance(at)
			failf(p.at, "this is not text in UTF-8")
		}
		p.file(!strings.HasPrefix(name, "deps/"))
	}
	if r.main == nil {
		return nil, &Error{"package.wit", 1, 1, "there is no such file"}
	}
	return r.world(), nil
}

type parser struct {
	*resolver
	text    string // what is left
	at      place
	token   string // the next one; "" at the end
	start   place  // of the token
	doc     string // the comment before the token
	nesting int
	pkg     *pkg
}

func (p *parser) advance(n int) {
	skipped := p.text[:n]
	p.text = p.text[n:]
	if lines := strings.Count(skipped, "\n"); lines > 0 {
		p.at.line, p.at.column = p.at.line+lines, 1
		skipped = skipped[strings.LastIndex(skipped, "\n")+1:]
	}
	p.at.column += utf8.RuneCountInString(skipped)
}

// next moves to the next token, and keeps the comment of documentation before it.
func (p *parser) next() {
	p.doc = ""
	for {
		p.advance(len(p.text) - len(strings.TrimLeft(p.text, " \t\r\n")))
		switch {
		case strings.HasPrefix(p.text, "//"):
			line, _, _ := strings.Cut(p.text, "\n")
			if doc, ok := strings.CutPrefix(line, "///"); ok {
				p.doc += strings.TrimRight(strings.TrimPrefix(doc, " "), " \r") + "\n"
			}
			p.advance(len(line))
			continue
		case strings.HasPrefix(p.text, "/*"):
			p.blockComment()
			continue
		}
		break
	}
	p.start = p.at
	p.token = ""
	if p.text == "" {
		return
	}
	n := 1
	switch c := p.text[0]; {
	case strings.HasPrefix(p.text, "->"):
		n = 2
	case c == '%' || isWord(c):
		n = len(p.text) - len(strings.TrimLeftFunc(p.text[1:], func(c rune) bool { return c < 128 && (isWord(byte(c)) || c == '-') }))
		n = min(n, len(p.text))
		if strings.HasPrefix(p.text[n-1:], "->") { // func->
			n--
		}
	case !strings.ContainsRune("{}()<>,:;=*@/._", rune(c)):
		failf(p.at, "unexpected character %q", firstRune(p.text))
	}
	p.token = p.text[:n]
	p.advance(n)
}

func firstRune(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return s[:n]
}

func isWord(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }

func (p *parser) blockComment() {
	begin, depth, at := p.at, 0, 0
	for at == 0 || depth > 0 {
		open, end := strings.Index(p.text[at:], "/*"), strings.Index(p.text[at:], "*/")
		switch {
		case end < 0:
			failf(begin, "the comment has no end")
		case open >= 0 && open < end:
			depth, at = depth+1, at+open+2
		default:
			depth, at = depth-1, at+end+2
		}
	}
	if doc := p.text[:at]; strings.HasPrefix(doc, "/**") && len(doc) > 4 {
		for line := range strings.Lines(strings.TrimSuffix(strings.TrimPrefix(doc, "/**"), "*/")) {
			p.doc += strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "*")) + "\n"
		}
	}
	p.advance(at)
}

func (p *parser) found() string {
	if p.token == "" {
		return "the end of the file"
	}
	return fmt.Sprintf("%q", p.token)
}

// accept moves over a token if it is the next one.
func (p *parser) accept(token string) bool {
	if p.token != token {
		return false
	}
	p.next()
	return true
}

func (p *parser) expect(token, what string) {
	if !p.accept(token) {
		failf(p.start, "expected %q %s, found %s", token, what, p.found())
	}
}

// keywords cannot be names without a % before them.
const keywords = ` as async bool borrow char constructor enum export f32 f64 flags from func future import include interface list
	option own package record resource result s16 s32 s64 s8 static stream string tuple type u16 u32 u64 u8 use variant with world `

// id reads a name.
func (p *parser) id(what string) string {
	at, name, plain := p.start, strings.TrimPrefix(p.token, "%"), !strings.HasPrefix(p.token, "%")
	switch {
	case p.token == "" || p.token != "%" && !isWord(p.token[len(p.token)-1]) && !isWord(p.token[0]):
		failf(at, "expected %s, found %s", what, p.found())
	case plain && strings.Contains(keywords, " "+name+" "):
		failf(at, "expected %s, found the keyword %q: write %%%s to use it as a name", what, name, name)
	case !isKebab(name):
		failf(at, "%q is no name: it has words of letters and digits with - between them, each in one case, and each begins with a letter", name)
	}
	p.next()
	return name
}

func isKebab(name string) bool {
	for word := range strings.SplitSeq(name, "-") {
		if word == "" || word[0] < 'A' || word != strings.ToLower(word) && word != strings.ToUpper(word) {
			return false
		}
	}
	return len(name) <= 200
}

// list reads items until the closing token, with commas between them.
func (p *parser) list(end string, item func()) {
	for !p.accept(end) {
		item()
		if !p.accept(",") {
			p.expect(end, "or a comma")
			return
		}
	}
}

// packageID reads wasi:clocks or wasi:clocks/name with a version after it.
func (p *parser) packageID(first string) (id, name, version string) {
	id = first
	for p.accept(":") {
		id += ":" + p.id("the name of a package")
	}
	if p.accept("/") {
		name = p.id("the name of an interface")
	}
	if p.token == "@" {
		version = p.version()
	}
	return id, name, version
}

// version reads @0.2.0.
func (p *parser) version() string {
	n := len(p.text) - len(strings.TrimLeftFunc(p.text, func(c rune) bool { return c < 128 && (isWord(byte(c)) || strings.ContainsRune(".+-", c)) }))
	for n > 0 && p.text[n-1] == '.' { // of use a:b/c@1.0.0.{d}
		n--
	}
	if v := p.text[:n]; strings.Count(v, ".") < 2 || v[0] < '0' || v[0] > '9' || strings.Contains(v, "..") {
		failf(p.at, "expected a version such as 1.0.0, found %q", v)
	}
	v := "@" + p.text[:n]
	p.advance(n)
	p.next()
	return v
}

func (p *parser) path() path {
	at := p.start
	name := p.id("the name of an interface")
	if p.token != ":" {
		return path{name: name, at: at, file: at.file}
	}
	return p.foreignPath(at, name)
}

// foreignPath reads what follows the first word of a path with a package.
func (p *parser) foreignPath(at place, first string) path {
	id, name, version := p.packageID(first)
	if name == "" {
		failf(p.start, "expected \"/\" and the name of an interface, found %s", p.found())
	}
	return path{id + version, name, at, at.file}
}

// file reads a file: of the package itself, or of another.
func (p *parser) file(main bool) {
	p.next()
	at, id, version := p.start, "", ""
	if p.accept("package") {
		id, version = p.packageName()
		if p.token == "{" { // the first of several, without a package of the file
			p.packageBody(id, version)
			id = ""
		} else {
			p.expect(";", "after the name of the package")
		}
	}
	switch {
	case main && p.main == nil:
		p.resolver.start = place{at.file, 1, 1}
		if id == "" {
			id, p.unnamed = "root:tool", true
		}
		p.main = p.open(id, version)
	case main && id != "" && p.unnamed:
		delete(p.pkgs, p.main.id)
		p.main.id, p.main.version, p.unnamed = id+version, version, false
		p.pkgs[p.main.id] = p.main
	case main && id != "" && p.main.id != id+version:
		failf(at, "this file is of the package %s, and others are of %s: put other packages below deps/", id+version, p.main.id)
	case !main && id == "" && p.token != "":
		failf(at, "expected the package of the file, found %s", p.found())
	}
	p.pkg = p.main
	if !main {
		p.pkg = p.open(id, version)
	}
	for p.token != "" {
		p.topLevel()
	}
}

func (p *parser) packageName() (id, version string) {
	at := p.start
	id, name, version := p.packageID(p.id("the name of a package"))
	if name != "" || strings.Count(id, ":") != 1 {
		failf(at, "a package has a name such as example:lookup")
	}
	return id, version
}

func (p *parser) packageBody(id, version string) {
	outer := p.pkg
	p.pkg = p.open(id, version)
	p.expect("{", "or ; after the name of the package")
	for !p.accept("}") {
		p.topLevel()
	}
	p.pkg = outer
}

func (p *parser) topLevel() {
	doc, unstable := p.gates()
	at := p.start
	switch {
	case p.accept("package"):
		p.packageBody(p.packageName())
	case p.accept("use"):
		from := p.path()
		name := from.name
		if p.accept("as") {
			name = p.id("another name")
		}
		p.expect(";", "after use")
		if p.pkg.uses[at.file] == nil {
			p.pkg.uses[at.file] = map[string]path{}
		}
		p.pkg.uses[at.file][name] = from
	case p.accept("interface"):
		at = p.start
		i := p.newInterface(doc, at, p.id("the name of the interface"))
		p.interfaceBody(i)
		p.declare(i, nil, unstable)
	case p.accept("world"):
		at = p.start
		w := &World{Interface: *p.newInterface(doc, at, p.id("the name of the world"))}
		p.worldBody(w)
		p.declare(&w.Interface, w, unstable)
	default:
		failf(at, "expected package, use, interface or world, found %s", p.found())
	}
}

func (p *parser) newInterface(doc string, at place, name string) *Interface {
	id, _, _ := strings.Cut(p.pkg.id, "@")
	return &Interface{Name: name, ID: id + "/" + name + p.pkg.version, Doc: doc, pkg: p.pkg, names: map[string]*Def{}, at: at}
}

func (p *parser) declare(i *Interface, w *World, unstable bool) {
	switch {
	case p.pkg.interfaces[i.Name] != nil || p.pkg.worlds[i.Name] != nil:
		failf(i.at, "the name %q is taken", i.Name)
	case unstable:
	case w != nil:
		p.pkg.worlds[i.Name] = w
	default:
		p.pkg.interfaces[i.Name] = i
		p.pkg.order = append(p.pkg.order, i)
	}
}

// gates reads the documentation of an item, and the attributes before it.
func (p *parser) gates() (doc string, unstable bool) {
	doc = p.doc
	for p.accept("@") {
		unstable = unstable || p.token == "unstable"
		p.id("since, unstable or deprecated")
		if p.accept("(") {
			p.id("version or feature")
			p.expect("=", "after it")
			if p.token != "" && p.token[0] >= '0' && p.token[0] <= '9' {
				p.text, p.at = p.token+p.text, p.start // it is a version
				p.version()
			} else {
				p.id("a feature")
			}
			p.expect(")", "after the attribute")
		}
		doc += p.doc
	}
	return strings.TrimSpace(doc), unstable
}

func (p *parser) interfaceBody(i *Interface) {
	p.expect("{", "and the functions of the interface")
	for !p.accept("}") {
		doc, unstable := p.gates()
		kept := *i
		if !p.typeItem(i, doc) {
			i.Funcs = append(i.Funcs, p.function(doc))
		}
		if unstable {
			for _, d := range i.Defs[len(kept.Defs):] {
				delete(i.names, d.Name)
			}
			i.Defs, i.Funcs = kept.Defs, kept.Funcs
		}
	}
}

// function reads NAME: func(...) -> TYPE;
func (p *parser) function(doc string) *Func {
	f := &Func{Doc: doc, at: p.start}
	f.Name = p.id("a function or a type")
	p.expect(":", "after the name of the function")
	p.signature(f)
	p.expect(";", "after the function")
	return f
}

func (p *parser) signature(f *Func) {
	if p.token == "async" {
		p.next()
		f.Result = &Type{Kind: "odd", name: "an asynchronous function", at: f.at}
	}
	p.expect("func", "and the parameters")
	p.expect("(", "and the parameters")
	p.list(")", func() {
		doc, _ := p.gates()
		name := p.id("the name of a parameter")
		p.expect(":", "and the type of the parameter")
		f.Params = append(f.Params, Field{name, doc, p.valueType()})
	})
	distinct(f.Params, f.at)
	if p.accept("->") {
		if result := p.valueType(); f.Result == nil {
			f.Result = result
		}
	}
}

func distinct(items []Field, at place) {
	seen := map[string]bool{}
	for _, f := range items {
		if name := strings.ToLower(f.Name); seen[name] {
			failf(at, "the name %q occurs twice", f.Name)
		}
		seen[strings.ToLower(f.Name)] = true
	}
}

func (p *parser) worldBody(w *World) {
	p.expect("{", "and the exports of the world")
	for !p.accept("}") {
		doc, unstable := p.gates()
		kept := *w
		var list *[]*Extern
		switch {
		case p.accept("export"):
			list = &w.Exports
		case p.accept("import"):
			list = &w.Imports
		case p.accept("include"):
			w.includes = append(w.includes, p.path())
			if p.token == "with" {
				failf(p.start, "include with other names is not supported: write the names here")
			}
			p.expect(";", "after include")
		case !p.typeItem(&w.Interface, doc):
			failf(p.start, "expected export, import, include, use or a type, found %s", p.found())
		}
		if list != nil {
			*list = append(*list, p.extern(w, doc))
		}
		if unstable {
			*w = kept
		}
	}
}

func (p *parser) extern(w *World, doc string) *Extern {
	at := p.start
	name := p.id("the name of an interface or a function")
	if p.token == ":" {
		after := *p // a function, an inline interface or a package
		after.next()
		if !slices.Contains([]string{"func", "async", "interface"}, after.token) {
			where := p.foreignPath(at, name)
			p.expect(";", "after the interface")
			return &Extern{path: where}
		}
		p.next()
	} else {
		p.expect(";", "after the interface, or : and a function")
		return &Extern{path: path{name: name, at: at, file: at.file}}
	}
	if p.accept("interface") {
		i := p.newInterface(doc, at, name)
		i.ID = name
		p.interfaceBody(i)
		return &Extern{Name: i.ID, Interface: i}
	}
	f := &Func{Name: name, Doc: doc, at: at}
	p.signature(f)
	p.expect(";", "after the function")
	return &Extern{Name: f.Name, Func: f}
}

// typeItem reads the definition of a type, or a use, if one comes next.
func (p *parser) typeItem(i *Interface, doc string) bool {
	kind, at := p.token, p.start
	add := func(d *Def) {
		if d.In, d.at = i, at; i.names[d.Name] != nil {
			failf(at, "the name %q is taken", d.Name)
		}
		i.names[d.Name] = d
		i.Defs = append(i.Defs, d)
	}
	switch kind {
	case "use":
		p.next()
		from := p.path()
		p.expect(".", "and the types in braces")
		p.expect("{", "and the types")
		p.list("}", func() {
			at = p.start
			name := p.id("the name of a type")
			from := path{from.pkg, from.name + "." + name, from.at, from.file}
			if p.accept("as") {
				name = p.id("another name")
			}
			add(&Def{Name: name, path: from})
		})
		p.expect(";", "after use")
	case "type":
		p.next()
		name := p.id("the name of the type")
		p.expect("=", "and the type")
		t := p.valueType()
		p.expect(";", "after the type")
		add(&Def{Name: name, Doc: doc, Type: t})
	case "resource":
		p.next()
		name := p.id("the name of the resource")
		if p.accept("{") {
			for !p.accept("}") {
				p.gates()
				p.method()
			}
		} else {
			p.expect(";", "or the methods of the resource")
		}
		add(&Def{Name: name, Doc: doc, Type: &Type{Kind: "odd", name: "a resource", at: at}})
	case "record", "variant", "enum", "flags":
		p.next()
		t := &Type{Kind: kind, at: at}
		name := p.id("the name of the type")
		p.expect("{", "and its parts")
		p.list("}", func() { t.Items = append(t.Items, p.part(kind)) })
		if distinct(t.Items, at); len(t.Items) == 0 {
			failf(at, "%s %s is empty", kind, name)
		}
		add(&Def{Name: name, Doc: doc, Type: t})
	default:
		return false
	}
	return true
}

func (p *parser) method() {
	if p.accept("constructor") {
		p.expect("(", "and the parameters")
		p.list(")", func() { p.id("the name of a parameter"); p.expect(":", "and its type"); p.valueType() })
		if p.accept("->") {
			p.valueType()
		}
	} else {
		f := &Func{at: p.start}
		p.id("the name of a method")
		p.expect(":", "after the name")
		p.accept("static")
		p.signature(f)
	}
	p.expect(";", "after the method")
}

// part reads a field, a case or a name.
func (p *parser) part(kind string) Field {
	doc, _ := p.gates()
	f := Field{Name: p.id("a name"), Doc: doc}
	switch {
	case kind == "record":
		p.expect(":", "and the type of the field")
		f.Type = p.valueType()
	case kind == "variant" && p.accept("("):
		f.Type = p.valueType()
		p.expect(")", "after the type of the case")
	}
	return f
}

const primitives = " bool s8 u8 s16 u16 s32 u32 s64 u64 f32 f64 char string "

func (p *parser) valueType() *Type {
	if p.nesting++; p.nesting > maxNesting {
		failf(p.start, "types are nested deeper than %d", maxNesting)
	}
	defer func() { p.nesting-- }()
	t := &Type{Kind: p.token, at: p.start}
	odd := func(what string) *Type { return &Type{Kind: "odd", name: what, at: t.at} }
	switch {
	case t.Kind == "":
	case strings.Contains(primitives, " "+t.Kind+" "):
		p.next()
		return t
	case p.accept("list"):
		p.expect("<", "and the type of the elements")
		t.Elem = p.valueType()
		if p.accept(",") {
			p.next()
			t = odd("a list of fixed length")
		}
		p.expect(">", "after the type")
		return t
	case p.accept("option"):
		p.expect("<", "and a type")
		t.Elem = p.valueType()
		p.expect(">", "after the type")
		return t
	case p.accept("tuple"):
		p.expect("<", "and types")
		p.list(">", func() { t.Items = append(t.Items, Field{Type: p.valueType()}) })
		if n := len(t.Items); n == 0 || n > maxTuple {
			failf(t.at, "a tuple of %d types is not supported: it has 1 to %d", n, maxTuple)
		}
		return t
	case p.accept("result"):
		t.Items = []Field{{Name: "ok"}, {Name: "err"}}
		if p.accept("<") {
			if !p.accept("_") {
				t.Items[0].Type = p.valueType()
			}
			if p.accept(",") {
				t.Items[1].Type = p.valueType()
			}
			p.expect(">", "after the types")
		}
		return t
	case t.Kind == "own" || t.Kind == "borrow" || t.Kind == "stream" || t.Kind == "future" || t.Kind == "map" || t.Kind == "error-context":
		p.next()
		if p.accept("<") {
			p.list(">", func() { p.valueType() })
		}
		return odd(map[string]string{"own": "a resource", "borrow": "a resource", "stream": "a stream", "future": "a future", "map": "a map", "error-context": "an error context"}[t.Kind])
	}
	t.name, t.Kind = p.id("a type"), "def"
	return t
}
