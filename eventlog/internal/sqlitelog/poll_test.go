package sqlitelog

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
)

// TestOnlyOtherProcessesWakeAllStreams: this process's commits go to the streams of their
// runs, and other streams do not read the log for them. Commits of another process are read
// at the next transaction, before any poll.
func TestOnlyOtherProcessesWakeAllStreams(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log.db")
	l := openAt(t, path, Options{})
	record(t, l, "before")
	reads := make(chan uint64, 100)
	_, err := l.hub.Stream(t.Context(), "quiet", func(_ context.Context, _ string, after uint64, _ int) ([]event.Event, error) {
		reads <- after
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	<-reads // for the first time
	record(t, l, "own")
	l.hub.Wake("quiet") // so that the test sees an event before it, if there is one
	<-reads
	select {
	case <-reads:
		t.Error("the stream of another run has read the log for a commit of this process")
	default:
	}
	record(t, openAt(t, path, Options{}), "strange")
	record(t, l, "after")
	<-reads
}

// TestAPollThatFailsIsNotTheLast: what another process commits after a look that failed is
// seen by a log that writes nothing itself.
func TestAPollThatFailsIsNotTheLast(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log.db")
	writer := openAt(t, path, Options{})
	record(t, writer, "before")
	l := openAt(t, path, Options{ReadOnly: true})
	failed, again := make(chan struct{}), make(chan struct{})
	looks := 0
	l.poll.version = func(ctx context.Context, r *conn) (int64, error) {
		switch looks++; looks {
		case 2:
			close(failed)
			return 0, errors.New("the disk hesitates")
		case 3:
			close(again)
		}
		return dataVersion(ctx, r)
	}
	events, err := l.Stream(t.Context(), "late")
	if err != nil {
		t.Fatal(err)
	}
	<-failed
	<-again
	record(t, writer, "late")
	for e := range events {
		if e.Kind.Terminal() {
			return
		}
	}
	t.Error("the stream ended before the run")
}

// record appends a whole run, with a barrier after each event.
func record(t *testing.T, l *Log, runID string) {
	t.Helper()
	for _, e := range logtest.Finished(runID, 1) {
		if err := errors.Join(l.Append(t.Context(), runID, e), l.Sync(t.Context(), runID)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestThePollerLeavesTheWriterToItself: while the writer keeps writing, it looks
// itself; once it rests, the poller reports all changes since then, once.
func TestThePollerLeavesTheWriterToItself(t *testing.T) {
	t.Parallel()
	seen := pollState{version: -1}
	for i, look := range []struct {
		version int64
		looked  uint64
		want    bool
	}{
		{1, 0, true},  // before the first look, the state is unknown
		{1, 0, false}, // nothing has changed
		{2, 0, true},  // another process, and no writer
		{3, 5, false}, // one commit, which the writer knows if it was another process's
		{4, 9, false}, // the same
		{4, 9, true},  // the last may have been another process's
		{4, 9, false},
		{4, 12, false}, // transactions that changed nothing
		{4, 12, false},
	} {
		if got := seen.foreign(look.version, look.looked); got != look.want {
			t.Errorf("look %d: %v, want %v", i, got, look.want)
		}
	}
}
