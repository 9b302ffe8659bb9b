package inspect_test

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/inspect"
)

// forgetful is a log whose runs are removed at some time, as prune does to a file while
// a client follows a run in it.
type forgetful struct {
	*store.MemoryLog
	removed atomic.Bool
	err     error // of a run that was removed; nil is [eventlog.ErrRunNotFound]
}

func (f *forgetful) Run(ctx context.Context, id string) (eventlog.RunSummary, error) {
	if f.removed.Load() {
		return eventlog.RunSummary{}, cmp.Or(f.err, eventlog.ErrRunNotFound)
	}
	return f.MemoryLog.Run(ctx, id)
}

// TestARunThatCannotBeReadIsNoFailure: a run under another key, or of a newer program, is
// told from a failure of the server.
func TestARunThatCannotBeReadIsNoFailure(t *testing.T) {
	for _, err := range []error{store.ErrDataKey, eventlog.ErrSchemaTooNew} {
		log := &forgetful{MemoryLog: store.Memory(), err: err}
		log.removed.Store(true)
		code, body := openView(t, viewOf(log, "")).get("/runs/R")
		if code != http.StatusConflict || !strings.Contains(body, eventview.Unreadable(err)) {
			t.Errorf("%v: %d %s", err, code, body)
		}
	}
}

// TestAPageStopsFollowingARunThatIsRemoved follows an open run for hours, until it is
// removed. The stream ends, without a change.
func TestAPageStopsFollowingARunThatIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &forgetful{MemoryLog: store.Memory()}
		long(t, log.MemoryLog, "R", 3)
		s, err := inspect.New(inspect.Config{Scope: inspect.Only(viewOf(log, ""), "")})
		if err != nil {
			t.Fatal(err)
		}
		ctx, hangUp := context.WithCancel(t.Context())
		defer hangUp()
		answer, ended := httptest.NewRecorder(), make(chan struct{})
		go func() {
			defer close(ended)
			s.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/runs/R/live", nil))
		}()
		within := func(d time.Duration) bool {
			select {
			case <-ended:
				return true
			case <-time.After(d):
				return false
			}
		}
		if within(2 * time.Hour) {
			t.Fatalf("it ended while the run was there: %s", answer.Body)
		}
		log.removed.Store(true)
		if !within(time.Minute) {
			t.Fatal("a run that is not there any more is followed")
		}
		if text := answer.Body.String(); !strings.Contains(text, ": still here") || strings.Contains(text, "data: ") {
			t.Errorf("the stream was %s", text)
		}
	})
}
