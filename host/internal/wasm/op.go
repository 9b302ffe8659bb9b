package wasm

import "fmt"

// Op is an opcode. Opcodes of two numbers are the prefix in the upper byte and
// the second number in the lower one: memory.copy is 0xfc0a.
type Op uint16

// Control, parametric, variable, memory, reference, table and bulk
// instructions, which readers of bodies tell apart.
const (
	OpUnreachable  Op = 0x00
	OpNop          Op = 0x01
	OpBlock        Op = 0x02
	OpLoop         Op = 0x03
	OpIf           Op = 0x04
	OpElse         Op = 0x05
	OpEnd          Op = 0x0b
	OpBr           Op = 0x0c
	OpBrIf         Op = 0x0d
	OpBrTable      Op = 0x0e
	OpReturn       Op = 0x0f
	OpCall         Op = 0x10
	OpCallIndirect Op = 0x11
	OpDrop         Op = 0x1a
	OpSelect       Op = 0x1b
	OpSelectTyped  Op = 0x1c
	OpLocalGet     Op = 0x20
	OpLocalSet     Op = 0x21
	OpLocalTee     Op = 0x22
	OpGlobalGet    Op = 0x23
	OpGlobalSet    Op = 0x24
	OpTableGet     Op = 0x25
	OpTableSet     Op = 0x26
	OpMemorySize   Op = 0x3f
	OpMemoryGrow   Op = 0x40
	OpI32Const     Op = 0x41
	OpI64Const     Op = 0x42
	OpF32Const     Op = 0x43
	OpF64Const     Op = 0x44
	OpRefNull      Op = 0xd0
	OpRefIsNull    Op = 0xd1
	OpRefFunc      Op = 0xd2
	OpMemoryInit   Op = 0xfc08
	OpDataDrop     Op = 0xfc09
	OpMemoryCopy   Op = 0xfc0a
	OpMemoryFill   Op = 0xfc0b
	OpTableInit    Op = 0xfc0c
	OpElemDrop     Op = 0xfc0d
	OpTableCopy    Op = 0xfc0e
	OpTableGrow    Op = 0xfc0f
	OpTableSize    Op = 0xfc10
	OpTableFill    Op = 0xfc11
)

// Loads.
const (
	OpI32Load Op = 0x28 + iota
	OpI64Load
	OpF32Load
	OpF64Load
	OpI32Load8S
	OpI32Load8U
	OpI32Load16S
	OpI32Load16U
	OpI64Load8S
	OpI64Load8U
	OpI64Load16S
	OpI64Load16U
	OpI64Load32S
	OpI64Load32U
)

// Stores.
const (
	OpI32Store Op = 0x36 + iota
	OpI64Store
	OpF32Store
	OpF64Store
	OpI32Store8
	OpI32Store16
	OpI64Store8
	OpI64Store16
	OpI64Store32
)

// Operators: comparisons, arithmetic and conversions, all without immediates.
// They follow one another from 0x45 to 0xc4.
const (
	OpI32Eqz Op = 0x45 + iota
	OpI32Eq
	OpI32Ne
	OpI32LtS
	OpI32LtU
	OpI32GtS
	OpI32GtU
	OpI32LeS
	OpI32LeU
	OpI32GeS
	OpI32GeU

	OpI64Eqz
	OpI64Eq
	OpI64Ne
	OpI64LtS
	OpI64LtU
	OpI64GtS
	OpI64GtU
	OpI64LeS
	OpI64LeU
	OpI64GeS
	OpI64GeU

	OpF32Eq
	OpF32Ne
	OpF32Lt
	OpF32Gt
	OpF32Le
	OpF32Ge
	OpF64Eq
	OpF64Ne
	OpF64Lt
	OpF64Gt
	OpF64Le
	OpF64Ge

	OpI32Clz
	OpI32Ctz
	OpI32Popcnt
	OpI32Add
	OpI32Sub
	OpI32Mul
	OpI32DivS
	OpI32DivU
	OpI32RemS
	OpI32RemU
	OpI32And
	OpI32Or
	OpI32Xor
	OpI32Shl
	OpI32ShrS
	OpI32ShrU
	OpI32Rotl
	OpI32Rotr

	OpI64Clz
	OpI64Ctz
	OpI64Popcnt
	OpI64Add
	OpI64Sub
	OpI64Mul
	OpI64DivS
	OpI64DivU
	OpI64RemS
	OpI64RemU
	OpI64And
	OpI64Or
	OpI64Xor
	OpI64Shl
	OpI64ShrS
	OpI64ShrU
	OpI64Rotl
	OpI64Rotr

	OpF32Abs
	OpF32Neg
	OpF32Ceil
	OpF32Floor
	OpF32Trunc
	OpF32Nearest
	OpF32Sqrt
	OpF32Add
	OpF32Sub
	OpF32Mul
	OpF32Div
	OpF32Min
	OpF32Max
	OpF32Copysign

	OpF64Abs
	OpF64Neg
	OpF64Ceil
	OpF64Floor
	OpF64Trunc
	OpF64Nearest
	OpF64Sqrt
	OpF64Add
	OpF64Sub
	OpF64Mul
	OpF64Div
	OpF64Min
	OpF64Max
	OpF64Copysign

	OpI32WrapI64
	OpI32TruncF32S
	OpI32TruncF32U
	OpI32TruncF64S
	OpI32TruncF64U
	OpI64ExtendI32S
	OpI64ExtendI32U
	OpI64TruncF32S
	OpI64TruncF32U
	OpI64TruncF64S
	OpI64TruncF64U

	OpF32ConvertI32S
	OpF32ConvertI32U
	OpF32ConvertI64S
	OpF32ConvertI64U
	OpF32DemoteF64
	OpF64ConvertI32S
	OpF64ConvertI32U
	OpF64ConvertI64S
	OpF64ConvertI64U
	OpF64PromoteF32

	OpI32ReinterpretF32
	OpI64ReinterpretF64
	OpF32ReinterpretI32
	OpF64ReinterpretI64
	OpI32Extend8S
	OpI32Extend16S
	OpI64Extend8S
	OpI64Extend16S
	OpI64Extend32S
)

// Saturating truncations.
const (
	OpI32TruncSatF32S Op = 0xfc00 + iota
	OpI32TruncSatF32U
	OpI32TruncSatF64S
	OpI32TruncSatF64U
	OpI64TruncSatF32S
	OpI64TruncSatF32U
	OpI64TruncSatF64S
	OpI64TruncSatF64U
)

// opNames has the names that errors use.
var opNames = map[Op]string{
	OpTableGet: "table.get", OpTableSet: "table.set", OpRefNull: "ref.null", OpRefIsNull: "ref.is_null",
	OpRefFunc: "ref.func", OpMemoryInit: "memory.init", OpDataDrop: "data.drop", OpTableInit: "table.init",
	OpElemDrop: "elem.drop", OpTableCopy: "table.copy", OpTableGrow: "table.grow", OpTableSize: "table.size",
	OpTableFill: "table.fill", OpSelectTyped: "select t", OpMemoryGrow: "memory.grow",
	OpMemoryCopy: "memory.copy", OpMemoryFill: "memory.fill",
}

// String returns the name of the opcodes that are not allowed everywhere, and
// the number of the others.
func (op Op) String() string {
	if name, ok := opNames[op]; ok {
		return name
	}
	if op > 0xff {
		return fmt.Sprintf("opcode %#x %d", op>>8, op&0xff)
	}
	return fmt.Sprintf("opcode %#x", uint16(op))
}

// Append appends the opcode's bytes.
func (op Op) Append(dst []byte) []byte {
	if op > 0xff {
		return append(dst, byte(op>>8), byte(op)) // second numbers are below 0x80
	}
	return append(dst, byte(op))
}

// opFeature names the extension of the language that an opcode byte belongs to,
// for the error that refuses it.
func opFeature(b byte) string {
	switch b {
	case 0x06, 0x07, 0x08, 0x09, 0x0a, 0x18, 0x19, 0x1f:
		return "exception handling"
	case 0x12, 0x13:
		return "tail calls"
	case 0x14, 0x15, 0xd4, 0xd5, 0xd6:
		return "typed function references"
	case 0xd3, 0xfb:
		return "garbage collection"
	case 0xe0, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6:
		return "stack switching"
	case 0xfd:
		return "SIMD"
	case 0xfe:
		return "threads"
	}
	return ""
}

// typeFeature does the same for the first byte of a value type or of a type
// definition.
func typeFeature(b byte) string {
	switch b {
	case 0x63, 0x64: // ref null, ref
		return "typed function references"
	case 0x4e, 0x4f, 0x50, 0x5e, 0x5f, // rec, sub final, sub, array, struct
		0x65, 0x67, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x71, 0x72, 0x73, 0x77, 0x78: // shared, string, array to any, none, noextern, nofunc, i16, i8
		return "garbage collection"
	case 0x69, 0x74: // exn, noexn
		return "exception handling"
	case 0x5d, 0x68, 0x75: // cont, nocont
		return "stack switching"
	}
	return ""
}
