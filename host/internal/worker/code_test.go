package worker

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/starling-host/starling/host/sandbox"
)

// TestCodeThatIsRemovedIsPutBack: to empty the cache under a host costs it nothing.
func TestCodeThatIsRemovedIsPutBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	engine := workers(t, Config{CacheDir: dir})
	m := mustLoad(t, engine, tiny().Bytes(), sandbox.Limits{})
	remove := map[string]func() error{
		"all of it":  func() error { return os.RemoveAll(dir) },
		"the file":   func() error { return os.Remove(codeFile(t, dir)) },
		"the folder": func() error { return os.RemoveAll(filepath.Dir(filepath.Dir(codeFile(t, dir)))) },
	}
	for name, remove := range remove {
		engine.drop(func(*idleProcess) bool { return true })
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				if got, err := m.Call(t.Context(), sandbox.Call{Input: []byte("x")}, &world{}); err != nil {
					t.Errorf("%s: %+v, %v", name, got, err)
				}
			})
		}
		calls.Wait()
	}
}

// codeFile returns the one file in the cache.
func codeFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "cost-table-*", "*", "wazero-*", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	return files[0]
}
