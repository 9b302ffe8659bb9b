//go:build !js

package interp

import (
	_ "embed"
	"sync"

	"github.com/starling-host/starling/internal/zstd"
)

var (
	//go:embed quickjs.wasm.zst
	quickJS []byte
	//go:embed run_js.qjs.zst
	runJS []byte
	//go:embed python.wasm.zst
	python []byte
)

// Python is the interpreter of run_py and of tools in Python.
var Python = builtin(func() []byte { return decompress(python) })

// JavaScript is the engine of run_js and of tools in TypeScript and JavaScript.
var JavaScript = builtin(func() []byte { return decompress(quickJS) })

// Tools are the tools that run programs of a model, by the reference to them.
var Tools = map[string]*Builtin{
	"run_js": builtin(func() []byte {
		wasm, err := Pack(JavaScript.Wasm(), File{Name: "run_js.js", Text: decompress(runJS)})
		if err != nil {
			panic(err)
		}
		return wasm
	}),
	"run_py": Python,
}

func builtin(wasm func() []byte) *Builtin {
	return &Builtin{sync.OnceValue(wasm)}
}

// decompress returns what a file of this package has. A test decompresses each of them.
func decompress(frame []byte) []byte {
	b, err := zstd.Decompress(frame, 64<<20)
	if err != nil {
		panic(err)
	}
	return b
}
