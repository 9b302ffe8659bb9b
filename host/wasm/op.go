package wasm

import "fmt"

// Op is an opcode. Opcodes of two numbers are the prefix in the upper byte and
// the second number in the lower one: memory.copy is 0xfc0a.
type Op uint16

// The opcodes that have a meaning of their own for a reader of bodies. The
// other ones differ in nothing but their effect on the operand stack.
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
	OpI32Load      Op = 0x28 // the first load
	OpI32Store     Op = 0x36 // the first store
	OpI64Store32   Op = 0x3e // the last store
	OpMemorySize   Op = 0x3f
	OpMemoryGrow   Op = 0x40
	OpI32Const     Op = 0x41
	OpI64Const     Op = 0x42
	OpF32Const     Op = 0x43
	OpF64Const     Op = 0x44
	OpI32Eqz       Op = 0x45 // the first operator without immediates
	OpI32LtS       Op = 0x48
	OpI32LeU       Op = 0x4d
	OpI64Eqz       Op = 0x50
	OpI64GtU       Op = 0x56
	OpI32Clz       Op = 0x67
	OpI32Popcnt    Op = 0x69
	OpI32Add       Op = 0x6a
	OpI32Sub       Op = 0x6b
	OpI32DivS      Op = 0x6d // the first of four divisions and remainders
	OpI32RemU      Op = 0x70
	OpI32And       Op = 0x71
	OpI32Or        Op = 0x72
	OpI32Shl       Op = 0x74
	OpI64Clz       Op = 0x79
	OpI64Popcnt    Op = 0x7b
	OpI64Add       Op = 0x7c
	OpI64Mul       Op = 0x7e
	OpI64DivS      Op = 0x7f // the first of four divisions and remainders
	OpI64RemU      Op = 0x82
	OpI64Shl       Op = 0x86
	OpI64ShrU      Op = 0x88
	OpF32Abs       Op = 0x8b // the first of seven unary operators
	OpF32Sqrt      Op = 0x91
	OpF32Div       Op = 0x95
	OpF64Abs       Op = 0x99 // the first of seven unary operators
	OpF64Sqrt      Op = 0x9f
	OpF64Div       Op = 0xa3
	OpF64Copysign  Op = 0xa6 // the last operator of two operands
	OpI64ExtendU   Op = 0xad
	OpI64Extend32S Op = 0xc4 // the last operator without immediates
	OpRefNull      Op = 0xd0
	OpRefIsNull    Op = 0xd1
	OpRefFunc      Op = 0xd2
	OpTruncSat     Op = 0xfc00 // the first of eight saturating truncations
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

// feature names the extension of the language that an opcode byte belongs to,
// for the error that refuses it.
func feature(b byte) string {
	switch b {
	case 0x06, 0x07, 0x08, 0x09, 0x0a, 0x18, 0x19, 0x1f:
		return "exception handling"
	case 0x12, 0x13:
		return "tail calls"
	case 0x14, 0x15, 0xd3, 0xd4, 0xd5, 0xd6:
		return "typed function references"
	case 0xfb:
		return "garbage collection"
	case 0xfd:
		return "SIMD"
	case 0xfe:
		return "threads"
	}
	return ""
}
