package guest_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
)

// codeDir is where the tests keep compiled code: under the race detector it takes twenty
// seconds to compile a tool that was written in Go.
var codeDir string

func TestMain(m *testing.M) {
	guest.WorkerMain()
	dir, err := os.MkdirTemp("", "starling-guest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	codeDir = dir
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// newLog returns a log that keeps no modules: the tests replay with the tool at hand.
func newLog() eventlog.EventLog { return struct{ eventlog.EventLog }{store.Memory()} }

// newEngine returns an engine for one test.
func newEngine(t *testing.T) *sandbox.Engine {
	t.Helper()
	e, err := sandbox.New(t.Context(), sandbox.Config{CacheDir: codeDir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(context.Background()) })
	return e
}
