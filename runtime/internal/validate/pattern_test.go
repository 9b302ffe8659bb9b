package validate

import (
	"errors"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/work"
)

func TestPatternSteps(t *testing.T) {
	for expr, want := range map[string]int{
		"":                        1,
		"abc":                     3,
		"x{1000}":                 1000,
		"x*":                      2,
		"[a-z0-9-]{1,64}":         64,
		`\pL{1,9}`:                9 * 170,
		`\pL{900}`:                0,
		"x{1000}x{1000}x":         2001,
		strings.Repeat("a", 4097): 4097,
	} {
		got, err := patternSteps(budget(t), expr)
		if want == 0 != errors.Is(err, work.ErrExceeded) || want > 0 && (err != nil || got < want*9/10 || got > want*11/10) {
			t.Errorf("%.40s: %d, %v, want about %d", expr, got, err, want)
		}
	}
	if _, err := patternSteps(budget(t), "(?=x)"); err == nil || errors.Is(err, work.ErrExceeded) {
		t.Errorf("no expression: %v", err)
	}
}

// TestAStepIsSmall compiles what takes the most memory for its steps.
func TestAStepIsSmall(t *testing.T) {
	for _, expr := range []string{"^[a-z0-9-]{1,400}$", "^[acegikm]{1,400}$", `^\pL{1,11}$`, "^(?i)k{490}$", "^x{998}$", "x{990}x{990}"} {
		n, err := patternSteps(budget(t), expr)
		if err != nil {
			t.Fatal(expr, err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		const copies = 20
		var kept [copies]*regexp.Regexp
		for i := range kept {
			kept[i] = regexp.MustCompile(expr)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(&kept)
		if each := int(after.HeapAlloc-before.HeapAlloc) / copies / n; each > 400 {
			t.Errorf("%s: %d bytes for each of %d steps", expr, each, n)
		}
	}
}
