package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/starling-host/starling/cmd/starling-host/scripttest"
	"github.com/starling-host/starling/host/guest"
)

func TestMain(m *testing.M) {
	guest.WorkerMain()
	testscript.Main(cached{m}, map[string]func(){"starling-host": main, "measured-host": measuredHost})
}

// cached runs the tests with one folder for what is built and compiled.
type cached struct{ *testing.M }

// Run implements [testscript.TestingM].
func (m cached) Run() int {
	defer os.RemoveAll(scripttest.Cache())
	return m.M.Run()
}

// awaitTime is how long a test waits for an event that does not come when the program has failed.
const awaitTime = time.Minute

// skipShort skips a test that builds tools, which takes seconds.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
}

func TestTheHelpFitsAScreen(t *testing.T) {
	var out strings.Builder
	if code := Main([]string{"--help"}, strings.NewReader(""), &out, &out); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &out)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) > 24 {
		t.Errorf("%d lines; a terminal has 24", len(lines))
	}
	for _, line := range lines {
		if len(line) > 80 {
			t.Errorf("%d characters: %q", len(line), line)
		}
	}
}
