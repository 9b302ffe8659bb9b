package guest_test

import (
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/internal/registry"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/step"
)

// TestTheBoundOnInputIsOfTheArguments alone: where a call is admitted, where it is made
// and where a policy is tried, the same document fits.
func TestTheBoundOnInputIsOfTheArguments(t *testing.T) {
	source, err := registry.Open(t.Context(), "testdata/oracle")
	if err != nil {
		t.Fatal(err)
	}
	doc := input(t, "GET http://a.test/ HTTP/1.1\r\n\r\n")
	clean, err := step.CanonicalArgs(doc)
	if err != nil {
		t.Fatal(err)
	}
	for less, fits := range map[int]bool{0: true, 1: false} {
		most := len(clean) - less
		p := parsePolicy(t, fmt.Sprintf("permissions: {tools: {messenger: {}}}\nresources: {limits: {input: %d}}", most))
		limits := sandbox.Limits(policy.NewRun(p, nil, nil).Narrow(event.SandboxLimits(sandbox.DefaultLimits())))
		module, err := guest.Load(t.Context(), guest.Inline(newEngine(t)), source.Wasm, guest.Options{Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		tool, _ := module.Tool("messenger")
		if err := tool.CheckSize(clean); (err == nil) != fits {
			t.Errorf("%d bytes less are admitted with %v", less, err)
		}
		r, events := direct(t, tool, policy.NewRun(p, nil, nil), doc)
		if fits != (r.Error == "") || !fits && r.ErrorType != event.ErrorLimit {
			t.Errorf("%d bytes less: the run ended with %q %q", less, r.ErrorType, r.Error)
		}
		refused, err := policy.Test(p, nil, events)
		if err != nil || (len(refused) == 0) != fits {
			t.Errorf("%d bytes less: the test refuses %+v, %v", less, refused, err)
		}
	}
}
