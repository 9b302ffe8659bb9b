package rewrite

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
	"github.com/tetratelabs/wazero/api"
)

// quickJS is a build of QuickJS-ng for WASI: quickjs.wasm of version 3.6.2 of
// the npm package quickjs-wasi, by its SHA-256.
const quickJS = "d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9"

// quickJSProgram uses the main parts of a JavaScript interpreter: numbers and
// their texts, strings, sorting, closures, objects, JSON, regular expressions
// and its garbage collector.
const quickJSProgram = `
const rows = Array.from({length: 200}, (_, i) => ({id: i, x: Math.sin(i) / 3, name: "n" + (i * 7919 % 200)}));
rows.sort((a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
const text = JSON.stringify(JSON.parse(JSON.stringify(rows)));
const found = text.match(/"name":"n1(\d)\d"/g).length;
let cycles = 0;
for (let i = 0; i < 20000; i++) { const o = {}; o.self = o; cycles += o.self === o; }
let error; try { null.x } catch (e) { error = e.message }
JSON.stringify({size: text.length, found, cycles, error, big: String(2n ** 200n), nan: [0/0, -0, 1/3]});`

// TestQuickJS runs QuickJS, the largest C program that tools are written in: it
// passes the gate, and original and metered module, compiler and interpreter
// give the same answer and memory.
func TestQuickJS(t *testing.T) {
	module := quickJSModule(t)
	res, err := rewriteWith(work.Trusted(context.Background()), module, DefaultLimits(), Options{}, quickJSImport)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", res.Info.Counts)
	compiled := evaluateJS(t, "compiler", res)
	if diff := cmp.Diff(compiled, evaluateJS(t, "interpreter", res)); diff != "" {
		t.Errorf("compiler and interpreter differ:\n%s", diff)
	}
	original := evaluateJS(t, "compiler", &Result{Wasm: module})
	original.Fuel = compiled.Fuel // which it does not count
	if diff := cmp.Diff(original, compiled); diff != "" {
		t.Errorf("original and metered differ:\n%s", diff)
	}
	t.Logf("%d units of fuel: %s", compiled.Fuel, compiled.Answer)
}

func quickJSModule(t *testing.T) []byte {
	t.Helper()
	path := "../component/testdata/node_modules/quickjs-wasi/quickjs.wasm"
	module, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("SKIPPED: npm's quickjs-wasi is not installed in host/internal/component/testdata: npm ci")
	}
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(module); hex.EncodeToString(sum[:]) != quickJS {
		t.Fatalf("%s is another build of QuickJS: SHA-256 %x", path, sum)
	}
	return module
}

// quickJSImport returns the types of the build's imports beside WASI: hooks
// that are off by default.
func quickJSImport(module, name string) (wasm.FuncType, bool) {
	hooks := map[string]wasm.FuncType{
		"host_get_timezone_offset": {Params: i32s(2), Results: i32s(1)},
		"host_interrupt":           {Results: i32s(1)},
		"host_promise_rejection":   {Params: i32s(3)},
		"host_module_normalize":    {Params: i32s(2), Results: i32s(1)},
		"host_module_load":         {Params: i32s(2), Results: i32s(1)},
		"host_call":                {Params: i32s(5), Results: i32s(1)},
	}
	if module != "env" {
		return ImportType(module, name)
	}
	hook, ok := hooks[name]
	return hook, ok
}

func i32s(n int) []wasm.ValType {
	types := make([]wasm.ValType, n)
	for i := range types {
		types[i] = wasm.I32
	}
	return types
}

// evaluation is the result of a script.
type evaluation struct {
	Answer string
	Fuel   uint64
	Pages  uint32
	Memory [32]byte
}

func evaluateJS(t *testing.T, engine string, module *Result) evaluation {
	t.Helper()
	ctx := context.Background()
	g := &guest{refill: func(*guest) {}}
	r := newRuntime(t, engines[engine], &g)
	hooks := r.NewHostModuleBuilder("env")
	m, err := wasm.Decode(work.Trusted(context.Background()), module.Wasm)
	if err != nil {
		t.Fatal(err)
	}
	for _, im := range m.Imports {
		if im.Module == "env" {
			of := m.Types[im.Type]
			hooks.NewFunctionBuilder().WithGoFunction(api.GoFunc(zeroResult), apiTypes(of.Params), apiTypes(of.Results)).Export(im.Name)
		}
	}
	if _, err := hooks.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	if g.Module, err = instantiate(ctx, r, module); err != nil {
		t.Fatal(err)
	}
	if module.CostTable != 0 {
		g.attach(g.Module)
	}
	return runJS(t, g)
}

func runJS(t *testing.T, g *guest) evaluation {
	t.Helper()
	call := func(name string, args ...uint64) uint32 {
		results, err := g.ExportedFunction(name).Call(context.Background(), args...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return uint32(append(results, 0)[0])
	}
	place := func(text string) uint64 {
		at := call("wasm_malloc", uint64(len(text))+1)
		g.Memory().WriteString(at, text+"\x00")
		return uint64(at)
	}
	call("_initialize")
	call("qjs_init")
	value := call("qjs_eval", place(quickJSProgram), uint64(len(quickJSProgram)), place("program.js"), 0)
	size := place("\x00\x00\x00")
	text := call("qjs_get_string_len", uint64(value), size)
	length, _ := g.Memory().Read(uint32(size), 4)
	answer, _ := g.Memory().Read(text, binary.LittleEndian.Uint32(length))
	e := evaluation{Answer: string(answer), Pages: g.Memory().Size() / wasm.PageSize, Memory: sha256.Sum256(contents(g))}
	if g.fuel != nil {
		e.Fuel = g.fuel.Get()
	}
	return e
}
