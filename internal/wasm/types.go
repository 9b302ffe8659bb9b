package wasm

import (
	"fmt"
	"strings"

	"github.com/starling-host/starling/internal/lists"
)

// ValType is the type of a value, as its byte in the binary.
type ValType byte

// The value types of WebAssembly 2.0 without SIMD.
const (
	I32       ValType = 0x7f
	I64       ValType = 0x7e
	F32       ValType = 0x7d
	F64       ValType = 0x7c
	FuncRef   ValType = 0x70
	ExternRef ValType = 0x6f
)

// IsNumber tells numbers from references.
func (t ValType) IsNumber() bool { return t >= F64 && t <= I32 }

var typeNames = map[ValType]string{I32: "i32", I64: "i64", F32: "f32", F64: "f64", FuncRef: "funcref", ExternRef: "externref"}

// String returns the type's name in the text format.
func (t ValType) String() string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return fmt.Sprintf("type(%#x)", byte(t))
}

// FuncType is the type of a function.
type FuncType struct{ Params, Results []ValType }

// Equal reports whether both types have the same parameters and results. The compiler does not turn
// slices.Equal into a memory comparison for named bytes.
func (t FuncType) Equal(o FuncType) bool {
	return string(t.Params) == string(o.Params) && string(t.Results) == string(o.Results)
}

// String returns the type in the text of this project: (i32, i64) -> i32.
func (t FuncType) String() string {
	s := typeList(t.Params) + " -> "
	if len(t.Results) == 1 {
		return s + t.Results[0].String()
	}
	return s + typeList(t.Results)
}

func typeList(ts []ValType) string {
	return "(" + strings.Join(lists.Map(ts, ValType.String), ", ") + ")"
}

// Limits are the size of a memory, in pages of 64 KiB, or of a table, in
// entries.
type Limits struct {
	Min, Max uint32
	HasMax   bool // without it Max is zero and means nothing
}

// PageSize is the size of a page of linear memory in bytes.
const PageSize = 1 << 16

// MaxPages is the most pages that a 32-bit memory can have.
const MaxPages = 1 << 16

// Pages returns the number of pages that hold the given number of bytes.
func Pages(bytes uint64) uint64 { return bytes/PageSize + min(bytes%PageSize, 1) }

// ExternKind is the kind of an import or export.
type ExternKind byte

// The kinds of imports and exports.
const (
	ExternFunc   ExternKind = 0
	ExternTable  ExternKind = 1
	ExternMemory ExternKind = 2
	ExternGlobal ExternKind = 3

	externTag ExternKind = 4 // of exception handling
)

var kindNames = [...]string{ExternFunc: "func", ExternTable: "table", ExternMemory: "memory", ExternGlobal: "global"}

// String returns the kind's name in the text format.
func (k ExternKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", byte(k))
}

// Import is one import. For imports other than functions, only the kind is kept.
type Import struct {
	Module, Name string
	Kind         ExternKind
	Offset       int    // of the import in the module
	Type         uint32 // ExternFunc: index into Types
}

// Table is the declaration of a table.
type Table struct {
	Elem   ValType // FuncRef or ExternRef
	Limits Limits
	Offset int
}

// GlobalType is the type of a global.
type GlobalType struct {
	Type    ValType
	Mutable bool
}

// Global is the definition of a global.
type Global struct {
	GlobalType
	Init   Const
	Offset int
}

// Export is one export.
type Export struct {
	Name   string
	Kind   ExternKind
	Index  uint32 // in the index space of Kind
	Offset int
}

// Append appends the export's bytes.
func (e Export) Append(dst []byte) []byte {
	return AppendU32(append(AppendName(dst, e.Name), byte(e.Kind)), e.Index)
}

// Const is a constant expression of one instruction and its end, the only form
// that WebAssembly 2.0 has. [DecodeLibrary] also accepts several instructions: then Op is
// the last one and Value means nothing.
type Const struct {
	Op       Op     // OpI32Const to OpF64Const, OpGlobalGet, OpRefNull or OpRefFunc
	Value    uint64 // the bits of the constant, sign-extended, or the index
	Pos, End int    // its bytes, the end instruction included
}

// SegmentMode says when a segment is copied.
type SegmentMode byte

// The modes of segments.
const (
	Active      SegmentMode = iota // at instantiation
	Passive                        // by memory.init or table.init
	Declarative                    // never; element segments only
)

// Element is one element segment. Its items stay in the module's bytes, see
// [Module.Items].
type Element struct {
	Mode     SegmentMode
	Table    uint32 // of an active segment
	Start    Const  // where an active segment begins
	Type     ValType
	Count    int // of items
	Pos, End int // of the whole segment
	items    int // offset of the first item
	exprs    bool
}

// Data is one data segment.
type Data struct {
	Mode     SegmentMode
	Memory   uint32 // of an active segment
	Start    Const  // where an active segment begins
	Pos, End int    // of its bytes
}

// Code is the place of a function body, from its local declarations to its
// last end instruction.
type Code struct{ Pos, End int }

// LocalGroup declares Count locals of one type.
type LocalGroup struct {
	Count uint32
	Type  ValType
}

// Append appends the type's bytes.
func (t FuncType) Append(dst []byte) []byte {
	dst = append(dst, 0x60)
	for _, list := range [][]ValType{t.Params, t.Results} {
		dst = AppendU32(dst, uint32(len(list)))
		for _, v := range list {
			dst = append(dst, byte(v))
		}
	}
	return dst
}
