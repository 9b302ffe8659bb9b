package wasmtest

import (
	"math"
	"slices"

	"github.com/starling-host/starling/internal/wasm"
)

// operator is an instruction without immediates.
type operator struct {
	op  wasm.Op
	in  []wasm.ValType
	out wasm.ValType
}

// span returns the operators from first to last, which all have one type, in
// the letters of [Type].
func span(letters string, first, last wasm.Op) []operator {
	t := Type(letters)
	var all []operator
	for op := first; op <= last; op++ {
		all = append(all, operator{op, t.Params, t.Results[0]})
	}
	return all
}

// operators are all instructions that only compute (core specification,
// section 5.4.8).
var operators = slices.Concat(
	span("i:i", wasm.OpI32Eqz, wasm.OpI32Eqz), span("ii:i", wasm.OpI32Eq, wasm.OpI32GeU),
	span("I:i", wasm.OpI64Eqz, wasm.OpI64Eqz), span("II:i", wasm.OpI64Eq, wasm.OpI64GeU),
	span("ff:i", wasm.OpF32Eq, wasm.OpF32Ge), span("FF:i", wasm.OpF64Eq, wasm.OpF64Ge),
	span("i:i", wasm.OpI32Clz, wasm.OpI32Popcnt), span("ii:i", wasm.OpI32Add, wasm.OpI32Rotr),
	span("I:I", wasm.OpI64Clz, wasm.OpI64Popcnt), span("II:I", wasm.OpI64Add, wasm.OpI64Rotr),
	span("f:f", wasm.OpF32Abs, wasm.OpF32Sqrt), span("ff:f", wasm.OpF32Add, wasm.OpF32Copysign),
	span("F:F", wasm.OpF64Abs, wasm.OpF64Sqrt), span("FF:F", wasm.OpF64Add, wasm.OpF64Copysign),
	span("I:i", wasm.OpI32WrapI64, wasm.OpI32WrapI64),
	span("f:i", wasm.OpI32TruncF32S, wasm.OpI32TruncF32U), span("F:i", wasm.OpI32TruncF64S, wasm.OpI32TruncF64U),
	span("i:I", wasm.OpI64ExtendI32S, wasm.OpI64ExtendI32U),
	span("f:I", wasm.OpI64TruncF32S, wasm.OpI64TruncF32U), span("F:I", wasm.OpI64TruncF64S, wasm.OpI64TruncF64U),
	span("i:f", wasm.OpF32ConvertI32S, wasm.OpF32ConvertI32U), span("I:f", wasm.OpF32ConvertI64S, wasm.OpF32ConvertI64U),
	span("F:f", wasm.OpF32DemoteF64, wasm.OpF32DemoteF64),
	span("i:F", wasm.OpF64ConvertI32S, wasm.OpF64ConvertI32U), span("I:F", wasm.OpF64ConvertI64S, wasm.OpF64ConvertI64U),
	span("f:F", wasm.OpF64PromoteF32, wasm.OpF64PromoteF32),
	span("f:i", wasm.OpI32ReinterpretF32, wasm.OpI32ReinterpretF32), span("F:I", wasm.OpI64ReinterpretF64, wasm.OpI64ReinterpretF64),
	span("i:f", wasm.OpF32ReinterpretI32, wasm.OpF32ReinterpretI32), span("I:F", wasm.OpF64ReinterpretI64, wasm.OpF64ReinterpretI64),
	span("i:i", wasm.OpI32Extend8S, wasm.OpI32Extend16S), span("I:I", wasm.OpI64Extend8S, wasm.OpI64Extend32S),
	span("f:i", wasm.OpI32TruncSatF32S, wasm.OpI32TruncSatF32U), span("F:i", wasm.OpI32TruncSatF64S, wasm.OpI32TruncSatF64U),
	span("f:I", wasm.OpI64TruncSatF32S, wasm.OpI64TruncSatF32U), span("F:I", wasm.OpI64TruncSatF64S, wasm.OpI64TruncSatF64U),
)

// giving has the operators by the type of their result.
var giving = func() map[wasm.ValType][]operator {
	by := map[wasm.ValType][]operator{}
	for _, o := range operators {
		by[o.out] = append(by[o.out], o)
	}
	return by
}()

// computesNaN reports whether an instruction may give a NaN whose bits the
// specification leaves open.
func computesNaN(op wasm.Op) bool {
	switch {
	case op >= wasm.OpF32Ceil && op <= wasm.OpF32Max, op >= wasm.OpF64Ceil && op <= wasm.OpF64Max,
		op == wasm.OpF32DemoteF64, op == wasm.OpF64PromoteF32:
		return true
	}
	return false
}

// isDivision and isTrappingTrunc tell the operators that trap on some operands.
func isDivision(op wasm.Op) bool {
	return op >= wasm.OpI32DivS && op <= wasm.OpI32RemU || op >= wasm.OpI64DivS && op <= wasm.OpI64RemU
}

func isTrappingTrunc(op wasm.Op) bool {
	return op >= wasm.OpI32TruncF32S && op <= wasm.OpI64TruncF64U && op != wasm.OpI64ExtendI32S && op != wasm.OpI64ExtendI32U
}

// access is a load or store and the logarithm of the bytes that it moves.
type access struct {
	op   wasm.Op
	t    wasm.ValType
	size uint32
}

var loads = []access{
	{wasm.OpI32Load, wasm.I32, 2}, {wasm.OpI64Load, wasm.I64, 3}, {wasm.OpF32Load, wasm.F32, 2}, {wasm.OpF64Load, wasm.F64, 3},
	{wasm.OpI32Load8S, wasm.I32, 0}, {wasm.OpI32Load8U, wasm.I32, 0}, {wasm.OpI32Load16S, wasm.I32, 1}, {wasm.OpI32Load16U, wasm.I32, 1},
	{wasm.OpI64Load8S, wasm.I64, 0}, {wasm.OpI64Load8U, wasm.I64, 0}, {wasm.OpI64Load16S, wasm.I64, 1}, {wasm.OpI64Load16U, wasm.I64, 1},
	{wasm.OpI64Load32S, wasm.I64, 2}, {wasm.OpI64Load32U, wasm.I64, 2},
}

var stores = []access{
	{wasm.OpI32Store, wasm.I32, 2}, {wasm.OpI64Store, wasm.I64, 3}, {wasm.OpF32Store, wasm.F32, 2}, {wasm.OpF64Store, wasm.F64, 3},
	{wasm.OpI32Store8, wasm.I32, 0}, {wasm.OpI32Store16, wasm.I32, 1},
	{wasm.OpI64Store8, wasm.I64, 0}, {wasm.OpI64Store16, wasm.I64, 1}, {wasm.OpI64Store32, wasm.I64, 2},
}

// Values at which instructions change their behaviour.
var (
	ints = []uint64{
		0, 1, 2, 7, 31, 32, 63, 64, 0xff, 0x7fff, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
		1<<63 - 1, 1 << 63, math.MaxUint64, math.MaxUint64 - 1,
	}
	floats32 = []uint32{
		0, 0x80000000, 0x3f800000, 0xbf800000, 0x3f000000, 0x3fc00000, 0x40200000, 0x7f800000, 0xff800000, // 0 -0 1 -1 0.5 1.5 2.5 inf -inf
		0x7fc00000, 0xffc00000, 0x7fc12345, 0x7f800001, 0xffa00000, // NaNs: canonical, negative, payload, signalling
		1, 0x00800000, 0x7f7fffff, 0x4b000001, // the smallest, the smallest normal, the largest, 2^23+1
		0x4f000000, 0x4effffff, 0xcf000000, 0x4f800000, 0x5f000000, 0xdf000000, 0x5f800000, // around 2^31, 2^32, 2^63, 2^64
	}
	floats64 = []uint64{
		0, 1 << 63, 0x3ff0000000000000, 0xbff0000000000000, 0x3fe0000000000000, 0x3ff8000000000000, 0x4004000000000000,
		0x7ff0000000000000, 0xfff0000000000000,
		0x7ff8000000000000, 0xfff8000000000000, 0x7ff8000012345678, 0x7ff0000000000001, 0xfff4000000000000,
		1, 0x0010000000000000, 0x7fefffffffffffff, 0x4330000000000001,
		0x41dfffffffc00000, 0x41e0000000000000, 0xc1e0000000200000, 0x41f0000000000000, 0x43e0000000000000, 0xc3e0000000000000, 0x43f0000000000000,
	}
)

// constant returns the bits of a constant.
func constant(s *source, t wasm.ValType) uint64 {
	if s.oneIn(4) {
		return s.bits()
	}
	switch t {
	case wasm.F32:
		return uint64(pick(s, floats32))
	case wasm.F64:
		return pick(s, floats64)
	}
	return pick(s, ints)
}
