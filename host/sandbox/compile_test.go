//go:build !js

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/work"
)

// TestCodeIsTheSameOnAnyNumberOfProcessors: who compiles alone, and who compiles with
// all that the machine has, run the same.
func TestCodeIsTheSameOnAnyNumberOfProcessors(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: the race detector takes minutes for it")
	}
	p := compiler().whole(t, goGuest(t, "tool"), DefaultLimits())
	shell, err := rewrite.Shell(work.Trusted(t.Context()), p.Wasm)
	must(t, err)
	var alone []byte
	for _, processors := range []int{1, 2, 7} {
		dir := t.TempDir()
		must(t, compile(t.Context(), processors, p.Wasm, shell, dir))
		all, err := files(dir)
		must(t, err)
		code, err := os.ReadFile(all[0])
		must(t, err)
		if alone == nil {
			alone = code
		}
		if len(all) != 1 || !bytes.Equal(code, alone) {
			t.Errorf("on %d processors: %d files, %d bytes, alone %d", processors, len(all), len(code), len(alone))
		}
	}
}

// TestRestoredCodeReplacesWhatCameMeanwhile: while code is compiled again, another process that looks for it
// leaves what is not the module's in its folder, each time.
func TestRestoredCodeReplacesWhatCameMeanwhile(t *testing.T) {
	e := keeping(t)
	wasm := tiny(output(`{"output":1}`)).Bytes()
	folder := e.cache.folder(e.whole(t, wasm, DefaultLimits()).Code)
	leave := func() {
		must(t, os.MkdirAll(folder, 0o700))
		must(t, os.WriteFile(filepath.Join(folder, "other"), []byte("code"), 0o600))
	}
	must(t, e.cache.restore(folder, func(dir string) error {
		leave()
		return os.WriteFile(filepath.Join(dir, "code"), []byte("code"), 0o600)
	}))
	if all, err := files(folder); err != nil || len(all) != 1 || filepath.Base(all[0]) != "code" {
		t.Errorf("%v, %v", all, err)
	}
	reader := e.reader
	e.reader = func(ctx context.Context, module []byte, o RewriteOptions, dir string, missing func(*Prepared) bool) (*Prepared, error) {
		leave()
		return reader(ctx, module, o, dir, missing)
	}
	m, err := e.Load(t.Context(), wasm, DefaultLimits())
	must(t, err)
	must(t, m.Close(t.Context()))
}

// TestWaitsForACompilationEndWithTheirContext: a load that finds the module in the
// compiler, a load whose code exists, and a load whose code is put back.
func TestWaitsForACompilationEndWithTheirContext(t *testing.T) {
	e := keeping(t)
	wasm := tiny(output(`{"output":1}`)).Bytes()
	digest := Sum(wasm)
	busy := e.compiling[digest[0]]
	must(t, busy.Acquire(t.Context(), exclusive)) // as a load does that compiles
	p := e.whole(t, wasm, DefaultLimits())
	p.Digest, p.Folder = digest, e.cache.folder(p.Code)
	waits := map[string]func(context.Context) error{
		"a load":               func(ctx context.Context) error { _, err := e.Load(ctx, wasm, DefaultLimits()); return err },
		"a load that has code": func(ctx context.Context) error { return e.loadHere(ctx, p, func(*Prepared) error { return nil }) },
		"code that is put back": func(ctx context.Context) error {
			return (&Code{engine: e, lock: busy, folder: p.Folder, file: os.Stdin}).Load(ctx, func() error { return ErrSpoiled })
		},
	}
	for name, wait := range waits {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	busy.Release(exclusive)
	load(t, e, wasm, DefaultLimits())
	if !busy.TryAcquire(exclusive) {
		t.Error("a wait that has ended holds something")
	}
}
