package daemon

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestHealthFailureIsLoggedOnce has a check fail, go on failing beside another one, and recover.
func TestHealthFailureIsLoggedOnce(t *testing.T) {
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	d := &Daemon{logger: logger, failing: failing{since: map[string]time.Time{}}}
	broken := errors.New("no route")
	for _, step := range []struct {
		check string
		err   error
		want  string
	}{
		{"log", nil, ""},
		{"log", broken, `level=ERROR msg="not ready" check=log error="no route"`},
		{"log", broken, ""},
		{"queue", broken, `check=queue`},
		{"log", nil, `level=INFO msg="ready again" check=log after=`},
		{"log", nil, ""},
		{"queue", broken, ""},
		{"log", broken, `msg="not ready" check=log`},
	} {
		log.Reset()
		d.note(step.check, step.err)
		if got := log.String(); !strings.Contains(got, step.want) || (step.want == "") != (got == "") {
			t.Errorf("%s, %v: logged %q, want %q", step.check, step.err, got, step.want)
		}
	}
}
