package rewrite

import "github.com/starling-host/starling/host/wasm"

// The cost table, version [CostTableVersion]. spec/determinism.md is normative
// and has the reasons; a change here is a new version.
const (
	costEntry      = 1   // entering a function
	costCall       = 5   // call of a function of the module
	costImport     = 100 // call of an imported function
	costIndirect   = 8   // call_indirect
	costDivide     = 10  // integer division and remainder
	costFloatSlow  = 8   // float division and square root
	costGrow       = 300 // memory.grow, beside its pages
	costPage       = wasm.PageSize / 16
	costBulk       = 8 // memory.copy and memory.fill, beside their bytes
	bytesPerUnit   = 8 // of bulk operations
	bulkChunk      = 1 << 20
	costBulkChunk  = bulkChunk / bytesPerUnit
	bulkUnitsShift = 3 // log2 of bytesPerUnit
)

// cost returns what executing an instruction costs its block. Bulk operations
// and memory.grow cost their block nothing: the helpers that replace them
// charge for them.
func cost(in *wasm.Instr, imported int) uint64 {
	switch op := in.Op; {
	case op == wasm.OpNop, op == wasm.OpBlock, op == wasm.OpElse, op == wasm.OpEnd,
		op == wasm.OpMemoryGrow, op == wasm.OpMemoryCopy, op == wasm.OpMemoryFill:
		return 0
	case op == wasm.OpCall && int64(in.Index) < int64(imported):
		return costImport
	case op == wasm.OpCall:
		return costCall
	case op == wasm.OpCallIndirect:
		return costIndirect
	case op >= wasm.OpI32DivS && op <= wasm.OpI32RemU, op >= wasm.OpI64DivS && op <= wasm.OpI64RemU:
		return costDivide
	case op == wasm.OpF32Div, op == wasm.OpF64Div, op == wasm.OpF32Sqrt, op == wasm.OpF64Sqrt:
		return costFloatSlow
	}
	return 1
}

// stackDelta returns by how much an instruction that is neither control nor
// call changes the height of the operand stack.
func stackDelta(op wasm.Op) int {
	switch {
	case op == wasm.OpLocalGet, op == wasm.OpGlobalGet, op == wasm.OpMemorySize,
		op >= wasm.OpI32Const && op <= wasm.OpF64Const:
		return 1
	case op == wasm.OpDrop, op == wasm.OpLocalSet, op == wasm.OpGlobalSet, isBinary(op):
		return -1
	case op == wasm.OpSelect, op == wasm.OpSelectTyped, op >= wasm.OpI32Store && op <= wasm.OpI64Store32:
		return -2
	case op == wasm.OpMemoryCopy, op == wasm.OpMemoryFill:
		return -3
	}
	return 0
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
