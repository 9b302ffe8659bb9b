package rewrite

import "github.com/starling-host/starling/internal/wasm"

// features are a module's uses of proposals beyond the first version of
// WebAssembly, and of floats, which the rewriter treats.
type features uint

const (
	floats features = 1 << iota
	signExtension
	saturating
	bulkMemory
	multiValue
	mutableExports
)

// featureNames are the proposals' names, as Info uses them.
var featureNames = []string{
	"floating point", "sign extension", "saturating float-to-int", "bulk memory", "multiple values", "mutable globals exported",
}

// names lists the features, in the order of their bits.
func (f features) names() []string {
	used := []string{}
	for i, name := range featureNames {
		if f&(1<<i) != 0 {
			used = append(used, name)
		}
	}
	return used
}

// featureOf returns the feature that an instruction belongs to.
func featureOf(op wasm.Op) features {
	switch {
	case op < wasm.OpF32Eq:
		return 0
	case op >= wasm.OpMemoryCopy:
		return bulkMemory // the other bulk operations are refused
	case op >= wasm.OpI32TruncSatF32S:
		return saturating | floats
	case op >= wasm.OpI32Extend8S:
		return signExtension
	case op <= wasm.OpF64Ge,
		op >= wasm.OpF32Abs && op <= wasm.OpF64Copysign,
		op > wasm.OpI32WrapI64 && op != wasm.OpI64ExtendI32S && op != wasm.OpI64ExtendI32U:
		return floats
	}
	return 0
}

// declaredFeatures returns the features that show outside of bodies.
func declaredFeatures(m *wasm.Module) features {
	var f features
	for _, t := range m.Types {
		if len(t.Results) > 1 {
			f |= multiValue
		}
	}
	for _, e := range m.Exports {
		if e.Kind == wasm.ExternGlobal && m.Globals[e.Index].Mutable {
			f |= mutableExports
		}
	}
	return f
}
