package eventlog

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// RunSummary is one line of a listing. Every JSON document about a run has these members.
type RunSummary struct {
	RunID         string     `json:"run_id"`
	StartedAt     time.Time  `json:"started_at"`  // of the first event
	DurationMs    int64      `json:"duration_ms"` // from the first event to the last; 0 if the clock was set back between them
	LastSeq       uint64     `json:"events"`      // number of the last event
	TurnCount     int        `json:"turns"`
	ToolCallCount int        `json:"tool_calls"` // calls, not attempts
	InputTokens   int64      `json:"input_tokens"`
	OutputTokens  int64      `json:"output_tokens"`
	CostUSD       float64    `json:"cost_usd"`
	TerminalKind  event.Kind `json:"-"` // zero while the run is open
	Head          canon.Hash `json:"-"` // of the last event; zero where the backend keeps none
}

// Silent returns for how long an open run has recorded nothing.
func (s RunSummary) Silent(now time.Time) time.Duration {
	return max(now.Sub(s.StartedAt.Add(time.Duration(s.DurationMs)*time.Millisecond)), 0)
}

// Totals are the sums of some runs.
type Totals struct {
	Events       uint64  `json:"events"`
	Turns        int     `json:"turns"`
	ToolCalls    int     `json:"tool_calls"`
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	CostUSD      float64 `json:"cost_usd"`
}

// Add counts one more run.
func (t *Totals) Add(s RunSummary) {
	t.Events += s.LastSeq
	t.Turns += s.TurnCount
	t.ToolCalls += s.ToolCallCount
	t.InputTokens += s.InputTokens
	t.OutputTokens += s.OutputTokens
	t.CostUSD += s.CostUSD
}

// Status returns the word for the state of the run that listings filter by:
// "completed", "failed", "cancelled" or "open".
func (s RunSummary) Status() string { return cmp.Or(statuses[s.TerminalKind], StatusOpen) }

// The values of [RunPageOptions].Status.
const (
	StatusCompleted = "completed"
	StatusFailed    = "failed"
	StatusCancelled = "cancelled"
	StatusOpen      = "open" // it has no end: it is in progress, or its process died
)

// statuses are the words for the terminal kinds, and for none.
var statuses = map[event.Kind]string{
	event.KindRunCompleted: StatusCompleted, event.KindRunFailed: StatusFailed, event.KindRunCancelled: StatusCancelled, 0: StatusOpen,
}

// StatusKind returns the terminal kind of a status, zero for an open run, and
// whether the status exists.
func StatusKind(status string) (event.Kind, bool) {
	for kind, word := range statuses {
		if word == status {
			return kind, true
		}
	}
	return 0, false
}

// RunPageOptions selects runs. The zero value selects the first page of all.
type RunPageOptions struct {
	Limit            int       // runs on the page; zero or less is DefaultPageLimit, more than MaxPageLimit is MaxPageLimit
	Offset           int       // matching runs to skip; less than zero is zero
	Status           string    // one of the Status constants; empty selects all, another value is an error
	Query            string    // substring of the run id after the namespace, ASCII letters in any case; empty selects all
	Namespace        string    // only runs whose id begins with it and a slash; empty selects all
	StartedAfter     time.Time // only runs that started later; zero selects all
	RequireToolCalls bool      // only runs with at least one tool call

	// From makes the page begin with runs that started then or earlier; Offset skips
	// some of these. Later runs are on earlier pages and count for TotalMatching. So a
	// place in a listing stays where it is when runs begin, end or are removed. Zero is
	// the newest run.
	From time.Time

	// Begun orders runs as the database began them and not by the time of their clocks,
	// which may step back. It needs From to be zero. A server does not know that order, since
	// several hosts write to it, and a log in memory does not keep it: there it changes nothing.
	Begun bool
}

// Bounds of [RunPageOptions].Limit.
const (
	DefaultPageLimit = 50
	MaxPageLimit     = 1000
)

// MaxCounted is how many runs are counted on all pages, unless the page itself lies beyond: to count all
// runs of a large database takes longer than to show some.
const MaxCounted = 10_000

// MaxTotal returns the greatest [RunPage].TotalMatching: it says that there are more runs.
func (o RunPageOptions) MaxTotal() int { return max(MaxCounted, o.Offset+o.Limit) + 1 }

// Normal returns o with Limit and Offset clamped to their bounds.
func (o RunPageOptions) Normal() RunPageOptions {
	if o.Limit <= 0 {
		o.Limit = DefaultPageLimit
	}
	o.Limit = min(o.Limit, MaxPageLimit)
	o.Offset = max(o.Offset, 0)
	return o
}

// Valid reports whether the options are valid.
func (o RunPageOptions) Valid() error {
	if _, ok := StatusKind(o.Status); o.Status != "" && !ok {
		return fmt.Errorf("eventlog: unknown status %q (want %s, %s, %s or %s)", o.Status,
			StatusCompleted, StatusFailed, StatusCancelled, StatusOpen)
	}
	return nil
}

// Select returns the page that o selects from all. It is for backends that
// hold all summaries, the newest first, in memory.
func (o RunPageOptions) Select(all []RunSummary) (RunPage, error) {
	if err := o.Valid(); err != nil {
		return RunPage{}, err
	}
	o = o.Normal()
	matching := slices.DeleteFunc(slices.Clone(all), func(s RunSummary) bool {
		return o.Status != "" && s.Status() != o.Status ||
			!InNamespace(s.RunID, o.Namespace) ||
			!strings.Contains(LowerASCII(s.RunID[len(o.prefix()):]), LowerASCII(o.Query)) ||
			!o.StartedAfter.IsZero() && !s.StartedAt.After(o.StartedAfter) ||
			o.RequireToolCalls && s.ToolCallCount <= 0
	})
	from := 0
	for !o.From.IsZero() && from < len(matching) && matching[from].StartedAt.After(o.From) {
		from++
	}
	from = min(from+o.Offset, len(matching))
	to := min(from+o.Limit, len(matching))
	return RunPage{Runs: matching[from:to], TotalMatching: min(len(matching), o.MaxTotal()), Limit: o.Limit, Offset: o.Offset}, nil
}

// prefix returns the prefix of the ids in the namespace.
func (o RunPageOptions) prefix() string {
	if o.Namespace == "" {
		return ""
	}
	return o.Namespace + "/"
}

// QueryStart returns the position in a run id, counted in characters from 1, at which
// the search for Query begins: readers of a namespace see ids without it.
func (o RunPageOptions) QueryStart() int { return utf8.RuneCountInString(o.prefix()) + 1 }

// Nanos returns a time as logs keep one, in nanoseconds since 1970. These reach 292
// years in either direction; a time beyond them becomes the last one in range.
func Nanos(t time.Time) int64 {
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// InNamespace reports whether a run id begins with the namespace and a slash.
// Without a namespace it returns true.
func InNamespace(runID, namespace string) bool {
	return namespace == "" || strings.HasPrefix(runID, namespace+"/")
}

// LowerASCII maps the letters A to Z to a to z and leaves the rest alone, as
// SQL's lower does.
func LowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, s)
}

// RunPage is one page of a listing.
type RunPage struct {
	Runs          []RunSummary
	TotalMatching int // runs that match, on all pages; more than MaxCounted if there are more
	Limit, Offset int // as applied
}

// Cursor is the position of a run, as a backend needs it to take the next
// event. Its zero value stands before the first event. It is not safe for
// concurrent use; a backend guards one cursor per run.
type Cursor struct {
	run     RunSummary
	startNs int64
}

// NewCursor returns the cursor of a run at the position of its summary, for a
// run that another process, or this one earlier, has begun.
func NewCursor(s RunSummary) Cursor {
	return Cursor{run: s, startNs: s.StartedAt.UnixNano()}
}

// Run returns the position of the run.
func (c *Cursor) Run() RunSummary { return c.run }

// Append checks that ev continues the run and moves past it. On an error,
// which is [ErrInvalidAppend], the cursor stays.
func (c *Cursor) Append(runID string, ev event.Event) error {
	return c.take(runID, ev, CheckRunID)
}

// Import is [Cursor.Append] of a run that was begun elsewhere, perhaps under an id that a new run
// cannot have.
func (c *Cursor) Import(runID string, ev event.Event) error {
	return c.take(runID, ev, func(string) error { return nil })
}

func (c *Cursor) take(runID string, ev event.Event, begin func(id string) error) error {
	if err := c.check(runID, ev, begin); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidAppend, err)
	}
	c.advance(ev, ev.Hash())
	return nil
}

// Skip moves past ev without checking it. It is for stored events.
func (c *Cursor) Skip(ev event.Event) { c.advance(ev, ev.Hash()) }

// Count is [Cursor.Skip] for a summary without a head.
func (c *Cursor) Count(ev event.Event) { c.advance(ev, canon.Hash{}) }

// advance moves past ev, whose hash is known.
func (c *Cursor) advance(ev event.Event, hash canon.Hash) {
	if c.run.RunID == "" {
		c.run.RunID, c.startNs = ev.RunID, ev.Timestamp
		c.run.StartedAt = time.Unix(0, ev.Timestamp).UTC()
	}
	if ev.Kind.Terminal() {
		c.run.TerminalKind = ev.Kind
	}
	c.run.add(ev)
	c.run.LastSeq = ev.Seq
	c.run.DurationMs = max(0, (ev.Timestamp-c.startNs)/int64(time.Millisecond))
	c.run.Head = hash
}

// check returns why an event is not the next one of the run. It looks at the ids, the number, the link to
// the last event, the id of a run that begins, the kind and the payload, in this order.
func (c *Cursor) check(runID string, ev event.Event, begin func(id string) error) error {
	last := c.run.LastSeq
	switch {
	case runID == "":
		return fmt.Errorf("empty runID parameter")
	case ev.RunID == "":
		return fmt.Errorf("event has empty RunID")
	case runID != ev.RunID:
		return fmt.Errorf("runID parameter %q does not match event RunID %q", runID, ev.RunID)
	case len(runID) > MaxRunIDBytes:
		return fmt.Errorf("run id has %d bytes; at most %d are allowed", len(runID), MaxRunIDBytes)
	case !utf8.ValidString(runID):
		return fmt.Errorf("run id %q is not valid UTF-8", runID)
	case last == 0 && ev.Seq != 1:
		return fmt.Errorf("first event must have Seq=1, got %d", ev.Seq)
	case last == 0 && len(ev.PrevHash) != 0:
		return fmt.Errorf("first event must have empty PrevHash")
	case ev.Seq != last+1:
		return fmt.Errorf("expected Seq=%d, got %d", last+1, ev.Seq)
	case last > 0 && !bytes.Equal(ev.PrevHash, c.run.Head[:]):
		return fmt.Errorf("PrevHash does not match prior event hash (Seq=%d)", ev.Seq)
	}
	if ev.Seq == 1 {
		if err := begin(runID); err != nil {
			return err
		}
	}
	switch {
	case c.run.TerminalKind != 0:
		return fmt.Errorf("run %q has ended with %v", c.run.RunID, c.run.TerminalKind)
	case !ev.Kind.Valid():
		return fmt.Errorf("unknown kind %d", uint8(ev.Kind))
	case ev.Seq == 1 && ev.Kind != event.KindRunStarted:
		return fmt.Errorf("first event must be RunStarted, got %v", ev.Kind)
	case ev.Seq != 1 && ev.Kind == event.KindRunStarted:
		return fmt.Errorf("second RunStarted at Seq=%d", ev.Seq)
	case len(ev.Payload) > MaxPayloadBytes:
		return fmt.Errorf("payload has %d bytes; at most %d are allowed", len(ev.Payload), MaxPayloadBytes)
	}
	if err := canon.ValidInside(ev.Payload, 1); err != nil { // the envelope
		return fmt.Errorf("payload: %w", err)
	}
	return nil
}

// CheckRunID returns the reason why a new run cannot have an id, or nil. People type,
// complete and paste ids, so an id is one word for a shell, not a flag, and has no control
// characters: 1 to [MaxRunIDBytes] of the letters and digits of ASCII and "/_-.:", the
// first not a hyphen.
//
// Runs of other programs may have any id, and are read, continued and imported as usual.
func CheckRunID(id string) error {
	switch at := strings.IndexFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/_-.:", r))
	}); {
	case id == "" || len(id) > MaxRunIDBytes:
		return fmt.Errorf("a run id has 1 to %d bytes, not %d", MaxRunIDBytes, len(id))
	case at >= 0 || id[0] == '-':
		return fmt.Errorf("run id %q has more in it than letters, digits and /_-.: or begins with a hyphen", id)
	}
	return nil
}

// AggregateRun adds up a run: turns begun, tool calls scheduled (a call counts
// once however often it is attempted), tokens and cost of the model's answers,
// also of broken-off ones, and the nanoseconds from the first event to the
// last. It is the one source of these figures for listings, servers and views.
// An event whose payload does not decode is skipped, because one broken row
// must not blank a whole page.
func AggregateRun(events []event.Event) (turns, tools int, inTok, outTok int64, cost float64, durNs int64) {
	var s RunSummary
	for _, e := range events {
		s.add(e)
	}
	if n := len(events); n > 0 {
		durNs = events[n-1].Timestamp - events[0].Timestamp
	}
	return s.TurnCount, s.ToolCallCount, s.InputTokens, s.OutputTokens, s.CostUSD, durNs
}

// add counts what one event contributes to the totals.
func (s *RunSummary) add(e event.Event) {
	switch e.Kind {
	case event.KindTurnStarted:
		s.TurnCount++
	case event.KindToolCallScheduled:
		var p callRef
		if canon.Unmarshal(e.Payload, &p) == nil && p.Attempt <= 1 {
			s.ToolCallCount++
		}
	case event.KindAssistantMessageCompleted:
		var p answerRef
		if canon.Unmarshal(e.Payload, &p) == nil {
			s.spend(p)
		}
	case event.KindSideEffectRecorded:
		if !bytes.HasPrefix(e.Payload[min(1, len(e.Payload)):], modelEffect) {
			return // every other effect, without decoding a possibly large payload
		}
		p, err := e.AsSideEffectRecorded()
		if f, ok := p.ModelFailure(); err == nil && ok {
			s.spend(answerRef{f.InputTokens, f.OutputTokens, f.CostUSD})
		}
	}
}

func (s *RunSummary) spend(p answerRef) {
	s.InputTokens += p.InputTokens
	s.OutputTokens += p.OutputTokens
	if !math.IsNaN(p.CostUSD) && !math.IsInf(p.CostUSD, 0) { // a NaN is unequal to itself, and sums are compared
		s.CostUSD += p.CostUSD
	}
}

// modelEffect follows the map's header in the payload of an [event.EffectModel]
// record: its first member in the canonical order.
var modelEffect = canon.AppendText(canon.AppendText(nil, "name"), event.EffectModel)

// answerRef is the part of an answer that is added up.
type answerRef struct {
	InputTokens  int64   `cbor:"input_tokens"`
	OutputTokens int64   `cbor:"output_tokens"`
	CostUSD      float64 `cbor:"cost_usd"`
}
