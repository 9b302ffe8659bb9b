package component

import (
	"context"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// Prune returns a module without the imports that drop reports: a call of one of them traps. The
// imports of a module list everything it can do, and an interpreter has the imports that any of its
// programs may use. The module keeps its memory, data and exported functions, and the custom
// section keep. It must be one that this project built: Prune panics if it is malformed.
func Prune(b []byte, keep string, drop func(module, name string) bool) []byte {
	k := &linker{reading: &reading{budget: work.Trusted(context.Background())}, typeOf: map[string]uint32{}}
	p := &part{Module: k.decode(b, 0)}
	k.join(p, func(im wasm.Import) any {
		t := at(p.Types, im.Type, "type")
		if drop(im.Module, im.Name) {
			return k.trap(im.Name, t)
		}
		return k.add(&fn{module: im.Module, name: im.Name, t: t})
	})
	k.parts = append(k.parts, p)
	var exports []export
	for _, e := range p.Exports {
		switch e.Kind {
		case wasm.ExternFunc:
			exports = append(exports, export{e.Name, at(p.funcs, e.Index, "function")})
		case wasm.ExternMemory:
			exports = append(exports, export{e.Name, nil})
		}
	}
	return k.encode(exports, p.Custom(keep).Body)
}
