//go:build !js

package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/internal/treetest"
)

// TestV8 runs the tests of this package once more, built for js, in Node: the guests of all
// of them are executed by V8, which shares no code with wazero. And the hostile guests end
// there as they do here, with the same count of fuel.
func TestV8(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: builds the tests for another system")
	}
	treetest.Needs(t, "node")
	dir := t.TempDir()
	for name := range goGuests {
		must(t, os.WriteFile(filepath.Join(dir, name+".wasm"), goGuest(t, name), 0o600))
	}
	binary, file := filepath.Join(dir, "sandbox.test.wasm"), filepath.Join(dir, "endings")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	must(t, err)
	glue := filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec_node.js")
	run := func(stack string, args ...string) {
		t.Helper()
		cmd := exec.Command("node", append([]string{"--stack-size=" + stack, glue, binary, "-test.short"}, args...)...)
		// Go's glue refuses more of the environment than it has room for.
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, guestsFolder + "=" + dir, endingsFile + "=" + file, endingsEngine + "=compiler"}
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%.5000s", args, err, said)
		}
	}
	const large, usual = "7000", "984" // KiB; the first is the usual ulimit -s, less what Node itself needs
	run(large, "-test.run=^TestWriteEndings$")
	there, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(endings(t, compiler(), true), strings.Split(string(there), "\n")); diff != "" {
		t.Errorf("(-wazero +V8):\n%s", diff)
	}
	run(usual, "-test.run=^TestTooDeepIsNotDecided$")
	run(large, "-test.skip=^(TestWriteEndings|TestHostileRuns|TestTooDeepIsNotDecided|TestAProfileHasEveryUnit)$") // the last one reports for minutes
}
