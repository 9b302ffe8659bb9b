package rewrite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// withCode is a module of one function () -> () and all that code may need.
func withCode(a *wasm.Asm) []byte {
	m := wasmtest.Module{
		Memory: wasmtest.Pages(1), Table: wasmtest.Pages(1),
		Globals: []wasmtest.Global{{Type: wasm.I32, Mutable: true}},
		Funcs:   []wasmtest.Func{{Export: "run", Code: a}},
	}
	return m.Bytes()
}

func asm(bytes ...byte) *wasm.Asm { return (*wasm.Asm)(&bytes) }

func TestRefusals(t *testing.T) {
	one := uint32(1)
	module := func(m wasmtest.Module) []byte { return m.Bytes() }
	shared := section(wasm.SectionMemory, "\x01\x03\x01\x02")
	tests := []struct {
		name   string
		module []byte
		want   string
	}{
		{"nothing", nil, "empty"},
		{"a text file", []byte("(module)"), "does not begin with"},
		{"a binary that is cut in the header", []byte(wasmtest.Header[:6]), "unexpected end"},
		{"a binary that is cut in a section", withCode(code())[:20], "bytes expected"},
		{"a component", []byte("\x00asm\x0d\x00\x01\x00"), "component"},
		{"another version", []byte("\x00asm\x02\x00\x00\x00"), "unknown version"},
		{"an unknown section", raw(section(14, "")), "unknown section 14"},
		{"exception tags", raw(section(13, "\x00")), "exception handling"},
		{"sections out of order", raw(section(wasm.SectionFunction, "\x00"), section(wasm.SectionType, "\x00")), "out of order"},
		{"a section twice", raw(section(wasm.SectionType, "\x00"), section(wasm.SectionType, "\x00")), "out of order"},
		{"bytes after the items of a section", raw(section(wasm.SectionType, "\x00\x00")), "after the end"},
		{"shared memory", raw(shared), "threads"},
		{"64-bit memory", raw(section(wasm.SectionMemory, "\x01\x04\x01")), "memory64"},
		{"two memories", raw(section(wasm.SectionMemory, "\x02\x00\x00\x00\x00")), "memories: 2, the limit is 1"},
		{"memory of more than 65536 pages", module(wasmtest.Module{Memory: &wasm.Limits{Max: 65537, HasMax: true}}), "65537 pages"},
		{"memory with its maximum below its minimum", module(wasmtest.Module{Memory: &wasm.Limits{Min: 2, Max: 1, HasMax: true}}), "at most 1"},
		{"two tables", raw(section(wasm.SectionTable, "\x02\x70\x00\x00\x70\x00\x00")), "tables"},
		{"a table of externref", raw(section(wasm.SectionTable, "\x01\x6f\x00\x00")), "externref"},
		{"a global of funcref", raw(section(wasm.SectionGlobal, "\x01\x70\x00\xd0\x70\x0b")), "funcref"},
		{"a global that begins as another", raw(section(wasm.SectionGlobal, "\x01\x7f\x00\x23\x00\x0b")), "constant of type i32"},
		{"a global of the wrong type", raw(section(wasm.SectionGlobal, "\x01\x7f\x00\x42\x00\x0b")), "constant of type i32"},
		{"mutability that is no boolean", raw(section(wasm.SectionGlobal, "\x01\x7f\x02\x41\x00\x0b")), "mutability"},
		{"a parameter of externref", raw(section(wasm.SectionType, "\x01\x60\x01\x6f\x00")), "externref"},
		{"a vector parameter", raw(section(wasm.SectionType, "\x01\x60\x01\x7b\x00")), "SIMD"},
		{"two exports of one name", module(wasmtest.Module{Memory: wasmtest.Pages(1), Exports: []wasmtest.Export{
			{Name: "m", Kind: wasm.ExternMemory}, {Name: "m", Kind: wasm.ExternMemory}}}), `two exports are named "m"`},
		{"an export of the reserved names", module(wasmtest.Module{Memory: wasmtest.Pages(1), Exports: []wasmtest.Export{
			{Name: GlobalFuel, Kind: wasm.ExternMemory}}}), "reserved"},
		{"a passive data segment", module2(wasm.SectionData, "\x01\x01\x01x"), "passive"},
		{"a data segment out of bounds", module(wasmtest.Module{Memory: wasmtest.Pages(1), Data: []wasmtest.Data{{Offset: 65535, Bytes: "ab"}}}), "65537, the limit is 65536"},
		{"a data segment at a negative place", module(wasmtest.Module{Memory: wasmtest.Pages(1), Data: []wasmtest.Data{{Offset: -1, Bytes: "ab"}}}), "out of bounds"},
		{"a data segment without memory", module(wasmtest.Module{Data: []wasmtest.Data{{Bytes: "ab"}}}), "memory index 0"},
		{"an element segment out of bounds", module(wasmtest.Module{Table: wasmtest.Pages(1), Funcs: []wasmtest.Func{{}},
			Elements: []wasmtest.Element{{Offset: 1, Funcs: []uint32{0}}}}), "out of bounds"},
		{"an element segment of no function", module(wasmtest.Module{Table: wasmtest.Pages(1), Elements: []wasmtest.Element{{Funcs: []uint32{7}}}}), "function index 7"},
		{"a start function that does not exist", module(wasmtest.Module{Start: &one}), "function index 1"},
		{"a start function with a parameter", module(wasmtest.Module{Start: new(uint32), Funcs: []wasmtest.Func{{Type: wasmtest.Type("i:")}}}), "start function has type"},
		{"SIMD", withCode(asm(0xfd, 12)), "SIMD"},
		{"atomics", withCode(asm(0xfe, 3, 0)), "threads"},
		{"a throw", withCode(asm(0x08, 0)), "exception handling"},
		{"a tail call", withCode(asm(0x12, 0)), "tail calls"},
		{"garbage collection", withCode(asm(0xfb, 0)), "garbage collection"},
		{"an opcode that nobody knows", withCode(asm(0xff)), "unknown opcode 0xff"},
		{"a saturating truncation that nobody knows", withCode(asm(0xfc, 0x12)), "unknown opcode 0xfc 18"},
		{"ref.func", withCode(asm(0xd2, 0, 0x1a)), "ref.func is not allowed"},
		{"ref.null", withCode(asm(0xd0, 0x70, 0x1a)), "ref.null is not allowed"},
		{"table.get", withCode(asm(0x41, 0, 0x25, 0, 0x1a)), "table.get is not allowed"},
		{"table.set", withCode(asm(0x26, 0)), "table.set is not allowed"},
		{"table.grow", withCode(asm(0xfc, 0x0f, 0)), "table.grow is not allowed"},
		{"table.fill", withCode(asm(0xfc, 0x11, 0)), "table.fill is not allowed"},
		{"table.copy", withCode(asm(0xfc, 0x0e, 0, 0)), "table.copy is not allowed"},
		{"table.init", withCode(asm(0xfc, 0x0c, 0, 0)), "table.init is not allowed"},
		{"elem.drop", withCode(asm(0xfc, 0x0d, 0)), "elem.drop is not allowed"},
		{"memory.init", withCode(asm(0xfc, 0x08, 0, 0)), "memory.init is not allowed"},
		{"data.drop", withCode(asm(0xfc, 0x09, 0)), "data.drop is not allowed"},
		{"a second memory in a load", withCode(asm(0x41, 0, 0x28, 0x42, 1, 0, 0x1a)), "multiple memories"},
		{"a block that returns a reference", withCode(asm(0x02, 0x70, 0x00, 0x0b, 0x1a)), "funcref"},
		{"a local of type funcref", raw(section(wasm.SectionType, "\x01\x60\x00\x00"), section(wasm.SectionFunction, "\x01\x00"),
			section(wasm.SectionCode, "\x01\x04\x01\x01\x70\x0b")), "funcref"},
		{"a load without memory", module(wasmtest.Module{Funcs: []wasmtest.Func{{Code: code().I32(0).Access(wasm.OpI32Load, 0).Op(wasm.OpDrop)}}}), "memory index 0"},
		{"memory.fill without memory", module(wasmtest.Module{Funcs: []wasmtest.Func{{Code: code().I32(0).I32(0).I32(0).Memory(wasm.OpMemoryFill)}}}), "memory index 0"},
		{"else without if", withCode(code().Op(wasm.OpElse)), "else without if"},
		{"else in a block", withCode(code().Block(wasm.OpBlock, wasm.BlockEmpty).Op(wasm.OpElse, wasm.OpEnd)), "else without if"},
		{"two else in an if", withCode(code().I32(0).Block(wasm.OpIf, wasm.BlockEmpty).Op(wasm.OpElse, wasm.OpElse, wasm.OpEnd)), "else without if"},
		{"a body that does not end", withCode(code().Block(wasm.OpBlock, wasm.BlockEmpty)), "unexpected end"},
		{"a body that goes on behind its end", withCode(code().Op(wasm.OpEnd)), "after the end"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Rewrite(work.Trusted(context.Background()), tt.module, DefaultLimits(), Options{})
			var r *Refusal
			if !errors.As(err, &r) {
				t.Fatalf("got %v, want a refusal", err)
			}
			if !strings.Contains(r.Error(), tt.want) {
				t.Errorf("got %q, want it to say %q", r, tt.want)
			}
		})
	}
}

// module2 is a module with a memory and one section more.
func module2(id wasm.SectionID, body string) []byte {
	return raw(section(wasm.SectionMemory, "\x01\x00\x01"), section(id, body))
}

// TestFeaturesAreNamed: a module of a proposal that is not accepted is not called malformed,
// wherever the proposal shows first. Bytes of no proposal are malformed.
func TestFeaturesAreNamed(t *testing.T) {
	types := func(body string) []byte { return raw(section(wasm.SectionType, body)) }
	memory := func(body string) []byte { return raw(section(wasm.SectionMemory, body)) }
	global := func(body string) []byte { return raw(section(wasm.SectionGlobal, "\x01"+body)) }
	imports := func(body string) []byte { return raw(section(wasm.SectionImport, "\x01\x01m\x01n"+body)) }
	exports := func(kind string) []byte { return raw(section(wasm.SectionExport, "\x01\x01n"+kind+"\x00")) }
	for feature, modules := range map[string][][]byte{
		"typed function references": {
			types("\x01\x60\x01\x64\x70\x00"), types("\x01\x60\x00\x01\x63\x00"), global("\x63\x70\x00\xd0\x70\x0b"),
			global("\x70\x00\xd0\x00\x0b"), raw(section(wasm.SectionTable, "\x01\x40\x00\x70\x00\x01\xd0\x70\x0b")),
			raw(section(wasm.SectionTable, "\x01\x64\x70\x00\x01")), withCode(asm(0x14, 0)), withCode(asm(0xd4)), withCode(asm(0x02, 0x64, 0x70, 0x0b)),
			withCode(asm(0xd0, 0)), module2(wasm.SectionElement, "\x01\x05\x64\x70\x00"), imports("\x03\x64\x70\x00"),
		},
		"garbage collection": {
			types("\x01\x5f\x00"), types("\x01\x5e\x7f\x00"), types("\x01\x50\x00\x60\x00\x00"), types("\x01\x4e\x00"),
			types("\x01\x60\x01\x6e\x00"), global("\x6d\x00\xd0\x71\x0b"), global("\x7f\x00\xfb\x1c\x0b"), global("\x7f\x00\x41\x00\xfb\x1c\x0b"),
			withCode(asm(0xfb, 0)), withCode(asm(0xd3)), withCode(asm(0xd0, 0x6e)),
		},
		"exception handling": {
			raw(section(13, "\x01\x00\x00")), imports("\x04\x00\x00"), exports("\x04"), types("\x01\x60\x01\x69\x00"), withCode(asm(0x1f, 0x40, 0)), withCode(asm(0x08, 0)),
		},
		"stack switching":               {types("\x01\x5d\x00"), withCode(asm(0xe0, 0)), types("\x01\x60\x01\x68\x00")},
		"memory64":                      {memory("\x01\x04\x01"), memory("\x01\x05\x01\x02"), imports("\x02\x04\x01"), raw(section(wasm.SectionTable, "\x01\x70\x04\x01"))},
		"custom page sizes":             {memory("\x01\x08\x01\x00"), memory("\x01\x0d\x01\x02\x00"), imports("\x02\x08\x01\x00")},
		"threads":                       {memory("\x01\x03\x01\x02"), withCode(asm(0xfe, 3, 0)), raw(section(wasm.SectionTable, "\x01\x70\x03\x01\x01"))},
		"SIMD":                          {types("\x01\x60\x01\x7b\x00"), global("\x7b\x00\xfd\x0c" + strings.Repeat("\x00", 16) + "\x0b"), withCode(asm(0xfd, 12)), withCode(asm(0xfd, 0x80, 0x02))},
		"tail calls":                    {withCode(asm(0x12, 0)), withCode(asm(0x13, 0, 0))},
		"wide arithmetic":               {withCode(asm(0xfc, 0x13)), withCode(asm(0xfc, 0x16))},
		"multiple memories":             {withCode(asm(0x41, 0, 0x28, 0x42, 1, 0, 0x1a)), withCode(asm(0x3f, 1, 0x1a))},
		"extended constant expressions": {global("\x7f\x00\x41\x00\x41\x00\x6a\x0b")},
		"compact import section":        {imports("\x7f\x00"), imports("\x7e\x00")},
		"malformed module: ":            {types("\x01\x00"), types("\x01\x60\x01\x40\x00"), types("\x01\x60\x01\x00\x00"), imports("\x05"), exports("\x05"), memory("\x01\x10\x01")},
	} {
		for _, module := range modules {
			_, err := Check(work.Trusted(context.Background()), module, DefaultLimits())
			var r *Refusal
			if !errors.As(err, &r) || !strings.Contains(r.What, feature) || strings.Contains(r.What, "malformed") != strings.Contains(feature, "malformed") {
				t.Errorf("%x: %v, want it to name %s", module[8:], err, feature)
			} else if named := cureOfFeature[feature]; r.Hint != named {
				t.Errorf("%x: %v: hint %q, want %q", module[8:], err, r.Hint, named)
			}
		}
	}
}

func TestRefusalNamesThePlace(t *testing.T) {
	m := wasmtest.Module{
		Imports: []wasmtest.Import{{Module: abi.Version, Name: abi.ImportNow, Type: wasmtest.Type(":I")}},
		Funcs:   []wasmtest.Func{{}, {Code: code().Op(wasm.OpNop, wasm.OpNop).Index(wasm.OpRefFunc, 0).Op(wasm.OpDrop)}},
		Customs: []wasmtest.Custom{{Name: "name", Body: "\x01\x09\x02\x00\x01a\x02\x03bad"}},
	}
	b := m.Bytes()
	_, err := Check(work.Trusted(context.Background()), b, DefaultLimits())
	var r *Refusal
	if !errors.As(err, &r) {
		t.Fatal(err)
	}
	if r.Func != 2 || r.FuncName != "bad" || wasm.Op(b[r.Offset]) != wasm.OpRefFunc || r.Hint == "" {
		t.Errorf("got %+v", r)
	}
	want := fmt.Sprintf(`rewrite: function 2 "bad": ref.func is not allowed (at byte %#x)`, r.Offset)
	if r.Error() != want {
		t.Errorf("got %q, want %q", r, want)
	}
}

func TestImports(t *testing.T) {
	imp := func(module, name, letters string) wasmtest.Import {
		return wasmtest.Import{Module: module, Name: name, Type: wasmtest.Type(letters)}
	}
	tests := []struct {
		name    string
		imports []wasmtest.Import
		want    []string // in the refusal; none: accepted
	}{
		{"the contract and WASI", []wasmtest.Import{imp(abi.Version, "now", ":I"), imp(abi.WASIModule, "proc_exit", "i:")}, nil},
		{"one function twice", []wasmtest.Import{imp(abi.Version, "now", ":I"), imp(abi.Version, "now", ":I")}, nil},
		{"all that is foreign is listed", []wasmtest.Import{imp("env", "log", "i:"), imp(abi.Version, "now", ":I"), imp("env", "emscripten_x", ":")},
			[]string{`"env" "log"`, `"env" "emscripten_x"`}},
		{"the wrong type", []wasmtest.Import{imp(abi.Version, "now", ":i")}, []string{`"starling:v1" "now" as () -> i32, which is () -> i64`}},
		{"the refill function", []wasmtest.Import{imp(RefillModule, RefillName, ":")}, []string{RefillModule}},
		{"another version of the contract", []wasmtest.Import{imp("starling:v2", "now", ":I")}, []string{"starling:v2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			info, err := Check(work.Trusted(context.Background()), (&wasmtest.Module{Imports: tt.imports}).Bytes(), DefaultLimits())
			if len(tt.want) == 0 {
				if err != nil || len(info.Imports) != len(tt.imports) {
					t.Errorf("got %v, %v", info.Imports, err)
				}
				return
			}
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want it to name %s", err, want)
				}
			}
		})
	}
	for _, kind := range []string{"\x01\x70\x00\x00", "\x02\x00\x01", "\x03\x7f\x00"} {
		_, err := Check(work.Trusted(context.Background()), raw(section(wasm.SectionImport, "\x01\x03env\x01x"+kind)), DefaultLimits())
		if err == nil || !strings.Contains(err.Error(), `"env" "x" (`) {
			t.Errorf("import of kind %d: %v", kind[0], err)
		}
	}
}

// TestHintsForOtherTargets: the refusal of a module built for another target has a hint how to
// build it.
func TestHintsForOtherTargets(t *testing.T) {
	for _, c := range []struct{ module, name, want string }{
		{"wbg", "__wbindgen_throw", "wasm-bindgen"},
		{"__wbindgen_placeholder__", "__wbindgen_describe", "wasm-bindgen"},
		{"gojs", "runtime.ticks", "GOOS=wasip1"},
		{"go", "runtime.wasmExit", "GOOS=wasip1"},
		{"wasi_unstable", "fd_write", "newer SDK"},
		{"wasi:cli/environment@0.2.0", "get-environment", "give the component"},
		{"env", "emscripten_memcpy_js", "STANDALONE_WASM"},
		{"env", "invoke_vii", "STANDALONE_WASM"},
		{"./tool_bg.js", "__wbg_now_1", "wasm-bindgen"},
		{"a", "b", "STANDALONE_WASM"},
		{"near:agent/host@0.3.0", "log", "wasm-tools component new"},
		{"extism:host/user", "mult", "a plug-in of"},
		{"wasix_32v1", "thread_spawn_v2", "WASIX"},
		{"env", "abort", "AssemblyScript with --use abort="},
		{"env", "seed", "--use seed=FILE/FUNCTION"},
		{"env", "memory", "linked later"},
		{"env", "something", mayImport},
	} {
		m := wasmtest.Module{Imports: []wasmtest.Import{{Module: c.module, Name: c.name, Type: wasmtest.Type("iiii:")}}}
		_, err := Check(work.Trusted(context.Background()), m.Bytes(), DefaultLimits())
		if r, ok := errors.AsType[*Refusal](err); !ok || !strings.Contains(r.Hint, c.want) {
			t.Errorf("%s %s: %v, %+v", c.module, c.name, err, r)
		}
	}
	limits := DefaultLimits()
	limits.ModuleBytes = 10
	_, err := Check(work.Trusted(context.Background()), make([]byte, 11), limits)
	if r, ok := errors.AsType[*Refusal](err); !ok || !strings.Contains(r.Hint, "wasm-tools strip") {
		t.Errorf("a module that is too large: %v, %+v", err, r)
	}
}

// TestWASIImports compares the table with the definition that wazero has.
func TestWASIImports(t *testing.T) {
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	host, err := wasi_snapshot_preview1.NewBuilder(r).Compile(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defined := host.ExportedFunctions()
	if len(defined) != len(imports[abi.WASIModule]) {
		t.Errorf("%d functions, wazero has %d", len(imports[abi.WASIModule]), len(defined))
	}
	for name, f := range defined {
		got, ok := ImportType(abi.WASIModule, name)
		if !ok || string(apiTypes(got.Params)) != string(f.ParamTypes()) || string(apiTypes(got.Results)) != string(f.ResultTypes()) {
			t.Errorf("%s is %v, wazero has %v -> %v", name, got, typeNames(f.ParamTypes()), typeNames(f.ResultTypes()))
		}
	}
}

func typeNames(ts []api.ValueType) (names []string) {
	for _, t := range ts {
		names = append(names, api.ValueTypeName(t))
	}
	return names
}

func TestInfo(t *testing.T) {
	m := wasmtest.Module{
		Imports: []wasmtest.Import{{Module: abi.Version, Name: "random", Type: wasmtest.Type(":I")}},
		Memory:  &wasm.Limits{Min: 2, Max: 9, HasMax: true},
		Start:   new(uint32(1)),
		Funcs:   []wasmtest.Func{{Export: "run"}, {Export: "add", Type: wasmtest.Type("ii:i"), Code: code().I32(1)}},
		Exports: []wasmtest.Export{{Name: "memory", Kind: wasm.ExternMemory}},
	}
	info, err := Check(work.Trusted(context.Background()), m.Bytes(), DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	add, ok := info.Export("add")
	if !ok || !add.Type.Equal(wasmtest.Type("ii:i")) || len(info.Exports) != 3 {
		t.Errorf("exports: %+v", info.Exports)
	}
	if _, ok := info.Export("none"); ok {
		t.Error("found an export that does not exist")
	}
	if !info.HasStart || info.Memory != (Memory{Present: true, Min: 2, Max: 9}) || info.Imports[0].Name != "random" {
		t.Errorf("got %+v", info)
	}
}
