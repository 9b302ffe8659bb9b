package policy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/egress"
)

// kept has one secret, which may be sent nowhere, or where nobody knows.
type kept struct{ err error }

func (kept) Secret(context.Context, string) ([]byte, bool, error) {
	return []byte("0123456789"), true, nil
}

func (k kept) Same(context.Context, string, time.Time) (bool, error) { return true, k.err }

func (k kept) MaySend(context.Context, egress.Placeholder, egress.Access) (bool, error) {
	return false, k.err
}

// TestAKeeperHasTheLastWord: a secret that both policies would send stays where it
// is if whoever keeps it says so.
func TestAKeeperHasTheLastWord(t *testing.T) {
	p, err := Parse("p", []byte(`version: "1.0"
permissions: {network: {allow: [{host: a.test}]}}
secrets: [{name: K, audience: [a.test], header: Authorization}]
`))
	if err != nil {
		t.Fatal(err)
	}
	access := egress.Access{
		Method: "GET", Scheme: "https", Host: "a.test", Port: 443, Path: "/",
		Secrets: []egress.Placeholder{{Name: "K", Place: egress.PlaceHeader, Field: "Authorization"}},
	}
	for want, store := range map[string]kept{"is not kept for https://a.test in": {}, "could not be read": {errors.New("the disk is gone")}} {
		_, err := NewRun(p, p, store).Exchange("tool", 10).Authorize(t.Context(), access)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "disk") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// open has one secret, which may be sent everywhere and is from a time.
type open struct {
	kept
	updated time.Time
}

func (open) MaySend(context.Context, egress.Placeholder, egress.Access) (bool, error) {
	return true, nil
}

func (o open) Same(_ context.Context, _ string, since time.Time) (bool, error) {
	return o.updated.Before(since), o.err
}

// TestWhatWasSentIsLookedForAfterAnotherPolicy has a run go on under a policy that names
// no secret, of which it sent one before.
func TestWhatWasSentIsLookedForAfterAnotherPolicy(t *testing.T) {
	p, err := Parse("p", []byte("version: \"1.0\"\npermissions: {network: {allow: [{host: a.test}]}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Unix(1e9, 0)
	goesOn := func(sent event.Event, updated time.Time) (egress.Grant, error) {
		run, call := NewRun(p, nil, open{updated: updated}), scheduled(t, "a", "", 1)
		call.Timestamp = began.UnixNano()
		if err := run.Resume([]event.Event{call, sent}); err != nil {
			t.Fatal(err)
		}
		return run.Exchange("shop", 10).Authorize(t.Context(), egress.Access{Method: "GET", Scheme: "https", Host: "a.test", Port: 443, Path: "/"})
	}
	fetched := event.SideEffectRecorded{
		Name: builtinFetch, CallID: "a", Request: []byte("https://a.test/?k={{secret:K}}"), Error: &event.EffectError{Type: event.ErrorTool, Message: "timeout"},
	}
	for name, sent := range map[string]event.Event{
		"by a module": exchanged(t, "a", "/?k=%7B%7Bsecret:K%7D%7D", "x"),
		"by fetch":    made(t, event.KindSideEffectRecorded, fetched),
	} {
		if _, err := goesOn(sent, began.Add(time.Second)); err == nil || !strings.Contains(err.Error(), "the secret K has changed since") {
			t.Errorf("%s: of the value that was sent nobody knows: %v", name, err)
		}
		grant, err := goesOn(sent, began.Add(-time.Second))
		if err != nil || len(grant.Secrets) != 1 || grant.Secrets[0].Name != "K" || string(grant.Secrets[0].Value) != "0123456789" || !grant.Plain {
			t.Errorf("%s: %+v, %v", name, grant, err)
		}
	}
}
