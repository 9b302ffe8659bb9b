package rewrite

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
)

// huge is 2^32-1 as a count.
const huge = "\xff\xff\xff\xff\x0f"

// raw is a module of literal sections.
func raw(sections ...string) []byte {
	return []byte(wasmtest.Header + strings.Join(sections, ""))
}

func section(id wasm.SectionID, body string) string {
	return string(wasmtest.Section(id, []byte(body)))
}

// TestHostileBytes has the smallest modules that kill or stall a process which
// gives them to an engine unchecked. The gate must refuse each one without
// allocating in proportion to its claims.
func TestHostileBytes(t *testing.T) {
	oneType := section(wasm.SectionType, "\x01\x60\x00\x00")
	oneFunc := oneType + section(wasm.SectionFunction, "\x01\x00")
	body := func(code string) string {
		return oneFunc + section(wasm.SectionCode, "\x01"+string(wasm.AppendName(nil, code)))
	}
	tests := []struct {
		name   string
		module []byte
		want   string
	}{
		{"types", raw(section(wasm.SectionType, huge)), "types"},
		{"parameters of a type", raw(section(wasm.SectionType, "\x01\x60"+huge)), "parameters"},
		{"imports", raw(section(wasm.SectionImport, huge)), "imports"},
		{"length of an import name", raw(section(wasm.SectionImport, "\x01"+huge)), "bytes"},
		{"functions", raw(section(wasm.SectionFunction, huge)), "functions"},
		{"tables", raw(section(wasm.SectionTable, huge)), "tables"},
		{"memories", raw(section(wasm.SectionMemory, huge)), "memories"},
		{"globals", raw(section(wasm.SectionGlobal, huge)), "globals"},
		{"exports", raw(section(wasm.SectionExport, huge)), "exports"},
		{"exports, 2^26", raw(section(wasm.SectionExport, "\x80\x80\x80\x20")), "exports"},
		{"exports within the limit but not there", raw(section(wasm.SectionExport, "\xe8\x07")), "1000 exports in 0 bytes"},
		{"element segments", raw(section(wasm.SectionElement, huge)), "element segments"},
		{"items of an element segment", raw(section(wasm.SectionElement, "\x01\x01\x00"+huge)), "items"},
		{"function bodies", raw(section(wasm.SectionCode, huge)), "functions"},
		{"data segments", raw(section(wasm.SectionData, huge)), "data segments"},
		{"bytes of a data segment", raw(section(wasm.SectionData, "\x01\x01"+huge)), "bytes expected"},
		{"size of a section", raw("\x01" + huge), "bytes expected"},
		{"groups of locals", raw(body(huge + "\x0b")), "groups of locals"},
		{"locals, 2^32-1", raw(body("\x01" + huge + "\x7f\x0b")), "locals"},
		{"locals, 2^27", raw(body("\x01\x80\x80\x80\x40\x7f\x0b")), "locals"},
		{"locals, two groups that overflow together", raw(body("\x02" + huge + "\x7f" + huge + "\x7f\x0b")), "locals"},
		{"labels of a br_table", raw(body("\x00\x41\x00\x0e" + huge + "\x0b")), "labels"},
		{"table entries", raw(section(wasm.SectionTable, "\x01\x70\x00\x80\x80\x80\x40")), "table entries"},
		{"a call of a function without a type", raw(
			section(wasm.SectionType, "\x01\x60\x00\x00"), section(wasm.SectionFunction, "\x02\x00\x63"),
			section(wasm.SectionCode, "\x02\x04\x00\x10\x01\x0b\x02\x00\x0b")), "type index 99"},
		{"a name section, met on the way to a refusal", raw(body("\x00\xfd\x0c\x0b"), section(wasm.SectionCustom, "\x04name\x01\x05"+huge)), "SIMD"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Check(work.Trusted(context.Background()), tt.module, DefaultLimits())
			var r *Refusal
			if !errors.As(err, &r) || !strings.Contains(r.Error(), tt.want) {
				t.Fatalf("got %v, want a refusal of %q", err, tt.want)
			}
			if bytes := wasmtest.Allocated(func() { Check(work.Trusted(context.Background()), tt.module, DefaultLimits()) }); bytes > 16<<10 {
				t.Errorf("allocated %d bytes for a module of %d", bytes, len(tt.module))
			}
			if bytes := wasmtest.Allocated(func() { wasm.Decode(work.Trusted(context.Background()), tt.module) }); bytes > 16<<10 {
				t.Errorf("the decoder allocated %d bytes for a module of %d", bytes, len(tt.module))
			}
		})
	}
}

// TestCompileBombs has the shapes whose compilation grows faster than they do.
// For each, the gate must stop between a harmless size and a size that took
// seconds or hundreds of megabytes.
func TestCompileBombs(t *testing.T) {
	tests := []struct {
		name          string
		harmless, bad int
		shape         func(n int) *wasm.Asm
		locals        uint32
	}{
		{"nested blocks", 500, 10_000, func(n int) *wasm.Asm {
			a := code()
			for range n {
				a.Block(wasm.OpBlock, wasm.BlockEmpty)
			}
			return a.Op(repeat(n, wasm.OpEnd)...)
		}, 0},
		{"nested loops", 500, 10_000, func(n int) *wasm.Asm {
			a := code()
			for range n {
				a.Block(wasm.OpLoop, wasm.BlockEmpty)
			}
			return a.Op(repeat(n, wasm.OpEnd)...)
		}, 0},
		{"ifs in a row", 1_000, 10_000, func(n int) *wasm.Asm {
			a := code()
			for range n {
				a.Index(wasm.OpLocalGet, 0).Block(wasm.OpIf, wasm.BlockEmpty).Op(wasm.OpEnd)
			}
			return a
		}, 0},
		{"ifs times locals", 100, 1_000, func(n int) *wasm.Asm {
			a := code()
			for i := range uint32(n) {
				a.Index(wasm.OpLocalGet, 0).Block(wasm.OpIf, wasm.BlockEmpty).I32(1).Index(wasm.OpLocalSet, 1+i%4_000).Op(wasm.OpEnd)
			}
			return a
		}, 4_000},
		{"loops times locals", 25, 200, func(n int) *wasm.Asm {
			a := code()
			for i := range uint32(n) {
				a.Block(wasm.OpLoop, wasm.BlockEmpty).I32(1).Index(wasm.OpLocalSet, 1+i).Index(wasm.OpLocalGet, 1+i).Index(wasm.OpBrIf, 0).Op(wasm.OpEnd)
			}
			return a
		}, 4_000},
		{"nested loops times locals", 30, 100, func(n int) *wasm.Asm {
			a := code()
			for range n {
				a.Block(wasm.OpLoop, wasm.BlockEmpty)
			}
			for i := range uint32(1_000) {
				a.Index(wasm.OpLocalGet, 1+i).I32(1).Op(wasm.OpI32Add).Index(wasm.OpLocalSet, 1+i)
			}
			for range n {
				a.Index(wasm.OpLocalGet, 0).Index(wasm.OpBrIf, 0).Op(wasm.OpEnd)
			}
			return a
		}, 1_000},
		{"bulk operations", 500, 10_000, func(n int) *wasm.Asm {
			a := code()
			for range n {
				a.I32(0).I32(0).I32(0).Memory(wasm.OpMemoryFill)
			}
			return a
		}, 0},
		{"labels", 4_000, 10_000, func(n int) *wasm.Asm {
			return code().I32(0).BrTable(make([]uint32, n+1)...)
		}, 0},
		{"br_tables in a row", 50, 600, func(n int) *wasm.Asm {
			a := code()
			for range n {
				a.Block(wasm.OpBlock, wasm.BlockEmpty).Index(wasm.OpLocalGet, 0).BrTable(make([]uint32, 501)...).Op(wasm.OpEnd)
			}
			return a
		}, 0},
		{"branches out of one block", 4_000, 17_000, func(n int) *wasm.Asm {
			a := code().Block(wasm.OpBlock, wasm.BlockEmpty)
			for range n {
				a.Index(wasm.OpLocalGet, 0).Index(wasm.OpBrIf, 0)
			}
			return a.Op(wasm.OpEnd)
		}, 0},
		{"indirect calls", 2_000, 20_000, func(n int) *wasm.Asm {
			a := code()
			for range n {
				a.I32(0).I32(0).Index(wasm.OpCallIndirect, 0)
			}
			return a
		}, 0},
		{"calls", 10_000, 120_000, func(n int) *wasm.Asm {
			a := code()
			for range n {
				a.I32(0).Index(wasm.OpCall, 0)
			}
			return a
		}, 0},
		{"bytes of straight code", 10_000, 200_000, func(n int) *wasm.Asm {
			a := code()
			for range n {
				a.I32(0).Op(wasm.OpDrop)
			}
			return a
		}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			build := func(n int) []byte {
				m := wasmtest.Module{Memory: wasmtest.Pages(1), Table: wasmtest.Pages(1), Funcs: []wasmtest.Func{{
					Type: wasmtest.Type("i:"), Locals: []wasm.LocalGroup{{Count: tt.locals, Type: wasm.I32}}, Code: tt.shape(n),
				}}}
				return m.Bytes()
			}
			if _, err := Check(work.Trusted(context.Background()), build(tt.harmless), DefaultLimits()); err != nil {
				t.Errorf("refuses %d: %v", tt.harmless, err)
			}
			_, err := Check(work.Trusted(context.Background()), build(tt.bad), DefaultLimits())
			var r *Refusal
			if !errors.As(err, &r) || r.Value <= r.Limit || r.Func != 0 {
				t.Errorf("accepts %d: %v", tt.bad, err)
			}
		})
	}
}

func repeat(n int, op wasm.Op) []wasm.Op {
	ops := make([]wasm.Op, n)
	for i := range ops {
		ops[i] = op
	}
	return ops
}
