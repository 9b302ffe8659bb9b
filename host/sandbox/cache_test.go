//go:build unix

package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

func TestCacheFolderBelongsToThisUserAlone(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, dir string)
		want string
	}{
		{"that does not exist", func(*testing.T, string) {}, ""},
		{"of mode 0700", func(t *testing.T, dir string) { os.Mkdir(dir, 0o700) }, ""},
		{"that others can read", func(t *testing.T, dir string) { os.Mkdir(dir, 0o700); os.Chmod(dir, 0o755) }, "has mode 0755, not 0700"},
		{"that the group can write to", func(t *testing.T, dir string) { os.Mkdir(dir, 0o700); os.Chmod(dir, 0o770) }, "has mode 0770, not 0700"},
		{"that is a file", func(t *testing.T, dir string) { os.WriteFile(dir, nil, 0o600) }, "not a directory"},
		{"that is a link", func(t *testing.T, dir string) { os.Symlink(t.TempDir(), dir) }, "is not a folder"},
	}
	for _, tt := range tests {
		t.Run("a folder "+tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "cache")
			os.Mkdir(filepath.Dir(dir), 0o700)
			tt.make(t, dir)
			e, err := New(t.Context(), Config{CacheDir: dir})
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				e.Close(context.Background())
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestCacheServesASecondEngine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	for range 2 {
		e, err := New(t.Context(), Config{CacheDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		got, err := load(t, e, tiny(output("executed")).Bytes(), Limits{}).Call(t.Context(), Call{Input: []byte("x")}, &world{})
		if err != nil || string(got.Output) != "executed" {
			t.Errorf("%q, %v", got.Output, err)
		}
		e.Close(context.Background())
	}
	entries, _ := filepath.Glob(filepath.Join(dir, "cost-table-1", "*", "wazero-*", "*"))
	if len(entries) != 1 {
		t.Errorf("entries %v, want one", entries)
	}
}

// TestModulesThatDifferInBodiesAlone have the same shell, and each its own code.
func TestModulesThatDifferInBodiesAlone(t *testing.T) {
	e := keeping(t)
	modules := map[string]*Module{}
	for _, answer := range []string{"executed", "described"} {
		modules[answer] = load(t, e, tiny(output(answer)).Bytes(), Limits{})
	}
	for answer, m := range modules {
		got, err := m.Call(t.Context(), Call{Input: []byte("x")}, &world{})
		if err != nil || string(got.Output) != answer {
			t.Errorf("%q, %v, want %q", got.Output, err, answer)
		}
	}
}

// TestSpoiledCodeIsCompiledAgain: a folder that does not have a module's code never gives
// another result, whatever else it has.
func TestSpoiledCodeIsCompiledAgain(t *testing.T) {
	t.Parallel()
	spoil := map[string]func(t *testing.T, file string){
		"cut":     func(t *testing.T, file string) { must(t, os.Truncate(file, 10)) },
		"empty":   func(t *testing.T, file string) { must(t, os.Truncate(file, 0)) },
		"altered": func(t *testing.T, file string) { must(t, alter(file)) },
		"another engine's": func(t *testing.T, file string) {
			must(t, os.Rename(filepath.Dir(file), filepath.Join(filepath.Dir(filepath.Dir(file)), "wazero-v0")))
		},
		"under another name": func(t *testing.T, file string) { must(t, os.Rename(file, filepath.Join(filepath.Dir(file), "other"))) },
		"the shell's": func(t *testing.T, file string) {
			must(t, os.Remove(file))
			p := compiler().whole(t, tiny(output("executed")).Bytes(), DefaultLimits())
			shell, err := rewrite.Shell(work.Trusted(context.Background()), p.Wasm)
			must(t, err)
			if made, err := compileInto(t.Context(), shell, filepath.Dir(filepath.Dir(file))); err != nil || made != file {
				t.Fatalf("the engine looks for %s and made %s, %v", file, made, err)
			}
		},
	}
	for name, spoil := range spoil {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			for range 2 {
				e, err := New(t.Context(), Config{CacheDir: dir})
				must(t, err)
				got, err := load(t, e, tiny(output("executed")).Bytes(), Limits{}).Call(t.Context(), Call{Input: []byte("x")}, &world{})
				if err != nil || string(got.Output) != "executed" {
					t.Errorf("%q, %v", got.Output, err)
				}
				e.Close(context.Background())
				code, err := files(filepath.Join(dir, "cost-table-1"))
				if err != nil || len(code) != 1 {
					t.Fatalf("files %v, %v", code, err)
				}
				spoil(t, code[0])
			}
		})
	}
}

func TestAFolderThatCannotBeWrittenIsNotTheModulesFault(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	e, err := New(t.Context(), Config{CacheDir: dir})
	must(t, err)
	defer e.Close(context.Background())
	must(t, os.WriteFile(filepath.Join(dir, "cost-table-1"), nil, 0o600))
	_, err = e.Load(t.Context(), tiny(output("executed")).Bytes(), Limits{})
	if _, refused := errors.AsType[*rewrite.Refusal](err); !errors.Is(err, abi.ErrHost) || refused {
		t.Errorf("got %v", err)
	}
	_, err = Read(t.Context(), 1, tiny(output("executed")).Bytes(), e.rewriting(DefaultLimits()), filepath.Join(dir, "cost-table-1"), func(*Prepared) bool { return true })
	if !errors.Is(err, abi.ErrHost) {
		t.Errorf("a file in place of the folder: %v", err)
	}
}

// alter changes a byte of the code in a file, which has a checksum.
func alter(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	b[len(b)/2] ^= 1
	return os.WriteFile(file, b, 0o600)
}

// TestOneModuleLoadedManyTimesAtOnce: with one runtime for all modules, the engine would
// hand a module that it finds in the cache folder to a second caller before it has
// finished with it. If its code is spoiled, one of them makes it again.
func TestOneModuleLoadedManyTimesAtOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	slow := tiny(output("executed"))
	slow.Types = make([]wasm.FuncType, 5000) // what makes the rest of the work take long
	module := slow.Bytes()
	for round := range 10 { // the first time fills the cache
		e, err := New(t.Context(), Config{CacheDir: dir})
		must(t, err)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() { loadAndCall(t, e, module) })
		}
		group.Wait()
		e.Close(context.Background())
		if code, err := files(filepath.Join(dir, "cost-table-1")); err != nil || len(code) != 1 {
			t.Fatalf("files %v, %v", code, err)
		} else if round%2 == 1 {
			must(t, os.Truncate(code[0], 10))
		}
	}
}

func loadAndCall(t *testing.T, e *Engine, module []byte) {
	m, err := e.Load(t.Context(), module, Limits{})
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := m.Call(t.Context(), Call{Input: []byte("x")}, &world{}); err != nil {
		t.Error(err)
	}
	m.Close(context.Background())
}
