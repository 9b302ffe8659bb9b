package share_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
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

// TestAnAnswerIsCoveredOnce counts what a request holds already, takes the rest without waiting, and
// gives all back at its end.
func TestAnAnswerIsCoveredOnce(t *testing.T) {
	const small, quarter = guest.SmallBytes, 1 << 20
	for name, tc := range map[string]struct {
		held, lent, answer int64
		ended, full        bool
		want               int64 // that the request holds then
		err                error
	}{
		"a small one":                     {answer: small},
		"one byte more":                   {answer: small + 1, want: small + 1},
		"none beside what is held":        {held: 200 << 10, answer: 200 << 10, want: 200 << 10},
		"one byte more than is held":      {held: 200 << 10, answer: 200<<10 + 1, want: 200<<10 + small + 1},
		"much more than is held":          {held: 200 << 10, answer: 500 << 10, want: 500 << 10},
		"none beside what is lent":        {lent: 200 << 10, answer: 200 << 10, want: 200 << 10},
		"what is held and lent, together": {held: 100 << 10, lent: 200 << 10, answer: 301 << 10, want: 300<<10 + small + 1},
		"more than a tenant may have":     {answer: 1 << 40, want: quarter},
		"that, with something held":       {held: 200 << 10, answer: 1 << 40, want: quarter},
		"without room":                    {full: true, answer: small + 1, err: share.ErrBusy},
		"a small one without room":        {full: true, answer: small},
		"after the end":                   {answer: 1 << 19, ended: true},
	} {
		h := newHost(1, 4*quarter)
		ctx, s := h.Begin(t.Context(), guest.Claim{Tenant: "a"})
		give, err := share.Take(ctx, tc.lent)
		if err = errors.Join(err, share.Hold(ctx, tc.held)); err != nil {
			t.Fatal(name, err)
		}
		if tc.ended {
			s.End()
		}
		for i := 0; tc.full && i < 4; i++ {
			if _, err := h.Memory.Take(t.Context(), fmt.Sprint("other", i), quarter); err != nil {
				t.Fatal(name, err)
			}
		}
		if err := s.Cover(tc.answer); err != tc.err {
			t.Errorf("%s: %v, want %v", name, err, tc.err)
		}
		if got := h.Memory.Held("a"); got != tc.want {
			t.Errorf("%s: the request holds %d bytes, want %d", name, got, tc.want)
		}
		if err := s.Cover(tc.answer); err != tc.err || h.Memory.Held("a") != tc.want {
			t.Errorf("%s: covered again, it holds %d bytes: %v", name, h.Memory.Held("a"), err)
		}
		give()
		s.End()
		if left := h.Memory.Held("a"); left != 0 {
			t.Errorf("%s: after the end %d bytes are held", name, left)
		}
	}
	if err := (&share.Share{}).Cover(1 << 40); err != nil {
		t.Error("a program with one user:", err)
	}
}

// TestAnEventIsHeldUntilTheEnd takes the memory for one event once: for the read that follows, and for
// the text that is kept. It is measured from that event on.
func TestAnEventIsHeldUntilTheEnd(t *testing.T) {
	log, err := store.OpenFile(t.Context(), filepath.Join(t.TempDir(), "log.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	same := tool.Typed("same", "Same.", func(context.Context, struct {
		Text string `json:"text"`
	}) (string, error) {
		return strings.Repeat("y", 200<<10), nil
	})
	input, _ := json.Marshal(map[string]string{"text": strings.Repeat("x", 10<<10)})
	if _, err := (agent.Direct{Log: log, Tool: same}).RunWithID(t.Context(), "a/R", input); err != nil {
		t.Fatal(err)
	}
	var sizes []int64 // of the payloads
	for ev, err := range log.Events(t.Context(), "a/R", 0) {
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, int64(len(ev.Payload)))
	}
	largest := func(from int) int64 { return slices.Max(sizes[from:]) }
	sum := func(from int) (all int64) {
		for _, n := range sizes[from:] {
			all += n
		}
		return all
	}
	h := newHost(2, 256<<20)
	h.Log = log
	for seq := range len(sizes) + 1 {
		from := max(seq, 1) - 1
		ctx, s := h.Begin(t.Context(), guest.Claim{Tenant: "a"})
		reads, err := share.HoldEvent(ctx, "a/R", uint64(seq))
		if err != nil {
			t.Fatal(err)
		}
		want := 2*sum(from) + share.Event*largest(from)
		for _, err := range (share.Log{Database: log}).Events(reads, "a/R", uint64(from)) {
			if held := h.Memory.Held("a"); err != nil || held != want {
				t.Fatalf("event %d: %d bytes are held while it is read, want %d; %v", seq, held, want, err)
			}
			break
		}
		if held := h.Memory.Held("a"); held != want {
			t.Errorf("event %d: %d bytes are held afterwards, want %d", seq, held, want)
		}
		s.End()
		if held := h.Memory.Held("a"); held != 0 {
			t.Errorf("event %d: %d bytes are held after the end", seq, held)
		}
	}
	ctx, s := h.Begin(t.Context(), guest.Claim{Tenant: "a"})
	defer s.End()
	if err := share.Reserve(ctx, false, "a/R"); err != nil {
		t.Fatal(err)
	}
	before := h.Memory.Held("a")
	if _, err := share.HoldEvent(ctx, "a/R", 1); err != nil || h.Memory.Held("a") != before {
		t.Errorf("an event of a run that is paid for takes %d bytes more: %v", h.Memory.Held("a")-before, err)
	}
	if same, err := share.HoldEvent(t.Context(), "a/R", 1); err != nil || same != t.Context() {
		t.Error("a program with one user:", err)
	}
	gone, leave := context.WithCancel(ctx)
	leave()
	if _, err := share.HoldEvent(gone, "a/another", 1); !errors.Is(err, context.Canceled) {
		t.Error("a client that has gone:", err)
	}
	poor := newHost(2, 1<<20)
	poor.Log = log
	for _, other := range []string{"b", "c", "d", "e"} {
		if _, err := poor.Memory.Take(t.Context(), other, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	late, p := poor.Begin(t.Context(), guest.Claim{Tenant: "a"})
	defer p.End()
	late, cancel := context.WithTimeoutCause(late, 10*time.Millisecond, share.ErrBusy)
	defer cancel()
	if _, err := share.HoldEvent(late, "a/R", 1); !errors.Is(err, share.ErrBusy) {
		t.Error("without memory:", err)
	}
}
