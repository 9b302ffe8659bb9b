//go:build !js

package interp

import _ "embed"

//go:embed run_js.wasm
var runJS []byte

// Tools are the tools that run programs of a model, by the reference to them.
var Tools = map[string]*Builtin{
	"run_js": {"JavaScript", func() []byte { return runJS }},
}
