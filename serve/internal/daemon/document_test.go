package daemon

import (
	"context"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve/internal/eventview"
)

// overtaken is a log whose run goes on as soon as it was summed up.
type overtaken struct {
	*store.MemoryLog
	rest []event.Event
}

func (o *overtaken) Run(ctx context.Context, runID string) (eventlog.RunSummary, error) {
	s, err := o.MemoryLog.Run(ctx, runID)
	for _, e := range o.rest {
		if err == nil {
			err = o.Append(ctx, runID, e)
		}
	}
	o.rest = nil
	return s, err
}

// A document never has the end of a run that it calls open.
func TestAPIDocumentIsOfOneMoment(t *testing.T) {
	const id = "acme/01JGQ4T0000000000000000000"
	events := logtest.Finished(id, 3)
	log := &overtaken{store.Memory(), events[1:]}
	if err := log.Append(t.Context(), id, events[0]); err != nil {
		t.Fatal(err)
	}
	view := eventview.View{Log: log, Namespace: "acme"}
	for _, want := range []struct {
		status string
		over   bool
	}{{eventlog.StatusOpen, false}, {eventlog.StatusCompleted, true}} {
		doc, err := describeRun(t.Context(), view, "01JGQ4T0000000000000000000")
		if err != nil || doc.Status != want.status || (doc.MerkleRoot != "") != want.over || doc.Waiting == want.over {
			t.Errorf("%+v, %v; want %+v", doc, err, want)
		}
	}
}

// What the runtime notes for itself is no effect of a tool, as everywhere else.
func TestADocumentCountsWhatToolsDid(t *testing.T) {
	doc := documentOf(t,
		event.SideEffectRecorded{Name: event.EffectModel},
		event.SideEffectRecorded{Name: event.EffectPolicy, CallID: "c1"},
		event.SideEffectRecorded{Name: event.EffectIntent, CallID: "c1"},
	)
	if doc.Meter.Effects != 0 {
		t.Errorf("%+v", doc.Meter)
	}
	doc = documentOf(t, event.SideEffectRecorded{Name: event.EffectSeed, CallID: "c1"}, event.SideEffectRecorded{Name: "http", CallID: "c1"})
	if doc.Meter.Effects != 2 {
		t.Errorf("%+v", doc.Meter)
	}
}

// Who has no other answer than the document learns which bound it was.
func TestADocumentNamesTheBudget(t *testing.T) {
	doc := documentOf(t,
		event.BudgetExceeded{Limit: "usd", Cap: 0.0008, Actual: 0.0009, Where: "mid_stream"},
		event.RunFailed{ErrorType: event.ErrorBudget, Error: "step: budget exceeded"},
	)
	if want := "usd, 0.0009 of 0.0008"; doc.Error.Message != want {
		t.Errorf("%q, want %q", doc.Error.Message, want)
	}
}

// documentOf is the document of a run that has the events so far.
func documentOf(t *testing.T, payloads ...event.Payload) span.Document {
	t.Helper()
	chain, b, at := logtest.Chain{RunID: "acme/01JGQ4T0000000000000000000"}, span.Builder{Whole: true}, eventlog.Cursor{}
	for _, p := range payloads {
		ev := chain.Next(p)
		at.Count(ev)
		if err := b.Add(ev); err != nil {
			t.Fatal(err)
		}
	}
	return b.Run().Document(at.Run())
}
