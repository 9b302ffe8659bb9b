package daemon

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/recorded"
	"github.com/starling-host/starling/runtime/replay"
)

// verdictDocument is what a replay found.
type verdictDocument struct {
	RunID      string              `json:"run_id"`
	Verdict    string              `json:"verdict"` // identical, diverged or invalid
	Events     int                 `json:"events,omitempty"`
	Open       bool                `json:"open,omitempty"`
	Divergence *divergenceDocument `json:"divergence,omitempty"`
	Error      string              `json:"error,omitempty"`
}

type divergenceDocument struct {
	Seq          uint64 `json:"seq"`
	Kind         string `json:"kind"`
	ExpectedKind string `json:"expected_kind"`
	Class        string `json:"class"`
	Field        string `json:"field,omitempty"`
	Expected     string `json:"expected,omitempty"`
	Got          string `json:"got,omitempty"`
	Reason       string `json:"reason,omitempty"`
}

// replayRun executes a run again, offline, and says whether it is the same.
func (d *Daemon) replayRun(w http.ResponseWriter, r *request) error {
	s, err := d.find(r)
	if err != nil {
		return err
	}
	v, err := r.view.Replay(r.Context(), s.RunID)
	doc := verdictDocument{RunID: s.RunID, Verdict: "identical", Events: v.Events, Open: v.Open}
	switch corrupt, invalid := errors.AsType[*eventlog.CorruptError](err); {
	case invalid:
		doc.Verdict, doc.Error = "invalid", corrupt.Error()
	case err != nil:
		return notReplayed(err)
	case v.Divergence != nil:
		doc.Verdict, doc.Divergence = "diverged", newDivergence(v.Divergence)
	}
	writeJSON(w, http.StatusOK, doc)
	return nil
}

func newDivergence(v *replay.Divergence) *divergenceDocument {
	return &divergenceDocument{
		Seq: v.Seq, Kind: kindOrEnd(v.Kind), ExpectedKind: kindOrEnd(v.ExpectedKind),
		Class: string(v.Class), Field: v.Field, Expected: v.Expected, Got: v.Got, Reason: v.Reason,
	}
}

// kindOrEnd names a kind; none is the end of the run.
func kindOrEnd(k event.Kind) string {
	if k == 0 {
		return "end"
	}
	return k.String()
}

// notReplayed words why a run cannot be executed.
func notReplayed(err error) error {
	if e, ok := errors.AsType[*recorded.Error](err); ok {
		return notReplayable.because("%s", e.Reason)
	}
	if e, ok := errors.AsType[*replay.UnsupportedError](err); ok {
		return notReplayable.because("%s", e.Reason)
	}
	if errors.Is(err, eventlog.ErrModuleNotFound) {
		return notReplayable.because("its module is not in the log")
	}
	return err
}

// replay is the Replayer of a tenant's view.
func (d *Daemon) replay(ctx context.Context, log eventlog.EventLog, runID string) (replay.Verdict, error) {
	select {
	case d.replays <- struct{}{}:
	default:
		return replay.Verdict{}, busy.because("%d runs are executed again at the moment", cap(d.replays)).retry(2 * time.Second)
	}
	defer func() { <-d.replays }()
	if _, err := eventlog.CheckRun(ctx, log, runID, eventlog.CheckOptions{Strict: true, AllowOpen: true}); err != nil {
		return replay.Verdict{}, err
	}
	events, err := log.Read(ctx, runID)
	if err != nil {
		return replay.Verdict{}, err
	}
	lease := d.recorded.Lease()
	defer lease.Release()
	return replay.Run(ctx, events, lease.Resolve, replay.Options{})
}
