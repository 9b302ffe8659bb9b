package component

import (
	"cmp"
	"math"

	"github.com/starling-host/starling/internal/wasm"
)

// kind is the kind of a value type, numbered as the guest side reads it.
type kind uint32

const (
	kindBool kind = iota
	kindS8
	kindU8
	kindS16
	kindU16
	kindS32
	kindU32
	kindS64
	kindU64
	kindF32
	kindF64
	kindChar
	kindString
	kindList
	kindRecord
	kindTuple
	kindVariant
	kindEnum
	kindOption
	kindResult
	kindFlags
	kindOwn
	kindBorrow
	kindOther // not supported: what says which
)

// primitives are the value types of one byte.
var primitives = map[byte]kind{
	0x7f: kindBool, 0x7e: kindS8, 0x7d: kindU8, 0x7c: kindS16, 0x7b: kindU16, 0x7a: kindS32, 0x79: kindU32, 0x78: kindS64, 0x77: kindU64,
	0x76: kindF32, 0x75: kindF64, 0x74: kindChar, 0x73: kindString,
}

// maxTypeDepth bounds the nesting of a value type: the guest side and this package recurse into it.
const maxTypeDepth = 100

// valueType is a value type with its references resolved. newType fills in what follows from
// the parts.
type valueType struct {
	kind  kind
	items []field    // fields, elements, cases or names
	elem  *valueType // of a list or option
	res   *resource  // of a handle
	what  string     // of kindOther
	size  uint32     // bytes in memory
	align uint32     // in memory
	disc  uint32     // bytes of the discriminant
	at    uint32     // offset of the payload
	flat  flat       // the core values that it is passed as
	depth int        // of the types in it
	odd   string     // the unsupported type in it, or ""
	owns  bool       // it has handles
	text  bool       // it has strings or lists, which are in memory
}

// field is a named part of a type. The type is nil for a case without a payload.
type field struct {
	name string
	t    *valueType
}

// flat is the list of core types that a value is passed as. A longer list than a function can
// have is passed in memory, so it ends after maxFlatParams+1.
type flat []wasm.ValType

const (
	maxFlatParams  = 16
	maxFlatResults = 1
)

// funcType is the type of a component-level function.
type funcType struct {
	async  bool
	params *valueType // a record
	result *valueType // or nil
}

// resource is a resource type: of an import, or of the component itself.
type resource struct {
	iface, name string
	own         bool // defined in the component
	dtor        *coreFunc
}

func alignTo(n, to uint32) uint32 { return (n + to - 1) / to * to }

// newType computes the layout, the flat form and the depth of t, whose parts have theirs.
func newType(t valueType) *valueType {
	t.depth = 1
	for _, f := range append([]field{{t: t.elem}}, t.items...) {
		if f.t == nil {
			continue
		}
		t.depth = max(t.depth, f.t.depth+1)
		t.owns, t.text = t.owns || f.t.owns, t.text || f.t.text
		t.odd = cmp.Or(t.odd, f.t.odd)
	}
	if t.depth > maxTypeDepth {
		failf("", "it has a type that is nested deeper than %d", maxTypeDepth)
	}
	scalar := func(size uint32, core wasm.ValType) { t.size, t.align, t.flat = size, size, flat{core} }
	switch t.kind {
	case kindBool, kindS8, kindU8:
		scalar(1, wasm.I32)
	case kindS16, kindU16:
		scalar(2, wasm.I32)
	case kindS32, kindU32, kindChar:
		scalar(4, wasm.I32)
	case kindOwn, kindBorrow:
		scalar(4, wasm.I32)
		t.owns = true
	case kindS64, kindU64:
		scalar(8, wasm.I64)
	case kindF32:
		scalar(4, wasm.F32)
	case kindF64:
		scalar(8, wasm.F64)
	case kindString, kindList:
		t.size, t.align, t.flat, t.text = 8, 4, flat{wasm.I32, wasm.I32}, true
	case kindFlags:
		switch n := len(t.items); {
		case n <= 8:
			scalar(1, wasm.I32)
		case n <= 16:
			scalar(2, wasm.I32)
		case n <= 32:
			scalar(4, wasm.I32)
		default:
			failf("", "it has flags of %d names, more than 32", n)
		}
	case kindRecord, kindTuple:
		t.align = 1
		for _, f := range t.items {
			t.size = fits(uint64(alignTo(t.size, f.t.align)) + uint64(f.t.size))
			t.align = max(t.align, f.t.align)
			if room := maxFlatParams + 1 - len(t.flat); room > 0 {
				t.flat = append(t.flat, f.t.flat[:min(len(f.t.flat), room)]...)
			}
		}
		t.size = alignTo(t.size, t.align)
	case kindVariant, kindEnum, kindOption, kindResult:
		t.variant()
	default:
		t.odd = t.what
		scalar(4, wasm.I32)
	}
	return &t
}

// variant is newType for what has a discriminant: each core value of the flat form has room
// for that of every case.
func (t *valueType) variant() {
	cases := t.items
	if t.kind == kindOption {
		cases = []field{{}, {t: t.elem}}
	}
	switch n := len(cases); {
	case n <= 1<<8:
		t.disc = 1
	case n <= 1<<16:
		t.disc = 2
	default:
		t.disc = 4
	}
	payload := uint32(1)
	t.flat = flat{wasm.I32}
	for _, c := range cases {
		if c.t == nil {
			continue
		}
		t.size, payload = max(t.size, c.t.size), max(payload, c.t.align)
		for i, core := range c.t.flat[:min(len(c.t.flat), maxFlatParams)] {
			switch i++; {
			case i == len(t.flat):
				t.flat = append(t.flat, core)
			case t.flat[i] == core:
			case t.flat[i] != wasm.I64 && t.flat[i] != wasm.F64 && core != wasm.I64 && core != wasm.F64:
				t.flat[i] = wasm.I32
			default:
				t.flat[i] = wasm.I64
			}
		}
	}
	t.at, t.align = alignTo(t.disc, payload), max(t.disc, payload)
	t.size = alignTo(fits(uint64(t.at)+uint64(t.size)), t.align)
}

// fits returns the size of a type, and refuses one of which a memory has no room for a value.
func fits(size uint64) uint32 {
	if size > math.MaxInt32 {
		failf("", "it has a type of more than 2 GiB")
	}
	return uint32(size)
}

// core is the type of the core function that implements f, or that lowering f gives.
func (f *funcType) core(lower bool) wasm.FuncType {
	params := f.params.flat
	if len(params) > maxFlatParams {
		params = flat{wasm.I32}
	}
	t := wasm.FuncType{Params: append(flat{}, params...)}
	switch {
	case f.result == nil:
	case len(f.result.flat) <= maxFlatResults:
		t.Results = f.result.flat
	case lower:
		t.Params = append(t.Params, wasm.I32)
	default:
		t.Results = flat{wasm.I32}
	}
	return t
}
