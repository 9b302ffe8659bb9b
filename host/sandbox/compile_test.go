package sandbox

import (
	"bytes"
	"os"
	"testing"

	"github.com/starling-host/starling/eventlog/chain"
)

// TestCodeIsTheSameOnAnyNumberOfProcessors: who compiles alone, and who compiles with
// all that the machine has, run the same.
func TestCodeIsTheSameOnAnyNumberOfProcessors(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: the race detector takes minutes for it")
	}
	p, err := compiler().check(goGuest(t, "tool"), chain.Hash{}, DefaultLimits())
	must(t, err)
	var alone []byte
	for _, processors := range []int{1, 2, 7} {
		dir := t.TempDir()
		must(t, compileOn(t.Context(), processors, p.Wasm, dir))
		all, err := files(dir)
		must(t, err)
		code, err := os.ReadFile(all[0])
		must(t, err)
		if alone == nil {
			alone = code
		}
		if len(all) != 1 || !bytes.Equal(code, alone) {
			t.Errorf("on %d processors: %d files, %d bytes, alone %d", processors, len(all), len(code), len(alone))
		}
	}
}
