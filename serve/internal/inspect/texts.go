package inspect

import (
	"fmt"
	"maps"
	"net/url"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
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

// state is the word for the state of a run, and the class that it is drawn with.
type state struct{ Word, Class string }

func stateOf(run eventlog.RunSummary) state {
	switch run.TerminalKind {
	case event.KindRunCompleted:
		return state{run.Status(), "good"}
	case event.KindRunFailed:
		return state{run.Status(), "bad"}
	case event.KindRunCancelled:
		return state{run.Status(), "warn"}
	}
	return state{run.Status(), "open"}
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

// used returns the totals of one or several runs, without zero ones.
func used(run eventlog.RunSummary) (facts []fact) {
	count := func(n int64) string { return display.Digits(uint64(max(n, 0))) }
	for _, f := range []fact{
		{"events", display.Digits(run.LastSeq)}, {"turns", count(int64(run.TurnCount))}, {"tool calls", count(int64(run.ToolCallCount))},
		{"tokens in", count(run.InputTokens)}, {"tokens out", count(run.OutputTokens)}, {"cost", cost(run.CostUSD)},
	} {
		if f.Value != "" && f.Value != "0" {
			facts = append(facts, f)
		}
	}
	return facts
}
