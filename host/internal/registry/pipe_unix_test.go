//go:build unix

package registry_test

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/starling-host/starling/host/internal/registry"
)

// TestAPipeIsNotOpened, which would wait for a writer.
func TestAPipeIsNotOpened(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe.wasm")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := registry.Open(t.Context(), pipe)
	var e *registry.Error
	if !errors.As(err, &e) || e.Ref != pipe || e.Reason != "not a regular file" || e.Hint == "" {
		t.Errorf("got %+v", err)
	}
}
