package component

import (
	"github.com/starling-host/starling/internal/wasm"
)

// define reads the definition of a type.
func (s *scope) define(r *wasm.Reader) any {
	s.hold(typeBytes)
	switch b := r.Byte(); b {
	case 0x40, 0x43:
		f := &funcType{async: b == 0x43, params: newType(valueType{kind: kindRecord, items: s.fields(r)})}
		switch form := r.Byte(); {
		case form == 0:
			f.result = s.value(r)
		case form != 1 || r.U32() != 0:
			r.Failf("unknown form %d of results", form)
		}
		return f
	case 0x41, 0x42:
		d := &section{pos: r.Pos(), scope: s, isType: b == 0x42}
		s.declarations(r, d, "") // to find its end
		d.end = r.Pos()
		return d
	case 0x3f:
		res := &resource{own: true}
		r.Byte()
		if r.Byte() == 1 {
			res.dtor = s.coreFunc(r)
		}
		return res
	default:
		return s.defineValue(r, b)
	}
}

// value reads a value type: a primitive one, or the index of a type.
func (s *scope) value(r *wasm.Reader) *valueType {
	i := r.S33()
	malformed(r)
	if k, ok := primitives[byte(i&0x7f)]; ok && i < 0 && i >= -64 {
		s.hold(typeBytes)
		return newType(valueType{kind: k})
	}
	return entity[*valueType](s, uint32(i), "a value type")
}

func (s *scope) fields(r *wasm.Reader) (items []field) {
	for n := s.count(r, "fields", 2, namedBytes); n > 0 && r.Err() == nil; n-- {
		items = append(items, field{s.text(r.Name()), s.value(r)})
	}
	distinct(items)
	return items
}

func distinct(items []field) {
	seen := make(map[string]bool, len(items))
	for _, f := range items {
		if seen[f.name] {
			failf("", "malformed: two parts of a type are named %q", f.name)
		}
		seen[f.name] = true
	}
}

func (s *scope) defineValue(r *wasm.Reader, b byte) *valueType {
	maybe := func() *valueType {
		if r.Byte() == 0 {
			return nil
		}
		return s.value(r)
	}
	t := valueType{}
	switch b {
	case 0x72:
		t.kind, t.items = kindRecord, s.fields(r)
	case 0x71:
		t.kind = kindVariant
		for n := s.count(r, "cases", 3, namedBytes); n > 0 && r.Err() == nil; n-- {
			t.items = append(t.items, field{s.text(r.Name()), maybe()})
			r.Byte()
		}
		distinct(t.items)
	case 0x70:
		t.kind, t.elem = kindList, s.value(r)
	case 0x6f:
		t.kind = kindTuple
		for n := s.count(r, "elements", 1, namedBytes); n > 0 && r.Err() == nil; n-- {
			t.items = append(t.items, field{t: s.value(r)})
		}
	case 0x6e, 0x6d:
		t.kind = map[byte]kind{0x6e: kindFlags, 0x6d: kindEnum}[b]
		for n := s.count(r, "names", 1, namedBytes); n > 0 && r.Err() == nil; n-- {
			t.items = append(t.items, field{name: s.text(r.Name())})
		}
		distinct(t.items)
	case 0x6b:
		t.kind, t.elem = kindOption, s.value(r)
	case 0x6a:
		t.kind, t.items = kindResult, []field{{"ok", maybe()}, {"err", maybe()}}
	case 0x69, 0x68:
		t.kind = map[byte]kind{0x69: kindOwn, 0x68: kindBorrow}[b]
		t.res = entity[*resource](s, r.U32(), "a resource")
	case 0x67:
		t.what = "a list of fixed length"
		s.value(r)
		r.U32()
	case 0x66, 0x65:
		t.what = map[byte]string{0x66: "a stream", 0x65: "a future"}[b]
		maybe()
	case 0x64:
		t.what = "an error context"
	case 0x63:
		t.what = "a map"
		s.value(r)
		s.value(r)
	default:
		var ok bool
		if t.kind, ok = primitives[b]; !ok {
			failf("", "malformed: unknown type %#x", b)
		}
	}
	malformed(r)
	if t.what != "" {
		t.kind = kindOther
	}
	return newType(t)
}

// declarations reads those of an instance or component type. The functions and resources that
// it declares become imports of the interface.
func (s *scope) declarations(r *wasm.Reader, d *section, iface string) *instance {
	in := s.within(s.nesting, d.scope)
	for n := s.count(r, "declarations", 1, itemBytes); n > 0 && r.Err() == nil; n-- {
		switch form := r.Byte(); form {
		case 0:
			failf("", "it has the type of a core module in the type of an instance")
		case 1:
			in.push(item{sortType, in.define(r)})
		case 2:
			in.alias(r)
		case 3:
			in.push(in.external(r, "", in.externName(r)))
		case 4:
			name := in.externName(r)
			in.hold(namedBytes)
			it := in.external(r, iface, name)
			in.push(it)
			in.out.add(name, it)
		default:
			r.Failf("unknown declaration %d", form)
		}
	}
	malformed(r)
	return in.out
}

// external reads the type of an import or export, and makes an import of that type.
func (s *scope) external(r *wasm.Reader, iface, name string) item {
	s.hold(namedBytes)
	switch sort := r.Byte(); sort {
	case sortFunc:
		return item{sort, &function{iface: iface, name: name, t: entity[*funcType](s, r.U32(), "a function type")}}
	case sortType:
		if r.Byte() == 0 {
			return s.get(sort, r.U32())
		}
		return item{sort, &resource{iface: iface, name: name}}
	case sortInstance:
		d := entity[*section](s, r.U32(), "an instance type")
		if !d.isType {
			failf("", "malformed: an instance of a component type")
		}
		sub := wasm.NewReader(s.buf, d.pos, d.end)
		return item{sort, s.declarations(&sub, d, name)}
	case sortCoreModule, sortComponent:
		failf("a component must bring its own code: compose it with what it imports", "it imports a module or component: %s", name)
	default:
		failf("", "it has an import or export of sort %d: %s", sort, name)
	}
	return item{}
}
