//go:build unix

package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/starling-host/starling/host/wasm"
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

// TestOneModuleLoadedManyTimesAtOnce: with one runtime for all modules, the
// engine would hand a module that it finds in the cache folder to a second
// caller before it has finished with it.
func TestOneModuleLoadedManyTimesAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	slow := tiny(output("executed"))
	slow.Types = make([]wasm.FuncType, 5000) // what makes the rest of the work take long
	module := slow.Bytes()
	for range 10 { // the first time fills the cache
		e, err := New(t.Context(), Config{CacheDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				m, err := e.Load(t.Context(), module, Limits{})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := m.Call(t.Context(), Call{Input: []byte("x")}, &world{}); err != nil {
					t.Error(err)
				}
				m.Close(context.Background())
			})
		}
		group.Wait()
		e.Close(context.Background())
	}
}
