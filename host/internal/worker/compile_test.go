package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/runtime/tool"
)

// needed makes a module be compiled.
func needed(*sandbox.Prepared) bool { return true }

func TestACompilationLeavesCodeThatIsRunWithoutCompiling(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	compiled := 0
	config := sandbox.Config{CacheDir: dir, Read: func(ctx context.Context, module []byte, o sandbox.RewriteOptions, folder string, missing func(*sandbox.Prepared) bool) (*sandbox.Prepared, error) {
		return Compiler{}.Read(ctx, module, o, folder, func(p *sandbox.Prepared) bool {
			compiled++
			return missing(p)
		})
	}}
	for range 2 {
		e, err := sandbox.New(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close(context.Background())
		m, err := e.Load(t.Context(), tiny().Bytes(), sandbox.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Call(t.Context(), sandbox.Call{Input: []byte("x")}, quiet{}); err != nil {
			t.Error(err)
		}
	}
	if compiled != 1 {
		t.Errorf("compiled %d times", compiled)
	}
}

func TestAModuleThatTakesTooMuchToCompileIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: a short run may be one with the race detector, which needs more memory than the compiler is given here")
	}
	// More than a Go process starts with, however many threads that takes; the compiler
	// needs more still.
	_, err := Compiler{Memory: 128 << 20}.Read(t.Context(), mustBuild(t, goTool), sandbox.RewriteOptions{}, t.TempDir(), needed)
	var refusal *rewrite.Refusal
	if !errors.As(err, &refusal) || !strings.Contains(refusal.What, "128 MiB of memory") || refusal.Hint == "" {
		t.Errorf("got %v", err)
	}
}

func TestWhatTheCompilerDoesNotAcceptIsRefused(t *testing.T) {
	m := tiny()
	m.Funcs[0].Code = new(wasm.Asm).I64(1) // where it returns an i32
	_, err := Compiler{}.Read(t.Context(), m.Bytes(), sandbox.RewriteOptions{}, t.TempDir(), needed)
	var refusal *rewrite.Refusal
	if !errors.As(err, &refusal) {
		t.Errorf("got %v", err)
	}
}

func TestACompilationEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Compiler{}.Read(ctx, tiny().Bytes(), sandbox.RewriteOptions{}, t.TempDir(), needed)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n := len(children(t)); n > 0 {
		t.Errorf("%d processes are left", n)
	}
}

func TestRefusalsAreThoseOfTheSandbox(t *testing.T) {
	here, there := inline(t), workers(t, Config{})
	for name, wasm := range map[string][]byte{"no module": []byte("no"), "no tool": []byte("\x00asm\x01\x00\x00\x00")} {
		_, want := here.Load(t.Context(), wasm, sandbox.Limits{})
		_, got := there.Load(t.Context(), wasm, sandbox.Limits{})
		var refusal *rewrite.Refusal
		if want == nil || !errors.As(got, &refusal) || got.Error() != want.Error() {
			t.Errorf("%s: %v, inline %v", name, got, want)
		}
	}
	if _, err := there.Load(t.Context(), tiny().Bytes(), sandbox.Limits{MemoryPages: 1 << 30}); err == nil || errors.Is(err, tool.ErrHost) {
		t.Errorf("limits that cannot be kept: %v", err)
	}
}

// Code that was cut, by a full disk for example, is made again.
func TestSpoiledCodeIsMadeAgain(t *testing.T) {
	config := Config{CacheDir: filepath.Join(t.TempDir(), "cache")}
	mustLoad(t, workers(t, config), tiny().Bytes(), sandbox.Limits{})
	cut := 0
	err := filepath.WalkDir(config.CacheDir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			cut++
			return os.Truncate(path, 10)
		}
		return err
	})
	if err != nil || cut == 0 {
		t.Fatalf("%d files cut, %v", cut, err)
	}
	m := mustLoad(t, workers(t, config), tiny().Bytes(), sandbox.Limits{})
	if _, err := m.Call(t.Context(), sandbox.Call{Input: []byte("x")}, quiet{}); err != nil {
		t.Error(err)
	}
}

func TestProbeTellsOfTheLayers(t *testing.T) {
	report, err := Probe()
	if err != nil || len(report.Layers) == 0 {
		t.Errorf("%+v, %v", report, err)
	}
}
