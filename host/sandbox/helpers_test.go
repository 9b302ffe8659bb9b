package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// world answers imports. Its zero value is a world in which nothing is wrong.
type world struct {
	time     int64 // what Now answers next; each answer is a second later
	effects  []string
	requests []string
	http     func(request string) (string, abi.Status)
	took     time.Duration // by each exchange
	meter    func() Meter
	fuel     []uint64 // the meter at each effect
}

const noon = 1_790_000_000_000_000_000 // 2026-09-21T14:13:20Z

func (w *world) record(name string) {
	w.effects = append(w.effects, name)
	if w.meter != nil {
		w.fuel = append(w.fuel, w.meter().Fuel)
	}
}

func (w *world) Now(context.Context) int64 {
	w.record("now")
	w.time += 1_000_000_000
	return noon + w.time
}

func (w *world) Random(context.Context) uint64 { w.record("random"); return 0x0123456789abcdef }

func (w *world) Seed(context.Context) [32]byte { w.record("seed"); return [32]byte{1, 2, 3} }

func (w *world) HTTP(_ context.Context, request []byte) ([]byte, abi.Status, time.Duration) {
	w.record("http")
	w.requests = append(w.requests, string(request))
	if w.http == nil {
		return []byte("HTTP/1.1 204 No Content\r\n\r\n"), 0, w.took
	}
	answer, status := w.http(string(request))
	return []byte(answer), status, w.took
}

var (
	compiler    = sync.OnceValue(func() *Engine { return mustEngine(Config{VerifyEvery: 1}) })
	interpreter = sync.OnceValue(func() *Engine { return mustEngine(Config{Interpreter: !onJS, VerifyEvery: 1}) })
	own         = sync.OnceValue(func() *Engine { return mustEngine(Config{Machine: !onJS}) })
)

// onJS: the one engine here stands for all.
const onJS = runtime.GOOS == "js"

func mustEngine(c Config) *Engine {
	e, err := New(context.Background(), c)
	if err != nil {
		panic(err)
	}
	return e
}

// keeping returns a compiler that keeps code in a folder and loads it from there.
func keeping(t *testing.T) *Engine {
	if onJS {
		return compiler() // which keeps no code
	}
	e, err := New(t.Context(), Config{CacheDir: filepath.Join(t.TempDir(), "cache"), VerifyEvery: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(context.Background()) })
	return e
}

// whole returns a module as an engine reads it, rewritten as a whole.
func (e *Engine) whole(t *testing.T, wasm []byte, l Limits) *Prepared {
	t.Helper()
	p, err := Read(t.Context(), 1, wasm, e.rewriting(l), "", nil)
	must(t, err)
	return p
}

// onEveryEngine runs a test on the compiler, on the interpreter and on the machine.
func onEveryEngine(t *testing.T, f func(t *testing.T, e *Engine)) {
	t.Run("compiler", func(t *testing.T) { f(t, compiler()) })
	t.Run("interpreter", func(t *testing.T) { f(t, interpreter()) })
	t.Run("machine", func(t *testing.T) { f(t, own()) })
}

func load(t testing.TB, e *Engine, wasm []byte, l Limits) *Module {
	t.Helper()
	m, err := e.Load(t.Context(), wasm, l)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	t.Cleanup(func() { m.Close(context.Background()) })
	return m
}

// goGuests are the modules of testdata, each built once.
var goGuests = map[string]func() ([]byte, error){
	"tool":    sync.OnceValues(func() ([]byte, error) { return buildGuest("tool", "-buildmode=c-shared") }),
	"command": sync.OnceValues(func() ([]byte, error) { return buildGuest("command", "-buildmode=exe") }),
}

func goGuest(t testing.TB, name string) []byte {
	t.Helper()
	wasm, err := goGuests[name]()
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

// guestsFolder is the variable that names the folder of built guests, for a test binary that
// cannot start the go command.
const guestsFolder = "STARLING_SANDBOX_GUESTS"

func buildGuest(name, mode string) ([]byte, error) {
	if built := os.Getenv(guestsFolder); built != "" {
		return os.ReadFile(filepath.Join(built, name+".wasm"))
	}
	dir, err := os.MkdirTemp("", "sandbox-guest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, name+".wasm")
	build := exec.Command("go", "build", mode, "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", file, "./testdata/"+name)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building guest %s: %w\n%s", name, err, out)
	}
	return os.ReadFile(file)
}

// goModules are the Go guest on the compiler and on the machine, with the default limits.
var goModules = map[bool]func() (*Module, error){
	false: sync.OnceValues(func() (*Module, error) { return loadGo(compiler()) }),
	true:  sync.OnceValues(func() (*Module, error) { return loadGo(own()) }),
}

func loadGo(e *Engine) (*Module, error) {
	wasm, err := goGuests["tool"]()
	if err != nil {
		return nil, err
	}
	return e.Load(context.Background(), wasm, Limits{})
}

func goTool(t testing.TB, slow bool) *Module {
	t.Helper()
	m, err := goModules[slow]()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// envelope is the input document of a tool.
func envelope(tool, input string) []byte {
	return fmt.Appendf(nil, `{"tool":%q,"input":%s,"context":{"run_id":"R","call_id":"C","attempt":1}}`, tool, input)
}

// Where a hand-built tool has its input and its output.
const (
	roomAt   = 0x1000
	outputAt = 0x2000
)

// asm begins a function body.
func asm() *wasm.Asm { return &wasm.Asm{} }

// tiny is a tool whose starling_execute has the given body and may import the
// given functions, as indices 0 and up.
func tiny(execute *wasm.Asm, imports ...string) *wasmtest.Module {
	m := &wasmtest.Module{
		Memory:  wasmtest.Pages(1),
		Exports: []wasmtest.Export{{Name: abi.ExportMemory, Kind: wasm.ExternMemory}},
		Funcs: []wasmtest.Func{
			{Export: abi.ExportAlloc, Type: wasmtest.Type("i:i"), Code: asm().I32(roomAt)},
			{Export: abi.ExportDescribe, Type: wasmtest.Type(":I"), Code: output("described")},
			{Export: abi.ExportExecute, Type: wasmtest.Type("ii:I"), Code: execute, Locals: []wasm.LocalGroup{{Count: 4, Type: wasm.I64}}},
		},
		Data: []wasmtest.Data{{Offset: outputAt, Bytes: "executed described"}},
	}
	for _, name := range imports {
		module := abi.WASIModule
		if name == abi.ImportNow || name == abi.ImportRandom || name == abi.ImportHTTP {
			module = abi.Version
		}
		t, _ := rewrite.ImportType(module, name)
		m.Imports = append(m.Imports, wasmtest.Import{Module: module, Name: name, Type: t})
	}
	return m
}

// output returns one of the two documents of a tiny tool.
func output(document string) *wasm.Asm {
	if document == "described" {
		return asm().I64(int64(abi.Pack(outputAt+9, 9)))
	}
	return asm().I64(int64(abi.Pack(outputAt, 8)))
}

// looping repeats a body for ever.
func looping(body *wasm.Asm) *wasm.Asm {
	a := asm().Block(wasm.OpLoop, wasm.BlockEmpty)
	*a = append(*a, *body...)
	return a.Index(wasm.OpBr, 0).Op(wasm.OpEnd).Op(wasm.OpUnreachable)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
