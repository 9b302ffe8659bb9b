package guest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/internal/registry"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/tool"
)

// TestSchemaCostIsBoundedBeforeTheCheck: a document that would keep the host busy with a
// tool's own schema is refused before a run, and ends a call that has begun. Both ends
// replay.
func TestSchemaCostIsBoundedBeforeTheCheck(t *testing.T) {
	source, err := registry.Open(t.Context(), "testdata/oracle")
	if err != nil {
		t.Fatal(err)
	}
	module, err := guest.Load(t.Context(), guest.Inline(newEngine(t)), source.Wasm, guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	repeater, _ := module.Tool("repeater")
	input := func(n, listed int) json.RawMessage {
		return fmt.Appendf(nil, `{"list":[%s0],"n":%d}`, bytes.Repeat([]byte("0,"), listed), n)
	}
	const cost = "units of work to hold against the schema"
	if err := repeater.CheckInput(document(t, input(1, 300_000))); !errors.Is(err, tool.ErrCost) {
		t.Errorf("300,000 values before a run: %.200v", err)
	}
	if err := repeater.CheckInput(document(t, input(1, 1000))); err != nil {
		t.Error(err)
	}
	none := policy.NewRun(parsePolicy(t, "permissions: {tools: {repeater: {}}}"), nil, nil)
	for doc, want := range map[*json.RawMessage]string{
		new(input(1000, 1000)): "", new(input(300_000, 0)): "output does not match", new(input(0, 300_000)): "input does not match",
	} {
		r, _ := direct(t, repeater, none, *doc)
		if want == "" && r.Error != "" || want != "" && (r.ErrorType != event.ErrorTimeout || !strings.Contains(r.Error, want) || !strings.Contains(r.Error, cost)) {
			t.Errorf("%.30s: %q %q", *doc, r.ErrorType, r.Error)
		}
	}
}

// TestTheBoundOnInputIsOfTheArguments alone: where a call is admitted, where it is made
// and where a policy is tried, the same document fits.
func TestTheBoundOnInputIsOfTheArguments(t *testing.T) {
	source, err := registry.Open(t.Context(), "testdata/oracle")
	if err != nil {
		t.Fatal(err)
	}
	doc := input(t, "GET http://a.test/ HTTP/1.1\r\n\r\n")
	clean := document(t, doc)
	for less, fits := range map[int]bool{0: true, 1: false} {
		most := len(clean.JSON) - less
		p := parsePolicy(t, fmt.Sprintf("permissions: {tools: {messenger: {}}}\nresources: {limits: {input: %d}}", most))
		limits := sandbox.Limits(policy.NewRun(p, nil, nil).Narrow(event.SandboxLimits(sandbox.DefaultLimits())))
		module, err := guest.Load(t.Context(), guest.Inline(newEngine(t)), source.Wasm, guest.Options{Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		tool, _ := module.Tool("messenger")
		if err := tool.CheckInput(clean); (err == nil) != fits {
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

func document(t *testing.T, doc []byte) *canon.Doc {
	t.Helper()
	d, err := canon.Parse(doc)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
