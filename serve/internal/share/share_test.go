package share_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/share"
)

// newHost returns a host with so many slots and bytes.
func newHost(slots int, bytes int64) *share.Host {
	return &share.Host{CPU: guest.NewScheduler(slots), Memory: guest.NewPool(bytes)}
}

// TestRequestsTakeTurns: one tenant computes in at most one of two slots, however many
// requests it has, lets the next request go first after a stretch, and gives its slot back
// while it waits.
func TestRequestsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(2, 1<<20)
		first, a := h.Begin(t.Context(), guest.Claim{Tenant: "storm"})
		second, b := h.Begin(t.Context(), guest.Claim{Tenant: "storm"})
		if err := share.Step(first); err != nil {
			t.Fatal(err)
		}
		var order []string
		go func() {
			_ = share.Step(second)
			order = append(order, "second")
			b.Rest()
		}()
		synctest.Wait()
		if _, waiting := h.CPU.Use("storm"); waiting != 1 && share.Step(first) != nil {
			t.Fatalf("%d requests wait", waiting)
		}
		if len(order) != 0 {
			t.Fatal("a tenant computes twice at once")
		}
		good, c := h.Begin(t.Context(), guest.Claim{Tenant: "good"})
		if err := share.Step(good); err != nil {
			t.Error(err)
		}
		c.End()
		time.Sleep(time.Second) // longer than a stretch
		if err := share.Step(first); err != nil {
			t.Error(err)
		}
		order = append(order, "first")
		if strings.Join(order, " ") != "second first" {
			t.Errorf("the order is %v", order)
		}
		a.Rest()
		if held, waiting := h.CPU.Use("storm"); held+waiting != 0 {
			t.Errorf("%d slots are held at rest", held)
		}
	})
}

// TestWhatAShareHoldsEndsWithIt: slots and bytes are given back by the end of a request, and
// nothing begins whose client has gone.
func TestWhatAShareHoldsEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(1, 1<<20)
		gone, leave := context.WithCancel(t.Context())
		ctx, s := h.Begin(gone, guest.Claim{Tenant: "a"})
		if err := errors.Join(share.Hold(ctx, 200<<10), share.Step(ctx)); err != nil {
			t.Fatal(err)
		}
		fork, end := share.Fork(ctx)
		if err := share.Step(fork); err != nil {
			t.Errorf("beside the request that it is a part of: %v", err)
		}
		end()
		if _, err := share.Take(ctx, 100<<10); err == nil || !errors.Is(err, share.ErrBusy) {
			t.Errorf("beyond a quarter: %v", err)
		}
		s.Keep(10 << 10)
		if held := h.Memory.Held("a"); held != 10<<10 {
			t.Errorf("it keeps %d", held)
		}
		leave()
		if err := share.Step(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that has gone: %v", err)
		}
		s.End()
		held, waiting := h.CPU.Use("a")
		if bytes := h.Memory.Held("a"); held+waiting != 0 || bytes != 0 {
			t.Errorf("after its end: %d slots, %d waiting, %d bytes", held, waiting, bytes)
		}
		if share.Step(t.Context()) != nil || share.Hold(t.Context(), 1<<40) != nil {
			t.Error("a program with one user waits")
		}
	})
}

// TestWorkAsideLeavesMemoryToPages: executions of one tenant that last keep neither its pages waiting
// nor another tenant.
func TestWorkAsideLeavesMemoryToPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(1, 64<<20)
		ctx, s := h.Begin(t.Context(), guest.Claim{Tenant: "a"})
		defer s.End()
		work, end := share.Aside(ctx)
		if err := share.Hold(work, 1<<30); err != nil {
			t.Fatal(err)
		}
		if err := share.Hold(ctx, 12<<20); err != nil {
			t.Errorf("a page beside it: %v", err)
		}
		other, o := h.Begin(t.Context(), guest.Claim{Tenant: "b"})
		defer o.End()
		if err := share.Hold(other, 16<<20); err != nil {
			t.Errorf("another tenant: %v", err)
		}
		if held := h.Memory.Held("a"); held != 12<<20 {
			t.Errorf("the tenant holds %d", held)
		}
		share.Of(work).Keep(1 << 20)
		end()
		last, l := h.Begin(t.Context(), guest.Claim{Tenant: "c"})
		defer l.End()
		if err := share.Hold(last, 16<<20); err != nil {
			t.Errorf("after its end: %v", err)
		}
	})
}

// TestEventsAreChargedBeforeTheyAreRead: reading a run takes its events' cost while they
// are read, and once for what is held for the whole request.
func TestEventsAreChargedBeforeTheyAreRead(t *testing.T) {
	log, err := store.OpenFile(t.Context(), filepath.Join(t.TempDir(), "log.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	type in struct {
		Text string `json:"text"`
	}
	echo := tool.Typed("echo", "Echo.", func(_ context.Context, in in) (in, error) { return in, nil })
	input, _ := json.Marshal(in{strings.Repeat("x", 100<<10)})
	if _, err := (agent.Direct{Log: log, Tool: echo}).RunWithID(t.Context(), "a/R", input); err != nil {
		t.Fatal(err)
	}
	h := newHost(2, 64<<20)
	h.Log = log
	l := share.Log{Database: log}
	ctx, s := h.Begin(t.Context(), guest.Claim{Tenant: "a"})
	held := func(hold bool) (most int64) {
		if hold {
			if err := share.Reserve(ctx, false, "a/R"); err != nil {
				t.Fatal(err)
			}
		}
		events := 0
		for _, err := range l.Events(ctx, "a/R", 0) {
			if err != nil {
				t.Fatal(err)
			}
			events++
			most = max(most, h.Memory.Held("a"))
		}
		if events < 4 {
			t.Errorf("%d events", events)
		}
		return most
	}
	if most := held(false); most < 100<<10*share.Event || h.Memory.Held("a") != 0 {
		t.Errorf("it holds %d, and %d afterwards", most, h.Memory.Held("a"))
	}
	if most := held(true); most != h.Memory.Held("a") || most < 100<<10*share.Event {
		t.Errorf("it pays %d beside %d that it holds", most, h.Memory.Held("a"))
	}
	s.End()
	small := newHost(2, 1<<20)
	small.Log = log
	for _, other := range []string{"b", "c", "d", "e"} {
		if _, err := small.Memory.Take(t.Context(), other, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	ctx, s = small.Begin(t.Context(), guest.Claim{Tenant: "a"})
	defer s.End()
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Millisecond, share.ErrBusy)
	defer cancel()
	for _, err := range l.Events(ctx, "a/R", 0) {
		if !errors.Is(err, share.ErrBusy) {
			t.Errorf("without memory: %v", err)
		}
	}
	if _, err := (share.Log{Database: log}).Run(t.Context(), "a/none"); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Errorf("a run that is not there: %v", err)
	}
}
