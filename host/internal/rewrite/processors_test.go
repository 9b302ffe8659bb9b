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

	"github.com/starling-host/starling/internal/qemutest"
	"github.com/starling-host/starling/internal/treetest"
)

// The variables with which this test binary writes, on whatever processor it runs, the
// digests of guests into a file: its name, the folder with the programs in Go, and the
// engine.
const (
	digestsFile   = "STARLING_DIGESTS"
	digestsGuests = "STARLING_DIGESTS_GUESTS"
	digestsEngine = "STARLING_DIGESTS_ENGINE"
)

// TestOtherProcessors runs a selection of guests on other processors, in an
// emulator: the metered bytes, results, memory and fuel must equal those of the
// engines on this machine.
func TestOtherProcessors(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: emulates a processor")
	}
	dir := t.TempDir()
	for name, source := range map[string]string{"json": "./testdata/goguest", "dice": "../../../tools-wasm/dice"} {
		goCommand(t, []string{"GOOS=wasip1", "GOARCH=wasm"}, "-C", source, "build", "-buildmode=c-shared", "-o", filepath.Join(dir, name+".wasm"), ".")
	}
	here := make(map[string][]string)
	for engine := range engines {
		here[engine] = digests(t, engine, dir)
	}
	for _, p := range qemutest.Processors {
		t.Run(p.GOARCH, func(t *testing.T) {
			text := p.Output(t, "TestWriteDigests", digestsFile, digestsGuests+"="+dir, digestsEngine+"="+strings.Join(p.Engines(), ","))
			all := strings.Split(string(text), "\n")
			for i, other := range p.Engines() {
				there := all[i*len(all)/2 : (i+1)*len(all)/2]
				for engine, lines := range here {
					if diff := cmp.Diff(lines, there); diff != "" {
						t.Errorf("(-%s here +%s there, with %s):\n%s", engine, other, p.What, diff)
					}
				}
			}
			t.Logf("%d digests agree", len(all))
		})
	}
}

// TestWriteDigests does nothing unless [TestOtherProcessors] asks for it.
func TestWriteDigests(t *testing.T) {
	file := os.Getenv(digestsFile)
	if file == "" {
		return
	}
	var lines []string
	for _, engine := range strings.Split(os.Getenv(digestsEngine), ",") {
		lines = append(lines, digests(t, engine, os.Getenv(digestsGuests))...)
	}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
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
	programs := uint64(treetest.Count(30, 30, 300))
	for i := range programs {
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

// digest returns the digest of everything observable in a module, and in its
// metered form.
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
