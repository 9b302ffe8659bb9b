package hostiletest_test

import (
	"context"
	"slices"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// asCommand returns a module that the gate accepts as a program: with a memory and a function
// () -> () that are exported, in place of its other exports.
func asCommand(b []byte) ([]byte, error) {
	m, err := wasm.Decode(work.Trusted(context.Background()), b)
	if err != nil {
		return nil, err
	}
	add := func(id wasm.SectionID, n int, item ...byte) {
		var items []byte
		if s := m.Section(id); s != nil {
			r := wasm.NewReader(s.Body, 0, len(s.Body))
			r.U32()
			items = s.Body[len(s.Body)-r.Len():]
		}
		m.SetBody(id, slices.Concat(wasm.AppendU32(nil, uint32(n+1)), items, item))
	}
	types := slices.Clone(m.Types)
	start := slices.IndexFunc(m.Funcs, func(t uint32) bool { return len(types[t].Params)+len(types[t].Results) == 0 })
	if start < 0 {
		start = len(m.Funcs)
		add(wasm.SectionType, len(types), 0x60, 0, 0)
		add(wasm.SectionFunction, len(m.Funcs), wasm.AppendU32(nil, uint32(len(types)))...)
		add(wasm.SectionCode, len(m.Code), 2, 0, byte(wasm.OpEnd))
	}
	if len(m.Memories) == 0 {
		m.SetBody(wasm.SectionMemory, []byte{1, 0, 0})
	}
	exports := append(wasm.AppendName([]byte{2}, abi.ExportMemory), byte(wasm.ExternMemory), 0)
	exports = append(wasm.AppendName(exports, abi.ExportStart), byte(wasm.ExternFunc))
	m.SetBody(wasm.SectionExport, wasm.AppendU32(exports, uint32(m.NumImportedFuncs()+start)))
	return m.Encode(), nil
}
