package starling_test

import (
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/sandbox"
)

// TestTheSlowEngineIsAnnounced where nobody chose it.
func TestTheSlowEngineIsAnnounced(t *testing.T) {
	var warned []string
	o := starling.EngineOptions{
		Warn: func(text string) { warned = append(warned, text) },
		Adjust: func(c *sandbox.Config) {
			if !c.Machine {
				c.CacheDir = "/dev/null/cache" // so that the compiler does not start
			}
		},
	}
	for _, kind := range []starling.EngineKind{"", starling.Machine} {
		o.Kind = kind
		engine, err := starling.NewSandbox(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		engine.Close(t.Context())
	}
	if len(warned) != 1 {
		t.Errorf("%q", warned)
	}
}
