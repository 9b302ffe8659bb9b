package qemutest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Processor is one that QEMU emulates.
type Processor struct {
	GOARCH   string
	Compiler bool   // wazero has a compiler for it, and not only its interpreter
	What     string // its differences from amd64
	emulator string // QEMU's name for it
}

// Processors are those that tests run on.
var Processors = []Processor{
	{GOARCH: "arm64", Compiler: true, What: "other instructions", emulator: "aarch64"},
	{GOARCH: "arm", What: "words of 32 bits", emulator: "arm"},
	{GOARCH: "s390x", What: "the highest byte of a word comes first", emulator: "s390x"},
}

// Engines are the names of the engines that guests run on there.
func (p Processor) Engines() []string {
	if p.Compiler {
		return []string{"compiler", "machine"}
	}
	return []string{"interpreter", "machine"}
}

// Output runs one test of the package in the current folder, and returns the content of the
// file that the test writes to the path in the environment variable. On this machine the
// variable is not set, and the test does nothing.
func (p Processor) Output(t testing.TB, test, variable string, env ...string) []byte {
	t.Helper()
	if !p.Compiler && os.Getenv("STARLING_NIGHTLY") == "" {
		t.Skipf("NIGHTLY: %s: builds the tests for a processor that has no compiler of wazero", p.GOARCH)
	}
	emulator := p.find()
	if emulator == "" {
		t.Skipf("SKIPPED: no emulator of a processor of the kind %s: install qemu-user-static", p.GOARCH)
	}
	if testing.Short() {
		t.Skip("SKIPPED in short mode: builds the tests for another processor")
	}
	dir := t.TempDir()
	binary, file := filepath.Join(dir, p.GOARCH+".test"), filepath.Join(dir, "output")
	run(t, []string{"GOOS=linux", "GOARCH=" + p.GOARCH, "CGO_ENABLED=0"}, "go", "test", "-c", "-o", binary, ".")
	run(t, append(env, variable+"="+file), emulator, binary, "-test.run", "^"+test+"$")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// find returns the path of the emulator, or "".
func (p Processor) find() string {
	for _, name := range []string{"qemu-" + p.emulator + "-static", "qemu-" + p.emulator} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func run(t testing.TB, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, text)
	}
}
