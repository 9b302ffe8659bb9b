package rewrite

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// digestsFolder names the variable that makes this test binary, on whatever
// processor it runs, write the digests of the guests in a folder into it.
const digestsFolder = "STARLING_DIGESTS"

// TestARM64 runs a selection of guests in wazero's compiler for arm64, in an
// emulator, and compares: the metered bytes, results, memory and fuel are those
// of both engines on this machine.
func TestARM64(t *testing.T) {
	emulator := lookAny("qemu-aarch64-static", "qemu-aarch64")
	if emulator == "" {
		t.Skip("SKIPPED: no emulator of an arm64 processor: install qemu-user-static")
	}
	if testing.Short() {
		t.Skip("SKIPPED in short mode: builds the tests for another processor")
	}
	dir := t.TempDir()
	for name, source := range map[string]string{"json": "./testdata/goguest", "dice": "../../tools-wasm/dice"} {
		goCommand(t, []string{"GOOS=wasip1", "GOARCH=wasm"}, "build", "-buildmode=c-shared", "-o", filepath.Join(dir, name+".wasm"), source)
	}
	binary := filepath.Join(dir, "arm64.test")
	goCommand(t, []string{"GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0"}, "test", "-c", "-o", binary, ".")
	cmd := exec.Command(emulator, binary, "-test.run", "^TestWriteDigests$")
	cmd.Env = append(os.Environ(), digestsFolder+"="+dir)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	b, err := os.ReadFile(filepath.Join(dir, "digests"))
	if err != nil {
		t.Fatal(err)
	}
	arm := strings.Split(string(b), "\n")
	for engine := range engines {
		if diff := cmp.Diff(digests(t, engine, dir), arm); diff != "" {
			t.Errorf("(-%s here +compiler on arm64):\n%s", engine, diff)
		}
	}
	t.Logf("%d digests agree", len(arm))
}

// TestWriteDigests does nothing unless [TestARM64] asks for it.
func TestWriteDigests(t *testing.T) {
	dir := os.Getenv(digestsFolder)
	if dir == "" {
		return
	}
	lines := strings.Join(digests(t, "compiler", dir), "\n")
	if err := os.WriteFile(filepath.Join(dir, "digests"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
}

func lookAny(names ...string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func goCommand(t *testing.T, env []string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: go %s: %v\n%s", strings.Join(args, " "), err, text)
	}
}

// digests runs the selection on one engine: random programs, every float
// instruction on operands of every kind, and the Go programs in dir.
func digests(t *testing.T, engine, dir string) []string {
	o := newObserver(t, engine)
	var lines []string
	for i := range uint64(300) {
		p := generate(randomSeed(i))
		lines = append(lines, fmt.Sprintf("program %d: %s", i, o.digest(t, p.metered, p.calls)))
	}
	for _, f := range floatOps() {
		lines = append(lines, f.name+": "+o.digest(t, floatModule(), f.matrix()))
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.wasm"))
	for _, file := range files {
		lines = append(lines, filepath.Base(file)+": "+goDigest(t, engine, file))
	}
	return lines
}

// digest is that of everything that can be seen of a module, and of its metered
// form.
func (o *observer) digest(t *testing.T, b []byte, calls []observedCall) string {
	t.Helper()
	res := mustRewrite(t, b, Options{MemoryPages: observedPages, Depth: observedDepth})
	seen, err := o.metered(res, calls)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x, metered %x", sha256.Sum256(fmt.Append(nil, seen)), sha256.Sum256(res.Wasm))
}

// matrix calls an instruction with every pair of operands.
func (f floatOp) matrix() []observedCall {
	params := f.signature[:len(f.signature)-2]
	var calls []observedCall
	for _, a := range operands[params[0]] {
		for _, b := range operands[params[len(params)-1]] {
			calls = append(calls, observedCall{f.name, []uint64{a, b}[:len(params)]})
		}
	}
	return calls
}

// goDigest initialises a Go program and calls the export that it has: run, or
// starling_describe.
func goDigest(t *testing.T, engine, file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	g := initialized(t, engine, mustRewrite(t, b, Options{}))
	call, args := "starling_describe", []uint64(nil)
	if g.ExportedFunction("run") != nil {
		call, args = "run", []uint64{20}
	}
	results, err := g.call(call, args...)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%#x, fuel %d, memory %x", slices.Clone(results), g.fuel.Get(), sha256.Sum256(contents(g)))
}
