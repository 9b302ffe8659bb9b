package search

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
)

// Log is the part of a log that is searched.
type Log interface {
	ListRunsPage(ctx context.Context, o eventlog.RunPageOptions) (eventlog.RunPage, error)
	Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error]
}

// Run is a run that was searched. Its texts may be hostile.
type Run struct {
	span.Document          // of its summary alone if the search did not need its events
	Reason        string   `json:"-"` // why it failed, on one line, after the tool that failed if it is another one
	Calling       string   `json:"-"` // the tool of its last open call, or empty
	Tools         []string `json:"-"`
	Hosts         []string `json:"-"`
	Statuses      []int    `json:"-"` // of HTTP responses
	Unread        error    `json:"-"` // why its events could not be read to the end: validate says more

	prefix string // of the namespace, in the id
	blamed string // the tool that made it fail, or empty
	failed string // why it failed, on one line
	errors []string
	found  []string // those of the texts of a query that its events have
}

// Options bound an answer.
type Options struct {
	Namespace     string
	Limit, Offset int  // the runs of Found.Runs, as in [eventlog.RunPageOptions]
	Begun         bool // likewise
}

// Bounds of a search. If more runs, or more events, have to be looked at, it answers for the newest
// of them. Of a run with more events than one may have, it reads the first and the last.
var (
	maxRuns      = 10_000
	maxEvents    = 1_000_000 // of all runs
	maxRunEvents = 250_000
)

const (
	maxFailed = 1_000  // that are grouped
	maxLook   = 20_000 // events that [Read] reads
)

// Found is the answer to a query.
type Found struct {
	Runs     []Run     // of the page, the newest first
	Total    int       // runs that match
	Searched int       // runs that were looked at
	More     bool      // older runs were not looked at
	Unread   int       // runs whose events could not be read to the end
	Partly   int       // runs with too many events to read all of them
	Oldest   time.Time // when the last of them began
	Starts   []Start
	Reasons  []Reason
}

// Start is when a run that matches began, and its state.
type Start struct {
	At    time.Time
	State string
}

// Reason is what some of the runs failed for.
type Reason struct {
	Tool string `json:"tool,omitempty"`
	Text string `json:"reason"` // of the newest of them
	Runs int    `json:"runs"`

	// First and Last are when the first and the last of them began.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	Query string    `json:"query"` // that finds them
}

// Find answers a query.
func Find(ctx context.Context, log Log, q Query, o Options) (f Found, err error) {
	bounds := eventlog.RunPageOptions{Limit: o.Limit, Offset: o.Offset}.Normal()
	list, deep, texts := q.options(), q.deep(), q.texts()
	list.Namespace, list.Limit, list.Begun = o.Namespace, eventlog.MaxPageLimit, o.Begun && list.From.IsZero()
	room, failed, prefix := maxEvents, 0, ""
	if o.Namespace != "" {
		prefix = o.Namespace + "/"
	}
	var causes []Run
	most := maxRuns
	if !deep { // a listing has them all
		most = max(most, bounds.Offset+bounds.Limit)
	}
	for {
		page, err := log.ListRunsPage(ctx, list)
		if err != nil {
			return f, err
		}
		for _, summary := range page.Runs {
			r := Run{Document: span.Summarize(summary), prefix: prefix}
			if !q.match(&r, false) {
				continue
			}
			if f.More = f.Searched == most || deep && min(summary.LastSeq, uint64(maxRunEvents)) > uint64(room); f.More {
				break
			}
			f.Searched++
			f.Oldest = summary.StartedAt
			onPage := f.Total >= bounds.Offset && len(f.Runs) < bounds.Limit
			isFailed := summary.TerminalKind == event.KindRunFailed && failed < maxFailed
			if deep || onPage || isFailed {
				var n int
				r, n = read(ctx, log, summary, min(room, maxRunEvents), texts)
				r.prefix = prefix
				if room -= n; r.Partly {
					f.Partly++
				}
			}
			if r.Unread != nil && (ctx.Err() != nil || errors.Is(r.Unread, eventlog.ErrUnavailable)) {
				return f, r.Unread
			} else if r.Unread != nil {
				f.Unread++
			}
			if deep && !q.match(&r, true) {
				continue
			}
			if f.Total++; onPage {
				f.Runs = append(f.Runs, r)
			}
			f.Starts = append(f.Starts, Start{r.StartedAt, r.Status})
			if isFailed {
				failed++
				causes = append(causes, Run{Document: span.Document{RunSummary: summary}, blamed: r.blamed, failed: r.failed})
			}
		}
		list.Offset += len(page.Runs)
		if f.More || len(page.Runs) < list.Limit {
			if f.More && q.listed() {
				f.Total = page.TotalMatching
			}
			break
		}
	}
	f.Reasons = reasons(q, causes)
	return f, nil
}

// Note says which runs of an answer were not read whole. It is empty if all were.
func (f Found) Note() string {
	if f.Partly == 0 {
		return ""
	}
	return fmt.Sprintf("%s not read to the end: a search reads %s events, and %s of a run. Their figures are too low, and words may miss them.",
		display.Plural(f.Partly, "run"), display.Digits(uint64(maxEvents)), display.Digits(uint64(maxRunEvents)))
}

// Read returns a run with what its first events say of it.
func Read(ctx context.Context, log Log, s eventlog.RunSummary) Run {
	r, _ := read(ctx, log, s, maxLook, nil)
	return r
}

// read returns a run with what its events say of it, which of some texts, in lower case, they
// have, and how many events it read: at most as many as given, and the terminal event.
func read(ctx context.Context, log Log, s eventlog.RunSummary, most int, texts []string) (r Run, n int) {
	r.RunID = s.RunID
	var b span.Builder
	partly := false
	take := func(ev event.Event) {
		_ = b.Add(ev) // an event that does not fit its kind says nothing
		if b.Run().Encrypted || len(texts) == len(r.found) {
			return
		}
		lower := bytes.ToLower(ev.Payload)
		for _, text := range texts {
			if !slices.Contains(r.found, text) && bytes.Contains(lower, []byte(text)) {
				r.found = append(r.found, text)
			}
		}
	}
	for ev, err := range log.Events(ctx, r.RunID, 0) {
		if r.Unread = err; err != nil {
			break
		}
		if partly = n == most; partly {
			break
		}
		n++
		take(ev)
	}
	if partly && s.TerminalKind.Terminal() {
		for ev, err := range log.Events(ctx, r.RunID, s.LastSeq-1) {
			if r.Unread = err; err == nil && ev.Kind.Terminal() {
				take(ev)
			}
			break
		}
	}
	did := b.Run()
	r.Document = did.Document(s)
	r.Partly = partly
	for _, s := range did.Spans {
		if s.Kind == span.Call && s.State == span.Open {
			r.Calling = s.Name
		}
		switch {
		case s.Kind == span.Call && !slices.Contains(r.Tools, s.Name):
			r.Tools = append(r.Tools, s.Name)
		case s.Host != "" && !slices.Contains(r.Hosts, s.Host):
			r.Hosts = append(r.Hosts, s.Host)
		}
		if s.Status != 0 && !slices.Contains(r.Statuses, s.Status) {
			r.Statuses = append(r.Statuses, s.Status)
		}
		if s.ErrorType != "" && len(r.errors) < 100 {
			r.errors = append(r.errors, s.ErrorType+": "+s.Error)
		}
	}
	if did.State == span.Failed {
		r.errors = append(r.errors, did.ErrorType+": "+did.Error)
		r.blamed, r.failed = did.Reason()
		r.failed, _, _ = strings.Cut(r.failed, "\n")
		if r.Reason = r.failed; r.blamed != r.Tool {
			r.Reason = r.cause()
		}
	}
	return r, n
}

// cause returns why the run failed, after the tool that made it fail.
func (r *Run) cause() string {
	if r.blamed == "" {
		return r.failed
	}
	return r.blamed + ": " + r.failed
}

// Name returns what a run calls: the tool that it calls now, or its tool, or its model.
func (r *Run) Name() string {
	if r.Encrypted {
		return "(encrypted)"
	}
	return cmp.Or(r.Calling, r.Tool, r.Model)
}

// Words returns words for further queries about these runs: fields with values that occur in them.
func (f Found) Words() []string {
	words := []string{"state:failed", "state:open", "since:1h", "since:24h", "fuel:>1G", "duration:>10s"}
	add := func(field, value string) {
		if word := Word(field, value); len(words) < maxWords && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	for _, r := range f.Runs {
		for _, s := range r.Tools {
			add("tool", s)
		}
		for _, s := range r.Hosts {
			add("host", s)
		}
		for _, n := range r.Statuses {
			add("status", strconv.Itoa(n)[:1]+"xx")
		}
		if r.Error != nil {
			add("error", r.Error.Type)
		}
	}
	return words
}

const maxWords = 40

// reasons counts the failed runs of each tool and error, the most frequent first. The newest run is the first one.
func reasons(q Query, failed []Run) (all []Reason) {
	at := map[string]int{}
	for _, r := range failed {
		pattern := patternOf(r.cause())
		i, ok := at[pattern]
		if !ok {
			i, at[pattern] = len(all), len(all)
			all = append(all, Reason{Tool: r.blamed, Text: cmp.Or(r.failed, "(encrypted)"), Last: r.StartedAt.UTC(), Query: q.With("state", eventlog.StatusFailed) + " " + Word("reason", "="+pattern)})
		}
		all[i].Runs++
		all[i].First = r.StartedAt.UTC()
	}
	slices.SortStableFunc(all, func(a, b Reason) int { return b.Runs - a.Runs })
	return all
}

// patternOf returns a pattern for errors that differ in numbers, ids and addresses alone: * stands
// for a word with a digit, unless it is the status of a response. It is in lower case.
func patternOf(reason string) string {
	text := strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '*'
		}
		return c
	}, strings.ToValidUTF8(strings.ToLower(reason[:min(len(reason), maxPattern)]), "*"))
	return wordForm().ReplaceAllStringFunc(text, func(word string) string {
		n, err := strconv.Atoi(word)
		if strings.ContainsFunc(word, unicode.IsDigit) && (err != nil || n < 400 || n > 599) {
			return "*"
		}
		return word
	})
}

var wordForm = lazy.Regexp(`[\pL\p{Nd}]+`)

const maxPattern = 160 // bytes
