package inspect_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/memlog"
	"github.com/starling-host/starling/host/inspect"
)

// forgetful is a log whose runs are removed at some time, which is what prune does to a
// file while somebody else follows a run in it.
type forgetful struct {
	*memlog.Log
	removed atomic.Bool
}

func (f *forgetful) Run(ctx context.Context, id string) (eventlog.RunSummary, error) {
	if f.removed.Load() {
		return eventlog.RunSummary{}, eventlog.ErrRunNotFound
	}
	return f.Log.Run(ctx, id)
}

// TestAPageStopsFollowingARunThatIsRemoved follows an open run for hours, until it is
// removed. No event tells a browser so: the stream ends with the next heartbeat, and not
// as that of a run that has ended.
func TestAPageStopsFollowingARunThatIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &forgetful{Log: memlog.New()}
		long(t, log.Log, "R", 3)
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
		if text := answer.Body.String(); strings.Count(text, "id: ") != 3 || strings.Contains(text, "event: end") {
			t.Errorf("the stream was %s", text)
		}
	})
}
