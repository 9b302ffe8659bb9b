package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/host/rewrite/hostile"
)

// endingsFile names the variable that makes this test binary, on whatever processor
// it runs, write how the hostile guests end into a file.
const endingsFile = "STARLING_ENDINGS"

// TestARM64 has the hostile guests attack on an ARM processor, in an emulator: each
// ends with the same outcome, at the same count of fuel, as on this one.
func TestARM64(t *testing.T) {
	emulator := ""
	for _, name := range []string{"qemu-aarch64-static", "qemu-aarch64"} {
		if path, err := exec.LookPath(name); err == nil && emulator == "" {
			emulator = path
		}
	}
	if emulator == "" {
		t.Skip("SKIPPED: no emulator of an arm64 processor: install qemu-user-static")
	}
	if testing.Short() {
		t.Skip("SKIPPED: builds the tests for another processor")
	}
	dir := t.TempDir()
	binary, file := filepath.Join(dir, "arm64.test"), filepath.Join(dir, "endings")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	run := exec.Command(emulator, binary, "-test.run", "^TestWriteEndings$")
	run.Env = append(os.Environ(), endingsFile+"="+file)
	if text, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	arm, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(endings(t), strings.Split(string(arm), "\n")); diff != "" {
		t.Errorf("(-here +on arm64):\n%s", diff)
	}
}

// TestWriteEndings does nothing unless [TestARM64] asks for it.
func TestWriteEndings(t *testing.T) {
	if file := os.Getenv(endingsFile); file != "" {
		if err := os.WriteFile(file, []byte(strings.Join(endings(t), "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// endings is how every hostile guest ends, whose code was kept in a folder.
func endings(t *testing.T) []string {
	t.Helper()
	engine := keeping(t)
	var all []string
	for _, run := range hostile.Runs() {
		all = append(all, run.Name+": "+endingOf(t, load(t, engine, run.Wasm, hostileLimits), attack))
	}
	return all
}
