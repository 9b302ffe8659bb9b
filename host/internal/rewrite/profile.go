package rewrite

import "github.com/starling-host/starling/internal/wasm"

// enterType is the type of the import [EnterName].
var enterType = wasm.FuncType{Params: []wasm.ValType{wasm.I32}}

// addedImports are the functions that the rewriter imports, refill first.
func (w *meter) addedImports() [][]byte {
	add := func(name string, t wasm.FuncType) []byte {
		return importOf(RefillModule, name, wasm.ExternFunc, wasm.AppendU32(nil, w.typeIndex(t)))
	}
	added := [][]byte{add(RefillName, wasm.FuncType{})}
	if w.o.Profile {
		added = append(added, add(EnterName, enterType), add(LeaveName, wasm.FuncType{}))
	}
	return added
}

// wrapped reports whether the code of the function that is written becomes one
// block, so that every way out leads to its end.
func (w *meter) wrapped() bool { return !w.p.leaf || w.o.Profile }
