package sandbox

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/internal/hostiletest"
	"github.com/starling-host/starling/internal/qemutest"
)

// The variables with which this test binary writes, on whatever processor it runs, how
// the hostile guests end into a file: its name, and the engine.
const (
	endingsFile   = "STARLING_ENDINGS"
	endingsEngine = "STARLING_ENDINGS_ENGINE"
)

// TestOtherProcessors has the hostile guests attack on processors of other kinds, in an
// emulator: each ends with the same outcome, at the same count of fuel, as on this one.
func TestOtherProcessors(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: emulates a processor")
	}
	for _, p := range qemutest.Processors {
		t.Run(p.GOARCH, func(t *testing.T) {
			there := strings.Split(string(p.Output(t, "TestWriteEndings", endingsFile, endingsEngine+"="+strings.Join(p.Engines(), ","))), "\n")
			var here []string
			for _, engine := range p.Engines() {
				here = append(here, endings(t, keeping(t), engine == "compiler")...)
			}
			if diff := cmp.Diff(here, there); diff != "" {
				t.Errorf("(-here +there, with %s):\n%s", p.What, diff)
			}
		})
	}
}

// TestWriteEndings does nothing unless [TestOtherProcessors] asks for it.
func TestWriteEndings(t *testing.T) {
	file := os.Getenv(endingsFile)
	if file == "" {
		return
	}
	var lines []string
	for _, name := range strings.Split(os.Getenv(endingsEngine), ",") {
		engine := map[string]func() *Engine{"compiler": func() *Engine { return keeping(t) }, "interpreter": interpreter, "machine": own}[name]()
		lines = append(lines, endings(t, engine, name == "compiler")...)
	}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// endings returns how every hostile guest ends. Guests that attack as soon as they
// start are for the compiler: an interpreter takes minutes for the budget of a start.
func endings(t *testing.T, engine *Engine, starts bool) []string {
	t.Helper()
	var all []string
	for _, run := range hostiletest.Runs() {
		if starts || !run.Always {
			all = append(all, run.Name+": "+endingOf(t, load(t, engine, run.Wasm, hostileLimits), attack))
		}
	}
	return all
}
