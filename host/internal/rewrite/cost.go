package rewrite

import "github.com/starling-host/starling/internal/wasm"

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

// Cost returns what executing an instruction costs its block. Bulk operations
// and memory.grow cost their block nothing: the helpers that replace them
// charge for them.
func Cost(in *wasm.Instr, imported int) uint64 {
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
