package wasm

import (
	"fmt"
	"strings"
)

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

// mnemonics are the names of the opcodes of one byte, in their order.
var mnemonics = strings.Fields(`unreachable nop block loop if else - - - - - end br br_if br_table return call call_indirect - - - - - - - -
drop select select - - - local.get local.set local.tee global.get global.set table.get table.set - i32.load
i64.load f32.load f64.load i32.load8_s i32.load8_u i32.load16_s i32.load16_u i64.load8_s i64.load8_u
i64.load16_s i64.load16_u i64.load32_s i64.load32_u i32.store i64.store f32.store f64.store i32.store8
i32.store16 i64.store8 i64.store16 i64.store32 memory.size memory.grow i32.const i64.const f32.const f64.const
i32.eqz i32.eq i32.ne i32.lt_s i32.lt_u i32.gt_s i32.gt_u i32.le_s i32.le_u i32.ge_s i32.ge_u i64.eqz i64.eq
i64.ne i64.lt_s i64.lt_u i64.gt_s i64.gt_u i64.le_s i64.le_u i64.ge_s i64.ge_u f32.eq f32.ne f32.lt f32.gt
f32.le f32.ge f64.eq f64.ne f64.lt f64.gt f64.le f64.ge i32.clz i32.ctz i32.popcnt i32.add i32.sub i32.mul
i32.div_s i32.div_u i32.rem_s i32.rem_u i32.and i32.or i32.xor i32.shl i32.shr_s i32.shr_u i32.rotl i32.rotr
i64.clz i64.ctz i64.popcnt i64.add i64.sub i64.mul i64.div_s i64.div_u i64.rem_s i64.rem_u i64.and i64.or
i64.xor i64.shl i64.shr_s i64.shr_u i64.rotl i64.rotr f32.abs f32.neg f32.ceil f32.floor f32.trunc f32.nearest
f32.sqrt f32.add f32.sub f32.mul f32.div f32.min f32.max f32.copysign f64.abs f64.neg f64.ceil f64.floor
f64.trunc f64.nearest f64.sqrt f64.add f64.sub f64.mul f64.div f64.min f64.max f64.copysign i32.wrap_i64
i32.trunc_f32_s i32.trunc_f32_u i32.trunc_f64_s i32.trunc_f64_u i64.extend_i32_s i64.extend_i32_u
i64.trunc_f32_s i64.trunc_f32_u i64.trunc_f64_s i64.trunc_f64_u f32.convert_i32_s f32.convert_i32_u
f32.convert_i64_s f32.convert_i64_u f32.demote_f64 f64.convert_i32_s f64.convert_i32_u f64.convert_i64_s
f64.convert_i64_u f64.promote_f32 i32.reinterpret_f32 i64.reinterpret_f64 f32.reinterpret_i32
f64.reinterpret_i64 i32.extend8_s i32.extend16_s i64.extend8_s i64.extend16_s i64.extend32_s`)

// String returns the name in the text format, or the number.
func (op Op) String() string {
	if name, ok := opNames[op]; ok {
		return name
	}
	if int(op) < len(mnemonics) && mnemonics[op] != "-" {
		return mnemonics[op]
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
