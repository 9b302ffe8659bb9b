package rewrite

import "github.com/starling-host/starling/internal/wasm"

// arity returns how many operands an instruction takes and leaves, except for
// control and calls.
func arity(op wasm.Op) (pops, pushes int) {
	switch {
	case op == wasm.OpLocalGet, op == wasm.OpGlobalGet, op == wasm.OpMemorySize,
		op >= wasm.OpI32Const && op <= wasm.OpF64Const:
		return 0, 1
	case op == wasm.OpDrop, op == wasm.OpLocalSet, op == wasm.OpGlobalSet:
		return 1, 0
	case op == wasm.OpSelect, op == wasm.OpSelectTyped:
		return 3, 1
	case op >= wasm.OpI32Store && op <= wasm.OpI64Store32:
		return 2, 0
	case op == wasm.OpMemoryCopy, op == wasm.OpMemoryFill:
		return 3, 0
	case op == wasm.OpNop:
		return 0, 0
	case isBinary(op):
		return 2, 1
	}
	return 1, 1
}

// stackDelta returns by how much such an instruction changes the height of the
// operand stack.
func stackDelta(op wasm.Op) int {
	pops, pushes := arity(op)
	return pushes - pops
}

// isBinary reports whether op is a comparison or operator of two operands: all
// of the range but the blocks of unary ones.
func isBinary(op wasm.Op) bool {
	switch {
	case op < wasm.OpI32Eqz || op > wasm.OpF64Copysign:
		return false
	case op == wasm.OpI32Eqz, op == wasm.OpI64Eqz,
		op >= wasm.OpI32Clz && op <= wasm.OpI32Popcnt,
		op >= wasm.OpI64Clz && op <= wasm.OpI64Popcnt,
		op >= wasm.OpF32Abs && op <= wasm.OpF32Sqrt,
		op >= wasm.OpF64Abs && op <= wasm.OpF64Sqrt:
		return false
	}
	return true
}
