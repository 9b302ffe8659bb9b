package daemon

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/starling-host/starling/host/tenant"
	"github.com/starling-host/starling/host/turns"
)

// TestWhoMayCompile: one tenant has one turn, however many modules it has, and
// another one does not wait for more than that.
func TestWhoMayCompile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCompiling()
		c.all = turns.New(2)
		storm := tenant.Tenant{ID: "storm", Limits: tenant.Limits{Compiling: 3}}
		good := tenant.Tenant{ID: "good", Limits: tenant.Limits{Compiling: 1}}
		leaveFirst, err := c.enter(t.Context(), storm)
		if err != nil {
			t.Fatal(err)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		second, third := make(chan error, 1), make(chan error, 1)
		go func() { _, err := c.enter(ctx, storm); second <- err }()
		synctest.Wait()
		go func() {
			leave, err := c.enter(t.Context(), storm)
			if err == nil {
				leave()
			}
			third <- err
		}()
		synctest.Wait()
		if len(second) != 0 || len(third) != 0 {
			t.Fatal("a tenant has several turns at once")
		}
		if _, err := c.enter(t.Context(), storm); problemOf(err).Status != 429 {
			t.Errorf("a fourth module: %v", err)
		}
		leaveGood, err := c.enter(t.Context(), good)
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
		if len(c.waiting.taken) != 0 || len(c.own.of["storm"]) != 0 {
			t.Error("somebody who has left is still counted")
		}
		for range 2 { // or this waits for ever, which the bubble notices
			if _, err := c.all.Take(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
