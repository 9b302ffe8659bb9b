package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/serve/tenant"
)

// TestProblemDocuments: a client is to try again what may succeed later.
func TestProblemDocuments(t *testing.T) {
	for err, want := range map[error]int{
		eventlog.ErrUnavailable:       http.StatusServiceUnavailable,
		eventlog.ErrLogStopped:        http.StatusServiceUnavailable,
		tenant.ErrWrongMasterKey:      http.StatusServiceUnavailable, // another host may have the right one
		eventlog.ErrRunNotFound:       http.StatusNotFound,
		eventlog.ErrSchemaTooNew:      http.StatusConflict,
		tenant.ErrErased:              http.StatusUnauthorized, // since the request was let in
		errors.New("something broke"): http.StatusInternalServerError,
	} {
		p := problemOf(fmt.Errorf("tenant: look up an API key: %w", err))
		if p.Status != want || (p.retryAfter > 0) != (want == http.StatusServiceUnavailable) {
			t.Errorf("%v: %+v", err, p)
		}
	}
}
