package rewrite

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// goGuest builds testdata/goguest, once per run of the tests.
func goGuest(t testing.TB) []byte {
	t.Helper()
	b, err := buildGoGuest()
	if err != nil {
		t.Skipf("no Go toolchain that builds for wasip1: %v", err)
	}
	return b
}

var buildGoGuest = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "goguest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "guest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", out, "./testdata/goguest")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, &exec.Error{Name: string(text), Err: err}
	}
	return os.ReadFile(out)
})
