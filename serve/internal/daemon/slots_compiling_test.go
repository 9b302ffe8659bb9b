package daemon

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/serve/tenant"
)

// TestWhoMayCompile: one tenant has one slot, however many modules it has, and
// another one does not wait for more than that.
func TestWhoMayCompile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCompiling()
		c.slots = guest.NewScheduler(2, 1)
		storm := tenant.Tenant{ID: "storm", Limits: tenant.Limits{Compiling: 3}}
		good := tenant.Tenant{ID: "good", Limits: tenant.Limits{Compiling: 1}}
		leaveFirst, err := c.run(t.Context(), storm)
		if err != nil {
			t.Fatal(err)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		second, third := make(chan error, 1), make(chan error, 1)
		go func() { _, err := c.run(ctx, storm); second <- err }()
		synctest.Wait()
		go func() {
			leave, err := c.run(t.Context(), storm)
			if err == nil {
				leave()
			}
			third <- err
		}()
		synctest.Wait()
		if len(second) != 0 || len(third) != 0 {
			t.Fatal("a tenant has several slots at once")
		}
		if _, err := c.run(t.Context(), storm); problemOf(err).Status != 429 {
			t.Errorf("a fourth module: %v", err)
		}
		leaveGood, err := c.run(t.Context(), good)
		if err != nil {
			t.Fatal(err)
		}
		leaveGood()
		giveUp()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Errorf("who has given up: %v", err)
		}
		leaveFirst()
		if err := <-third; err != nil {
			t.Error(err)
		}
		for _, of := range []tenant.Tenant{storm, good} {
			if _, err := c.waiting.take(of.ID, 1); err != nil {
				t.Error("somebody who has left is still counted")
			}
		}
		for _, of := range []tenant.Tenant{storm, good} { // or this waits for ever, which the bubble notices
			if _, err := c.slots.Acquire(guest.WithClaim(t.Context(), claimOf(of))); err != nil {
				t.Error(err)
			}
		}
	})
}
