package rewrite

import (
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// Shell returns a rewritten module with bodies that only trap. All else is the
// module's, so an engine that has the code of the whole module needs only this to run
// it; reading and validating the bodies is most of the cost of loading a module. An
// engine without the code runs the shell instead, so call [ExportWhole] before
// anything of the module. It returns an error for bytes that are not a module, and that of the budget.
func Shell(w *work.Budget, rewritten []byte) ([]byte, error) {
	m, err := wasm.Decode(w, rewritten)
	if err == nil {
		err = w.Hold(len(rewritten) + 8*len(m.Code)) // as long at most, and the new bodies
	}
	if err != nil {
		return nil, Malformed(err)
	}
	code := wasm.AppendU32(nil, uint32(len(m.Code)))
	for range m.Code {
		code = append(wasm.AppendU32(code, uint32(len(trapBody))), trapBody...)
	}
	m.SetBody(wasm.SectionCode, code)
	return m.Encode(), nil
}

var (
	wholeType = wasm.FuncType{}
	wholeBody = wasm.Asm{noLocals, byte(wasm.OpEnd)}
	trapBody  = wasm.Asm{noLocals, byte(wasm.OpUnreachable), byte(wasm.OpEnd)}
)
