package wit

import (
	"maps"
	"slices"
	"strings"
)

// maxTuple is the longest tuple: the standard library of Rust knows none longer.
const maxTuple = 12

// maxParams is the most parameters that a function has. abi.rs knows tuples of as many.
const maxParams = 20

// resolver holds the packages, and finds what names mean.
type resolver struct {
	pkgs    map[string]*pkg
	main    *pkg
	unnamed bool  // main has no name of its own yet
	start   place // of the first file
}

// open returns the package of a name, to which several files can belong.
func (r *resolver) open(id, version string) *pkg {
	p := r.pkgs[id+version]
	if p == nil {
		p = &pkg{id: id + version, version: version, interfaces: map[string]*Interface{}, worlds: map[string]*World{}, uses: map[string]map[string]path{}}
		r.pkgs[p.id] = p
	}
	return p
}

// world resolves the only world of the package.
func (r *resolver) world() *World {
	names := slices.Sorted(maps.Keys(r.main.worlds))
	switch {
	case len(names) == 0 && len(r.main.order) > 0:
		i := r.main.order[0]
		failf(i.at, "the package has no world, which lists what the tool exports: world tool { export %s; }", i.Name)
	case len(names) == 0:
		failf(r.start, "the package has no world, which lists what the tool exports")
	case len(names) > 1:
		failf(r.main.worlds[names[1]].at, "the package has several worlds: %s: keep one", strings.Join(names, ", "))
	}
	w := r.main.worlds[names[0]]
	r.include(w, w, map[*World]bool{})
	r.types(&w.Interface)
	for _, list := range [][]*Extern{w.Imports, w.Exports} {
		seen := map[string]bool{}
		for _, e := range list {
			if e.Func == nil && e.Interface == nil {
				e.Interface = r.find(w.pkg, e.path)
				e.Name = e.Interface.ID
			}
			if e.Func != nil {
				r.function(&w.Interface, e.Func)
			} else {
				r.types(e.Interface)
			}
			if seen[e.Name] {
				failf(w.at, "the world %s names %s twice", w.Name, e.Name)
			}
			seen[e.Name] = true
		}
	}
	functions := 0
	for _, e := range w.Exports {
		for _, f := range e.functions() {
			functions++
			for _, p := range f.Params {
				if what, at := odd(p.Type, map[*Type]bool{}); what != "" {
					failf(at, "the function %s takes %s, which is not supported", f.Name, what)
				}
			}
			if what, at := odd(f.Result, map[*Type]bool{}); what != "" {
				failf(at, "the function %s returns %s, which is not supported", f.Name, what)
			}
			if len(f.Params) > maxParams {
				failf(f.at, "the function %s has more than %d parameters", f.Name, maxParams)
			}
		}
	}
	if functions == 0 {
		failf(w.at, "the world %s exports no function", w.Name)
	}
	modules := map[string]string{}
	for _, u := range w.units() {
		module := strings.Join(u.module(), "::")
		if other := modules[module]; other != "" {
			failf(w.at, "the world %s has both %s and %s, whose types have the same names", w.Name, other, u.name)
		}
		modules[module] = u.name
	}
	return w
}

func (e *Extern) functions() []*Func {
	if e.Func != nil {
		return []*Func{e.Func}
	}
	return e.Interface.Funcs
}

// include adds what other worlds import and export.
func (r *resolver) include(w, from *World, seen map[*World]bool) {
	if seen[from] {
		return
	}
	seen[from] = true
	for _, p := range from.includes {
		q, name := r.pkgOf(from.pkg, p)
		other := q.worlds[name]
		if other == nil {
			failf(p.at, "there is no world %s in the package %s", name, q.id)
		}
		if len(other.Defs) > 0 {
			failf(p.at, "include of a world that has types of its own is not supported: write them here")
		}
		for to, list := range map[*[]*Extern][]*Extern{&w.Imports: other.Imports, &w.Exports: other.Exports} {
			for _, e := range list {
				if e.Func == nil && e.Interface == nil {
					e = &Extern{Interface: r.find(q, e.path)}
					e.Name = e.Interface.ID
				}
				if !slices.ContainsFunc(*to, func(had *Extern) bool { return had.Name == e.Name }) {
					*to = append(*to, e)
				}
			}
		}
		r.include(w, other, seen)
	}
}

// pkgOf returns the package of a path, and the name in it.
func (r *resolver) pkgOf(in *pkg, p path) (*pkg, string) {
	name, rest, isType := strings.Cut(p.name, ".")
	if other, ok := in.uses[p.file][name]; ok && p.pkg == "" {
		p.pkg, name = other.pkg, other.name
	}
	if isType {
		name += "." + rest
	}
	if p.pkg == "" {
		return in, name
	}
	q := r.pkgs[p.pkg]
	if q == nil {
		failf(p.at, "the package %s is not here: put its files below deps/", p.pkg)
	}
	return q, name
}

func (r *resolver) find(in *pkg, p path) *Interface {
	q, name := r.pkgOf(in, p)
	i := q.interfaces[name]
	if i == nil {
		failf(p.at, "there is no interface %s in the package %s", name, q.id)
	}
	return i
}

// The states of what is resolved.
const (
	resolving = 1 + iota
	resolved
)

// types resolves the types and functions of an interface.
func (r *resolver) types(i *Interface) {
	switch i.state {
	case resolved:
		return
	case resolving:
		failf(i.at, "the interface %s uses types of an interface that uses its types", i.Name)
	}
	i.state = resolving
	defer func() { i.state = resolved }()
	for _, d := range i.Defs {
		r.def(d, 0)
	}
	var all []Field
	for _, f := range i.Funcs {
		r.function(i, f)
		all = append(all, Field{Name: f.Name})
	}
	for _, d := range i.Defs {
		all = append(all, Field{Name: d.Name})
	}
	distinct(all, i.at)
}

func (r *resolver) function(i *Interface, f *Func) {
	for _, p := range f.Params {
		r.resolve(i, p.Type, 0)
	}
	r.resolve(i, f.Result, 0)
}

func (r *resolver) def(d *Def, depth int) {
	switch {
	case d.state == resolved:
		return
	case d.state == resolving:
		failf(d.at, "the type %s contains itself", d.Name)
	case depth > maxNesting:
		failf(d.at, "types are nested deeper than %d", maxNesting)
	}
	d.state = resolving
	if d.Type == nil {
		p := d.path
		name := p.name[strings.LastIndex(p.name, ".")+1:]
		p.name = strings.TrimSuffix(p.name, "."+name)
		i := r.find(d.In.pkg, p)
		r.types(i)
		if d.Used = i.names[name]; d.Used == nil {
			failf(d.at, "there is no type %s in the interface %s", name, i.ID)
		}
		r.def(d.Used, depth+1)
		d.Type = d.Used.Type
	} else {
		r.resolve(d.In, d.Type, depth)
	}
	d.state = resolved
}

func (r *resolver) resolve(i *Interface, t *Type, depth int) {
	if t == nil {
		return
	}
	if depth > maxNesting {
		failf(t.at, "types are nested deeper than %d", maxNesting)
	}
	if t.Kind == "def" && t.Def == nil {
		if t.Def = i.names[t.name]; t.Def == nil {
			failf(t.at, "there is no type %s here", t.name)
		}
		r.def(t.Def, depth+1)
		if t.Def.Type.Kind == "odd" {
			t.Kind, t.name = "odd", t.Def.Type.name
		}
	}
	r.resolve(i, t.Elem, depth+1)
	for _, f := range t.Items {
		r.resolve(i, f.Type, depth+1)
	}
}

// odd returns what a type has that no tool can be made of, and where.
func odd(t *Type, seen map[*Type]bool) (what string, at place) {
	switch {
	case t == nil || seen[t]:
		return "", at
	case t.Kind == "odd":
		return t.name, t.at
	case t.Kind == "flags" && len(t.Items) > 32:
		return "flags of more than 32 names", t.at
	case t.Def != nil:
		return odd(t.Def.Type, seen)
	}
	seen[t] = true
	if what, at = odd(t.Elem, seen); what != "" {
		return what, at
	}
	for _, f := range t.Items {
		if what, at = odd(f.Type, seen); what != "" {
			break
		}
	}
	return what, at
}
