package component

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/host/internal/rewrite"
)

func TestTry(t *testing.T) {
	for _, f := range strings.Fields(os.Getenv("TRY")) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		out, err := Link(b)
		took := time.Since(start)
		if err != nil {
			t.Logf("%s: REFUSED %v %v", f, err, took)
			continue
		}
		if d := os.Getenv("OUT"); d != "" {
			os.WriteFile(d, out, 0o644)
		}
		info, err := rewrite.Check(out, rewrite.DefaultLimits())
		if err != nil {
			t.Logf("%s: GATE %v", f, err)
			continue
		}
		t.Logf("%s: ok %d -> %d, %d functions, %v", f, len(b), len(out), info.Counts.Functions, took)
	}
}
