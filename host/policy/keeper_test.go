package policy

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/egress"
)

// kept has one secret, which may be sent nowhere, or where nobody knows.
type kept struct{ err error }

func (kept) Secret(context.Context, string) ([]byte, bool, error) {
	return []byte("0123456789"), true, nil
}

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

// open has one secret, which may be sent everywhere.
type open struct{ kept }

func (open) MaySend(context.Context, egress.Placeholder, egress.Access) (bool, error) {
	return true, nil
}

// TestWhatWasSentIsLookedForAfterAnotherPolicy has a run go on under a policy that names
// no secret, of which it sent one before.
func TestWhatWasSentIsLookedForAfterAnotherPolicy(t *testing.T) {
	p, err := Parse("p", []byte("version: \"1.0\"\npermissions: {network: {allow: [{host: a.test}]}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	run := NewRun(p, nil, open{})
	if err := run.Resume([]event.Event{scheduled(t, "a", "", 1), exchanged(t, "a", "/?k=%7B%7Bsecret:K%7D%7D", "x")}); err != nil {
		t.Fatal(err)
	}
	grant, err := run.Exchange("shop", 10).Authorize(t.Context(), egress.Access{Method: "GET", Scheme: "https", Host: "a.test", Port: 443, Path: "/"})
	if err != nil || len(grant.Secrets) != 1 || grant.Secrets[0].Name != "K" || string(grant.Secrets[0].Value) != "0123456789" || !grant.Plain {
		t.Errorf("%+v, %v", grant, err)
	}
}
