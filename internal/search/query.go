package search

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/lists"
)

// Field is a field that a word of a query may name.
type Field struct{ Name, Example, Meaning string }

// Fields are all fields.
var Fields = []Field{
	{"state", "state:failed", "completed, failed, cancelled or open"},
	{"tool", "tool:fetch", "the name of a tool that the run called"},
	{"host", "host:api.example", "a host, or host:port, that the run sent a request to"},
	{"status", "status:5xx", "the status of a response that it got"},
	{"error", "error:timeout", "part of the type or text of any error in it"},
	{"reason", "reason:timeout", "part of the error that made it fail, or of the name of its tool"},
	{"since", "since:1h", "it started later; also 04:20, 2026-03-02T04:20 (UTC)"},
	{"until", "until:2026-03-02", "it started earlier; also 1h, 04:20 (UTC)"},
	{"fuel", "fuel:>1G", "the fuel that it used"},
	{"calls", "calls:>3", "the calls that it made"},
	{"duration", "duration:>10s", "the time from its first event to its last"},
	{"cost", "cost:>0.5", "what its model cost, in dollars"},
	{"text", `text:"no route"`, "a text in its events"},
}

// Error is a query that cannot be read.
type Error struct {
	At   int // the character where the wrong word begins, from 1
	Why  string
	Hint string // what to write instead
}

func (e *Error) Error() string { return fmt.Sprintf("search, character %d: %s", e.At, e.Why) }

// Query is a parsed query. The zero value matches all runs.
type Query struct{ terms []term }

// term is a word.
type term struct {
	source  string // as it was written
	field   string // empty for a word without one
	value   string // without quotation marks, in lower case
	not     bool
	pattern *regexp.Regexp // of texts in lower case
	op      string         // of a comparison
	number  float64        // that it compares with: units, dollars or nanoseconds
	time    time.Time
}

// MaxBytes bounds a query.
const MaxBytes = 1000

// Parse reads a query. Ages are counted back from now. An error is an [*Error].
func Parse(text string, now time.Time) (q Query, err error) {
	text = strings.ToValidUTF8(text, string(utf8.RuneError)) // which may be longer, and is what the bound is for
	if len(text) > MaxBytes {
		return q, &Error{MaxBytes, fmt.Sprintf("the query is longer than %d bytes", MaxBytes), "leave out some words"}
	}
	for at := 0; at < len(text); {
		if r, n := utf8.DecodeRuneInString(text[at:]); strings.ContainsRune(" \t\r\n", r) {
			at += n
			continue
		}
		t, end, quoted := term{}, at, -1
		var value strings.Builder
		plain, unknown := true, "" // neither a quotation mark nor a colon has come; what looks like a field
		for ; end < len(text) && (quoted >= 0 || !strings.ContainsRune(" \t\r\n", rune(text[end]))); end++ {
			switch c := text[end]; {
			case c == '\\' && quoted >= 0 && end+1 < len(text):
				end++
				value.WriteByte(text[end])
			case c == '"' && quoted >= 0:
				quoted = -1
			case c == '"':
				quoted, plain = end, false
			case c == '-' && end == at:
				t.not = true
			case c == ':' && plain:
				plain = false
				if name := strings.ToLower(value.String()); slices.Contains(fieldNames(), name) {
					t.field = name
					value.Reset()
					continue
				} else if fieldForm().MatchString(name) && !textAfterColon().MatchString(text[end+1:]) {
					unknown = name
				}
				value.WriteByte(c)
			default:
				value.WriteByte(c)
			}
		}
		fail := func(at int, hint, why string, args ...any) (Query, error) {
			return Query{}, &Error{utf8.RuneCountInString(text[:at]) + 1, fmt.Sprintf(why, args...), hint}
		}
		if quoted >= 0 {
			return fail(quoted, `close it: "no route"`, "a quotation mark is not closed")
		}
		t.source, t.value = text[at:end], strings.ToLower(value.String())
		if unknown != "" {
			hint := fmt.Sprintf("write %q to find the text", value.String())
			if near := display.Nearest(unknown, fieldNames()); near != "" {
				hint = fmt.Sprintf("did you mean %s%s? %s", near, value.String()[len(unknown):], hint)
			}
			return fail(at, hint, "there is no field %q", unknown)
		}
		if t.value == "" && t.field != "" {
			return fail(at, "write "+example(t.field), "%s: has no value", t.field)
		} else if t.value == "" {
			return fail(at, `write a word, such as "no route"`, "there is no word")
		}
		if why := t.parse(now); why != "" {
			return fail(at, "write "+example(t.field), "%s", why)
		}
		q.terms = append(q.terms, t)
		at = end
	}
	return q, nil
}

func fieldNames() []string { return lists.Map(Fields, func(f Field) string { return f.Name }) }

func example(field string) string {
	f := Fields[slices.Index(fieldNames(), field)]
	return f.Example + " (" + f.Meaning + ")"
}

var (
	fieldForm      = lazy.Regexp(`^[a-z_]+$`)
	textAfterColon = lazy.Regexp(`^(//|:|\s|$)`) // as in http://x, a::b and "why: because"
	statusForm     = lazy.Regexp(`^[1-5](xx|\d\d)$`)
	portForm       = lazy.Regexp(`:(\d+|\*)$`)
	compareForm    = lazy.Regexp(`^(>=|<=|>|<|=)?(.+)$`)
)

// parse reads the value of a term, and returns why it has none of its kind.
func (t *term) parse(now time.Time) (why string) {
	var err error
	pattern := strings.ReplaceAll(regexp.QuoteMeta(t.value), `\*`, ".*")
	switch t.field {
	case "state":
		if _, ok := eventlog.StatusKind(t.value); !ok {
			return fmt.Sprintf("%q is not the state of a run", t.value)
		}
	case "tool", "host":
		if t.field == "host" && !portForm().MatchString(t.value) {
			pattern += `(:\d+)?`
		}
		t.pattern = regexp.MustCompile("(?s)^" + pattern + "$")
	case "error", "reason":
		t.pattern = regexp.MustCompile("(?s)" + pattern)
	case "status":
		if !statusForm().MatchString(t.value) {
			return fmt.Sprintf("%q is not the status of a response", t.value)
		}
		t.pattern = regexp.MustCompile("^" + strings.ReplaceAll(t.value, "x", ".") + "$")
	case "since", "until":
		if t.time, err = parseTime(t.value, now); err != nil {
			return fmt.Sprintf("%q is not a time", t.value)
		}
	case "fuel", "calls", "duration", "cost":
		parts := compareForm().FindStringSubmatch(t.value)
		t.op = parts[1]
		var n uint64
		var d time.Duration
		switch t.field {
		case "fuel":
			if n, err = display.ParseCount(strings.ToUpper(strings.ReplaceAll(parts[2], "k", "K")), fuelUnits); err != nil && parts[2] == "0" {
				err = nil
			}
			t.number = float64(n)
		case "duration":
			d, err = parseAge(parts[2])
			t.number = float64(d)
		default:
			t.number, err = strconv.ParseFloat(parts[2], 64)
		}
		if err != nil || t.number != t.number {
			return fmt.Sprintf("%q is not an amount for %s", parts[2], t.field)
		}
	}
	return ""
}

// fuelUnits are those of fuel, in upper case.
var fuelUnits = []display.Unit{{Suffix: "K", Factor: 1e3}, {Suffix: "M", Factor: 1e6}, {Suffix: "G", Factor: 1e9}, {Suffix: "T", Factor: 1e12}}

// parseAge reads a duration, also in days.
func parseAge(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

func parseTime(text string, now time.Time) (t time.Time, err error) {
	if age, err := parseAge(text); err == nil && age >= 0 {
		return now.Add(-age), nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly, time.TimeOnly, "15:04"} {
		if t, err = time.Parse(form, strings.ToUpper(text)); err == nil {
			break
		}
	}
	if err == nil && t.Year() == 0 { // a time without a date
		if t = now.UTC().Truncate(24 * time.Hour).Add(t.Sub(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC))); t.After(now) {
			t = t.AddDate(0, 0, -1)
		}
	}
	return t, err
}

// String returns the query as it was written.
func (q Query) String() string {
	return strings.Join(lists.Map(q.terms, func(t term) string { return t.source }), " ")
}

// With returns the text of the query with another value of a field, or without the field for an
// empty value.
func (q Query) With(field, value string) string {
	q.terms = slices.DeleteFunc(slices.Clone(q.terms), func(t term) bool { return t.field == field })
	if value != "" {
		q.terms = append(q.terms, term{source: Word(field, value)})
	}
	return q.String()
}

// Value returns the value of a field of the query, in lower case, or an empty text.
func (q Query) Value(field string) string {
	for _, t := range q.terms {
		if t.field == field && !t.not {
			return t.value
		}
	}
	return ""
}

// Word writes a word of a query.
func Word(field, value string) string {
	if strings.ContainsAny(value, " \t\r\n\"\\") {
		value = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
	}
	return field + ":" + value
}

// options returns the part of the query that a listing answers.
func (q Query) options() (o eventlog.RunPageOptions) {
	for _, t := range q.terms {
		switch {
		case t.field == "state" && !t.not:
			o.Status = t.value
		case t.field == "since" && !t.not && t.time.After(o.StartedAfter):
			o.StartedAfter = t.time.Add(-1) // since includes the time itself
		case t.field == "until" && !t.not && (o.From.IsZero() || t.time.Before(o.From)):
			o.From = t.time
		}
	}
	return o
}

// listed reports whether a listing answers the whole query, and counts what matches.
func (q Query) listed() bool {
	return !slices.ContainsFunc(q.terms, func(t term) bool { return t.not || t.field != "state" && t.field != "since" })
}

// shallow are the fields that a listing has.
var shallow = []string{"state", "since", "until", "duration"}

// deep reports whether the query needs the events of a run.
func (q Query) deep() bool {
	return slices.ContainsFunc(q.terms, func(t term) bool { return !slices.Contains(shallow, t.field) })
}

// texts returns the words that are looked for in the events.
func (q Query) texts() (words []string) {
	for _, t := range q.terms {
		if t.field == "text" || t.field == "" {
			words = append(words, t.value)
		}
	}
	return words
}

// match reports whether a run matches the terms that need its events, or the others.
func (q Query) match(r *Run, deep bool) bool {
	for _, t := range q.terms {
		if slices.Contains(shallow, t.field) != deep && t.matches(r) == t.not {
			return false
		}
	}
	return true
}

func (t term) matches(r *Run) bool {
	fits := func(text string) bool { return t.pattern.MatchString(strings.ToLower(text)) }
	switch t.field {
	case "state":
		return r.Status == t.value
	case "since":
		return !r.StartedAt.Before(t.time)
	case "until":
		return r.StartedAt.Before(t.time)
	case "tool":
		return slices.ContainsFunc(r.Tools, fits)
	case "host":
		return slices.ContainsFunc(r.Hosts, fits)
	case "status":
		return slices.ContainsFunc(r.Statuses, func(n int) bool { return fits(strconv.Itoa(n)) })
	case "error":
		return slices.ContainsFunc(r.errors, fits)
	case "reason":
		if whole, ok := strings.CutPrefix(t.value, "="); ok {
			return patternOf(r.cause()) == whole
		}
		return fits(r.cause())
	case "fuel":
		return t.compares(float64(r.Meter.Fuel))
	case "calls":
		return t.compares(float64(r.ToolCallCount))
	case "duration":
		return t.compares(float64(r.DurationMs) * 1e6)
	case "cost":
		return t.compares(r.CostUSD)
	case "":
		if strings.Contains(strings.ToLower(strings.TrimPrefix(r.RunID, r.prefix)), t.value) {
			return true
		}
	}
	return slices.Contains(r.found, t.value)
}

// comparisons are the results of [cmp.Compare] for which an operator holds.
var comparisons = map[string][]int{">": {1}, ">=": {0, 1}, "<": {-1}, "<=": {-1, 0}, "=": {0}, "": {0}}

func (t term) compares(n float64) bool {
	return slices.Contains(comparisons[t.op], cmp.Compare(n, t.number))
}
