package daemon

import (
	"context"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/memlog"
	"github.com/starling-host/starling/host/logview"
)

// overtaken is a log whose run goes on as soon as it was summed up.
type overtaken struct {
	*memlog.Log
	rest []event.Event
}

func (o *overtaken) Run(ctx context.Context, runID string) (eventlog.RunSummary, error) {
	s, err := o.Log.Run(ctx, runID)
	for _, e := range o.rest {
		if err == nil {
			err = o.Append(ctx, runID, e)
		}
	}
	o.rest = nil
	return s, err
}

// A document never has the end of a run that it calls open.
func TestADocumentIsOfOneMoment(t *testing.T) {
	const id = "acme/01JGQ4T0000000000000000000"
	events := logtest.Finished(id, 3)
	log := &overtaken{memlog.New(), events[1:]}
	if err := log.Append(t.Context(), id, events[0]); err != nil {
		t.Fatal(err)
	}
	view := logview.View{Log: log, Namespace: "acme"}
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
