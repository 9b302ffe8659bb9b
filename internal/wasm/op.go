package wasm

import (
	"fmt"
	"strings"
)

// Op is an opcode. Opcodes of two numbers are the prefix in the upper byte and
// the second number in the lower one: memory.copy is 0xfc0a.
type Op uint16

//go:generate go run generate.go

// mnemonics are the names of the opcodes of one byte, in their order, and prefixed those behind the
// prefix 0xfc. generate.go makes the constants in opcodes.go from them.
var mnemonics = strings.Fields(`unreachable nop block loop if else - - - - - end br br_if br_table return call call_indirect - - - - - - - -
drop select select_typed - - - local.get local.set local.tee global.get global.set table.get table.set - i32.load
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
f64.reinterpret_i64 i32.extend8_s i32.extend16_s i64.extend8_s i64.extend16_s i64.extend32_s
- - - - - - - - - - - ref.null ref.is_null ref.func`)

var prefixed = strings.Fields(`i32.trunc_sat_f32_s i32.trunc_sat_f32_u i32.trunc_sat_f64_s i32.trunc_sat_f64_u i64.trunc_sat_f32_s
i64.trunc_sat_f32_u i64.trunc_sat_f64_s i64.trunc_sat_f64_u memory.init data.drop memory.copy memory.fill
table.init elem.drop table.copy table.grow table.size table.fill`)

// String returns the name in the text format, or the number.
func (op Op) String() string {
	names, number := mnemonics, int(op)
	if op>>8 == 0xfc {
		names, number = prefixed, int(op&0xff)
	}
	switch {
	case op == OpSelectTyped:
		return "select t"
	case number < len(names) && names[number] != "-":
		return names[number]
	case op > 0xff:
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
