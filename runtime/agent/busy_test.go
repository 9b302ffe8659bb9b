package agent_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/provider"
)

// busy is a provider that is asked too often: the first response is 429, with a header
// that says when to come back.
type busy struct {
	provider.Provider
	after string
	asked *int
}

// RoundTrip implements [http.RoundTripper].
func (b busy) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {b.after}}, Body: http.NoBody}, nil
}

// Stream implements [provider.Provider].
func (b busy) Stream(ctx context.Context, req *provider.Request) (provider.EventStream, error) {
	if *b.asked++; *b.asked > 1 {
		return b.Provider.Stream(ctx, req)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://model.test", nil)
	if err != nil {
		return nil, err
	}
	resp, err := provider.HashBodies(&http.Client{Transport: b}).Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return nil, provider.WrapHTTPStatus(fmt.Errorf("status %d", resp.StatusCode), resp.StatusCode)
}

// TestRetryKeepsRetryAfterOfTheServer: a request is made again no sooner than the server
// wants it, unless that is longer than anybody waits.
func TestRetryKeepsRetryAfterOfTheServer(t *testing.T) {
	for after, want := range map[string][2]time.Duration{
		"30":   {30*time.Second + 100*time.Millisecond, 30*time.Second + 125*time.Millisecond},
		"3600": {100 * time.Millisecond, 125 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAgent([]agenttest.Turn{agenttest.Say("at last")})
			a.Provider = busy{a.Provider, after, new(int)}
			began := time.Now()
			r, err := a.Run(context.Background(), "go")
			took := time.Since(began)
			if err != nil || took < want[0] || took > want[1] {
				t.Fatalf("%v after %v, want %v", err, took, want)
			}
			events := eventsOf(t, a, r.RunID, false)
			if f := failureIn(t, events); f.WaitMs != took.Milliseconds() {
				t.Errorf("the record says %d ms, and it took %v", f.WaitMs, took)
			}
			mustReplay(t, a, r, events)
		})
	}
}

// failureIn returns the first recorded failure of a model.
func failureIn(t *testing.T, events []event.Event) (f event.ModelFailure) {
	t.Helper()
	for _, ev := range events {
		effect, err := ev.AsSideEffectRecorded()
		if err == nil && effect.Name == event.EffectModel {
			if err := canon.Unmarshal(effect.Value, &f); err != nil {
				t.Fatal(err)
			}
			return f
		}
	}
	t.Fatal("no failure was recorded")
	return f
}
