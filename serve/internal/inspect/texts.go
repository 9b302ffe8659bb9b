package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
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

// Bounds of the long texts that are shown beside a payload.
const (
	maxTexts   = 40
	longText   = 200 // characters without a line break that make a text long
	maxUnfolds = 64 << 10
)

// longTexts returns the texts of a payload that JSON shows on one line although they
// have several, such as a model's answer or an HTTP message, each with its path.
func longTexts(payload canon.Raw) []fact {
	doc, err := canon.Render(payload)
	if err != nil {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	var found []fact
	collectTexts(v, "", &found)
	return found
}

func collectTexts(v any, path string, found *[]fact) {
	if len(*found) >= maxTexts {
		return
	}
	switch v := v.(type) {
	case string:
		if strings.Contains(v, "\n") || utf8.RuneCountInString(v) > longText {
			*found = append(*found, fact{path, unfolded(v)})
		}
	case []any:
		for i, element := range v {
			collectTexts(element, fmt.Sprintf("%s[%d]", path, i), found)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			inner := strings.TrimPrefix(path+"."+display.Printable(name), ".")
			if name == "$text" && len(v) == 1 {
				inner = path // a byte string that is text
			}
			collectTexts(v[name], inner, found)
		}
	}
}

// unfolded keeps line breaks and tabs and escapes all else that is not printable.
func unfolded(s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	if len(s) > maxUnfolds {
		s = s[:maxUnfolds] + "\n..."
	}
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = display.Printable(strings.ReplaceAll(line, "\t", "    "))
	}
	return strings.Join(lines, "\n")
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
