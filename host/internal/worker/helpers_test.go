package worker

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// world answers imports the same in every process.
type world struct {
	mu      sync.Mutex
	time    int64
	effects []string
	fuel    []uint64 // the meter at each effect
	meter   func() sandbox.Meter
	http    func(ctx context.Context, request string) (string, abi.Status)
	took    time.Duration    // by each exchange
	at      func(effect int) // called at each effect
}

func (w *world) record(name string) {
	w.mu.Lock()
	w.effects = append(w.effects, name)
	n := len(w.effects)
	if w.meter != nil {
		w.fuel = append(w.fuel, w.meter().Fuel)
	}
	w.mu.Unlock()
	if w.at != nil {
		w.at(n)
	}
}

func (w *world) Now(context.Context) int64 {
	w.record("now")
	w.time += 1_000_000_000
	return 1_790_000_000_000_000_000 + w.time
}

func (w *world) Random(context.Context) uint64 { w.record("random"); return 0x0123456789abcdef }

func (w *world) Seed(context.Context) [32]byte { w.record("seed"); return [32]byte{1, 2, 3} }

func (w *world) HTTP(ctx context.Context, request []byte) ([]byte, abi.Status, time.Duration) {
	w.record("http " + string(request))
	if w.http == nil {
		return []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"), 0, w.took
	}
	answer, status := w.http(ctx, string(request))
	return []byte(answer), status, w.took
}

// buildGuest builds a Go package for the sandbox.
func buildGuest(dir, mode string) ([]byte, error) {
	out, err := os.MkdirTemp("", "worker-guest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(out)
	file := filepath.Join(out, "guest.wasm")
	build := exec.Command("go", "build", "-buildmode="+mode, "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", file, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building %s: %w\n%s", dir, err, text)
	}
	return os.ReadFile(file)
}

// goTool is the guest of package sandbox's own tests, which does everything that
// a Go program can.
var goTool = sync.OnceValues(func() ([]byte, error) { return buildGuest("../../sandbox/testdata/tool", "c-shared") })

func mustBuild(t testing.TB, build func() ([]byte, error)) []byte {
	t.Helper()
	wasm, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

// workers returns an engine that is closed with the test. Its compilations have no time
// limit: compilers run only when other processes are idle, and tests of other packages
// are not.
func workers(t testing.TB, c Config) *Engine {
	t.Helper()
	if c.Compiler.CPU == 0 {
		c.Compiler.CPU = 5 * time.Minute
	}
	e, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

func inline(t testing.TB) sandbox.Observable {
	t.Helper()
	e, err := sandbox.New(t.Context(), sandbox.Config{CacheDir: treetest.CodeFolder()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(context.Background()) })
	return sandbox.Inline(e)
}

func mustLoad(t testing.TB, e sandbox.Loader, wasm []byte, l sandbox.Limits) sandbox.Loaded {
	t.Helper()
	m, err := e.Load(t.Context(), wasm, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(context.Background()) })
	return m
}

func envelope(tool, input string) []byte {
	return fmt.Appendf(nil, `{"tool":%q,"input":%s,"context":{"run_id":"R","call_id":"C","attempt":1}}`, tool, input)
}

// quiet answers at once and keeps nothing.
type quiet struct{}

func (quiet) Now(context.Context) int64     { return 1 }
func (quiet) Random(context.Context) uint64 { return 1 }
func (quiet) Seed(context.Context) [32]byte { return [32]byte{} }
func (quiet) HTTP(context.Context, []byte) ([]byte, abi.Status, time.Duration) {
	return nil, abi.StatusNetwork, 0
}

// Where a hand-built tool has its input and its output.
const (
	roomAt   = 0x1000
	outputAt = 0x2000
)

// tiny is a tool that returns at once.
func tiny() *wasmtest.Module {
	return &wasmtest.Module{
		Memory:  wasmtest.Pages(1),
		Exports: []wasmtest.Export{{Name: abi.ExportMemory, Kind: wasm.ExternMemory}},
		Funcs: []wasmtest.Func{
			{Export: abi.ExportAlloc, Type: wasmtest.Type("i:i"), Code: new(wasm.Asm).I32(roomAt)},
			{Export: abi.ExportDescribe, Type: wasmtest.Type(":I"), Code: packed(outputAt, 12)},
			{Export: abi.ExportExecute, Type: wasmtest.Type("ii:I"), Code: packed(outputAt, 12)},
		},
		Data: []wasmtest.Data{{Offset: outputAt, Bytes: `{"output":1}`}},
	}
}

// asks makes execute of a tiny tool call the import now as its code says, and
// then return.
func asks(code *wasm.Asm) *wasmtest.Module {
	m := tiny()
	t, _ := rewrite.ImportType(abi.Version, abi.ImportNow)
	m.Imports = []wasmtest.Import{{Module: abi.Version, Name: abi.ImportNow, Type: t}}
	m.Funcs[2].Code = code.I64(int64(abi.Pack(outputAt, 12)))
	return m
}

func asksForTheTime() *wasmtest.Module {
	return asks(new(wasm.Asm).Index(wasm.OpCall, 0).Op(wasm.OpDrop))
}

// asksForEver asks for the time and computes for a while, again and again.
func asksForEver() *wasmtest.Module {
	m := asks(new(wasm.Asm).Block(wasm.OpLoop, wasm.BlockEmpty).
		Index(wasm.OpCall, 0).Op(wasm.OpDrop).Index(wasm.OpCall, 4).Index(wasm.OpBr, 0).Op(wasm.OpEnd))
	m.Funcs = append(m.Funcs, wasmtest.Func{Type: wasmtest.Type(":"), Locals: []wasm.LocalGroup{{Count: 1, Type: wasm.I32}},
		Code: new(wasm.Asm).Block(wasm.OpLoop, wasm.BlockEmpty).
			Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpI32Add).Index(wasm.OpLocalTee, 0).I32(100_000).Op(wasm.OpI32LtS).Index(wasm.OpBrIf, 0).
			Op(wasm.OpEnd)})
	return m
}

// spins computes for ever.
func spins() *wasmtest.Module {
	m := tiny()
	m.Funcs[2].Code = wasmtest.Forever()
	return m
}

// packed returns a document.
func packed(address uint32, length int) *wasm.Asm {
	return new(wasm.Asm).I64(int64(abi.Pack(address, uint32(length))))
}

func unreachable() *wasm.Asm { return new(wasm.Asm).Op(wasm.OpUnreachable) }
