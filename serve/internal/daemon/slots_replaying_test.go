package daemon

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/serve/tenant"
)

// TestWhoMayReplay: a tenant has half of the slots. Other tenants get theirs at once or
// when a slot is free, and a tenant that waits in vain gets an error.
func TestWhoMayReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newReplaying(2)
		storm, other, good := tenant.Tenant{ID: "storm"}, tenant.Tenant{ID: "other"}, tenant.Tenant{ID: "good"}
		leaveStorm, err := p.start(t.Context(), storm)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.start(t.Context(), storm); problemOf(err).Status != 429 {
			t.Errorf("a second replay: %v", err)
		}
		leaveOther, err := p.start(t.Context(), other)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.start(t.Context(), good); problemOf(err).Status != 503 {
			t.Errorf("beside replays that do not end: %v", err)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, giveUp)
		if _, err := p.start(ctx, good); !errors.Is(err, context.Canceled) {
			t.Errorf("who gives up: %v", err)
		}
		time.AfterFunc(time.Second, leaveStorm)
		leaveGood, err := p.start(t.Context(), good)
		if err != nil {
			t.Fatal(err)
		}
		leaveGood()
		leaveOther()
		for _, of := range []tenant.Tenant{storm, other, good} {
			if _, err := p.own.take(of.ID, 1); err != nil {
				t.Error("somebody who has left is still counted")
			}
		}
	})
}
