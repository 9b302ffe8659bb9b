package main

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/runtime/tool"
)

// TestExitCodeOfAFailedDescription: what a module wrote before it ended is in no log
// yet, and its lines stay lines.
func TestExitCodeOfAFailedDescription(t *testing.T) {
	wrote := errors.New("could not be had: in _initialize: panicked\npanic: at start\n\n\tmain.go:7\nhint: \x1b[0m")
	var got bytes.Buffer
	code := explain(fmt.Errorf("loading: %w", &guest.DescriptionError{Err: wrote})).report(terminal.New(&got))
	want := "error: module refused: its description could not be had: in _initialize: panicked\n" +
		"  panic: at start\n  \n      main.go:7\n  hint: \\x1b[0m\n"
	if got.String() != want || code != exitRefused {
		t.Errorf("code %d\n%q, want\n%q", code, got.String(), want)
	}
}

// A hint follows from the class of an error, never from its words, which may be a tool's.
func TestHintsDependOnTheClassOfAnError(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("%w: whatever it says", tool.ErrMemory), "give it more memory with --memory"},
		{fmt.Errorf("%w: whatever it says", tool.ErrEffects), "let it have more effects with --effects"},
		{fmt.Errorf("%w: more than 64 MiB of memory", tool.ErrLimit), ""},
		{errors.New("tool: limit reached: more than 7 effects"), ""},
		{fmt.Errorf("%w: call stack deeper than 9 slots", tool.ErrLimit), "look for a recursion without an end"},
	} {
		if got := limitHint(tc.err, runFlags{}); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.err, got, tc.want)
		}
		if tc.want != "" && !errors.Is(tc.err, tool.ErrLimit) {
			t.Errorf("%v is no limit", tc.err)
		}
	}
	if errors.Is(tool.ErrMemory, tool.ErrEffects) {
		t.Error("one limit is the other")
	}
	call := &starling.CallError{Denied: &starling.Denied{Reason: "the operator's policy does not allow it: it does not name the tool x"}}
	if got := allowHint(call, "", runFlags{callFlags: callFlags{policy: "p.yaml"}}); got != "give it other arguments, or change p.yaml" {
		t.Error(got)
	}
	for _, tc := range []struct{ reason, policy, want string }{
		{"the secret KEY may not be sent", "", "allow it in a policy, the file of --policy: secrets: [{name: KEY, audience: [h:8080], header: Authorization}]"},
		{"GET https://h: the operator's policy does not allow it: it has no secret KEY", "p.yaml", "allow it in p.yaml: secrets: [{name: KEY, audience: [h:8080], header: Authorization}]"},
		{"there is no secret KEY", "p.yaml", "set its value, such as: export STARLING_SECRET_KEY=VALUE"},
		{"a placeholder of a secret is written {{secret:NAME}}, with a name of A-Z, digits and _", "", ""},
		{"http://h:8080 is not an allowed destination", "", "allow it: starling-host run TOOL INPUT FLAGS --allow-host h:8080"},
	} {
		denied := &starling.CallError{Denied: &starling.Denied{Host: "h:8080", Method: "GET", URL: "http://h:8080/", Reason: tc.reason}}
		if got := allowHint(denied, tc.reason, runFlags{callFlags: callFlags{policy: tc.policy}}); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
		}
	}
	call.Unnamed = true
	if got := allowHint(call, "", runFlags{callFlags: callFlags{policy: "p.yaml"}}); got != "name the tool under permissions.tools in p.yaml" {
		t.Error(got)
	}
}
