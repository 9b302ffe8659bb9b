package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/queue"
)

// address is a path with those parameters that have a value.
func address(path string, q url.Values) string {
	maps.DeleteFunc(q, func(_ string, values []string) bool { return values[0] == "" })
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// unless writes a number for an address, and nothing if it is the standard one.
func unless[N int | int64 | uint64](standard, n N) string {
	if n == standard {
		return ""
	}
	return fmt.Sprint(n)
}

// state is the word for a state, and the class that it is drawn with.
type state struct{ Word, Class string }

func stateOf[S ~string](word S) state {
	return state{string(word), cmp.Or(classes[string(word)], "open")}
}

// classes are how states are drawn that are not open.
var classes = map[string]string{
	eventlog.StatusCompleted: "good", eventlog.StatusFailed: "bad", eventlog.StatusCancelled: "warn", // of runs
	string(queue.Running): "good", string(queue.Sleeping): "warn", string(queue.Cancelling): "warn", // of jobs
	queue.HostWorking: "good", queue.HostDraining: "warn", queue.HostDrained: "warn", queue.HostSilent: "bad", queue.HostGone: "bad", // of hosts
	"valid": "good", "invalid": "bad", "newer": "warn", "identical": "good", "diverged": "bad", "not replayed": "warn", // of checks
	"the same": "good", "different": "warn", "match": "good", "differ": "warn", // of two runs
}

// moment is a point in time: for machines, for people, and how long ago it was.
type moment struct{ ISO, Date, Ago string }

func newMoment(unixNano int64, now time.Time) moment {
	t := time.Unix(0, unixNano).UTC()
	return moment{t.Format(time.RFC3339Nano), t.Format("2006-01-02 15:04:05.000 UTC"), ago(now.Sub(t))}
}

func ago(d time.Duration) string {
	switch {
	case d < 0:
		return "in the future"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}

// took is how long a run was in progress, if it is over.
func took(run eventlog.RunSummary) string {
	if run.TerminalKind == 0 {
		return ""
	}
	if run.DurationMs == 0 {
		return "<1ms"
	}
	return display.Duration(time.Duration(run.DurationMs) * time.Millisecond)
}

func cost(usd float64) string {
	switch {
	case usd == 0:
		return ""
	case usd < 0.01:
		return fmt.Sprintf("$%.4f", usd)
	}
	return fmt.Sprintf("$%.2f", usd)
}
