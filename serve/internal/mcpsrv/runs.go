package mcpsrv

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/search"
	"github.com/starling-host/starling/serve/internal/eventview"
)

// Bounds of the results of the tools over a log.
const (
	maxPayload = 4 << 10   // bytes of one payload in a list of events, as JSON
	maxList    = 256 << 10 // bytes of all payloads in a list of events
	maxEvent   = 256 << 10 // bytes of the payload of a single event
	maxFacts   = 300       // characters of the line about an event
	maxGoal    = 2000      // characters
	maxReasons = 20        // in a list of runs
)

type listArgs struct {
	Status        string `json:"status,omitempty" jsonschema:"enum=completed,enum=failed,enum=cancelled,enum=open,description=Only runs in this state"`
	Since         string `json:"since,omitempty" jsonschema:"maxLength=100,description=Only runs that began at this time or later - as RFC 3339"`
	WithToolCalls bool   `json:"with_tool_calls,omitempty" jsonschema:"description=Only runs with calls of tools"`

	Query  string `json:"query,omitempty" jsonschema:"maxLength=1000,description=Words that all have to match such as state:failed tool:fetch host:api.example status:5xx error:timeout since:1h fuel:>1G calls:>3 -tool:dice; a word without a field is part of the id or of an event"`
	Limit  int    `json:"limit" jsonschema:"default=50,minimum=1,maximum=200"`
	Offset int    `json:"offset" jsonschema:"default=0,minimum=0"`
}

type runList struct {
	Runs    []eventview.RunDocument `json:"runs"`
	Total   int                     `json:"total"`             // on all pages
	More    bool                    `json:"more,omitempty"`    // older runs were not looked at
	Partly  int                     `json:"partly,omitempty"`  // runs with too many events to read all: their figures are too low
	Reasons []search.Reason         `json:"reasons,omitempty"` // why runs failed, each with the query that finds them
}

func listRuns(ctx context.Context, v eventview.View, in listArgs) (runList, error) {
	if _, err := time.Parse(time.RFC3339, in.Since); in.Since != "" && err != nil {
		return runList{}, &mistake{"since: it is not a time such as 2026-11-21T10:00:00Z"}
	}
	words := []string{in.Query}
	for _, field := range [][2]string{{"state", in.Status}, {"since", in.Since}} {
		if field[1] != "" {
			words = append(words, search.Word(field[0], field[1]))
		}
	}
	if in.WithToolCalls {
		words = append(words, "calls:>0")
	}
	q, err := search.Parse(strings.TrimSpace(strings.Join(words, " ")), time.Now())
	if wrong := (*search.Error)(nil); errors.As(err, &wrong) {
		return runList{}, &mistake{fmt.Sprintf("query: %s: %s", wrong.Why, wrong.Hint)}
	}
	found, err := v.Search(ctx, q, search.Options{Limit: in.Limit, Offset: in.Offset})
	if err != nil {
		return runList{}, err
	}
	docs := make([]span.Document, len(found.Runs))
	for i := range found.Runs {
		docs[i] = found.Runs[i].Document
		docs[i].Map(oneLine)
	}
	out := runList{Runs: v.Describe(ctx, docs...), Total: found.Total, More: found.More, Partly: found.Partly, Reasons: found.Reasons[:min(len(found.Reasons), maxReasons)]}
	for i := range out.Reasons {
		out.Reasons[i].Text = oneLine(out.Reasons[i].Text)
	}
	return out, nil
}

type getRunArgs struct {
	RunID string `json:"run_id" jsonschema:"minLength=1"`
	After uint64 `json:"after" jsonschema:"default=0,minimum=0,description=Only events with numbers above this one"`
	Limit int    `json:"limit" jsonschema:"default=200,minimum=1,maximum=1000,description=Events at most"`
}

type runWithEvents struct {
	Run         eventview.RunDocument `json:"run"`
	Events      []eventInfo           `json:"events"`
	TotalEvents uint64                `json:"total_events"`
	Truncated   bool                  `json:"truncated"`      // events follow
	Next        uint64                `json:"next,omitempty"` // the value of after for them
}

// eventInfo is an event as all tools describe one.
type eventInfo struct {
	Seq          uint64          `json:"seq"`
	Kind         string          `json:"kind"`
	Time         string          `json:"time"`
	Call         string          `json:"call,omitempty"`    // that it belongs to: its number in the run, its tool and its attempt
	AtMs         float64         `json:"at_ms"`             // since the beginning of the run
	TookMs       float64         `json:"took_ms,omitempty"` // what ended with it: an attempt, an effect, or an answer
	HTTPStatus   int             `json:"http_status,omitempty"`
	Facts        string          `json:"facts"` // one line
	Hash         string          `json:"hash,omitempty"`
	PrevHash     string          `json:"prev_hash,omitempty"`
	PayloadBytes int             `json:"payload_bytes"` // as stored
	Payload      json.RawMessage `json:"payload,omitempty"`
	TooLong      bool            `json:"payload_too_long,omitempty"` // for this answer; get_event takes longer ones
}

// newEventInfo describes an event, with its hashes, and with its payload if the payload has at most
// the given number of bytes of JSON. With zero it includes neither.
func newEventInfo(ev event.Event, most int) eventInfo {
	facts, err := event.Describe(ev)
	if err != nil {
		facts = "cannot be read: " + err.Error()
	}
	info := eventInfo{
		Seq: ev.Seq, Kind: ev.Kind.String(), Time: time.Unix(0, ev.Timestamp).UTC().Format(time.RFC3339Nano), PayloadBytes: len(ev.Payload),
		Facts: oneLine(facts),
	}
	if most == 0 {
		return info
	}
	info.Hash, info.PrevHash = ev.Hash().String(), hex.EncodeToString(ev.PrevHash)
	if info.TooLong = len(ev.Payload) > most; info.TooLong {
		return info
	}
	doc, err := canon.Render(ev.Payload) // if it cannot be read, the facts have the reason
	if info.TooLong = len(doc) > most; err == nil && !info.TooLong {
		info.Payload = doc
	}
	return info
}

// place fills in where in its run the last event of a builder stands.
func (e *eventInfo) place(b *span.Builder) {
	run := b.Run()
	e.AtMs = milliseconds(run.End)
	at := b.At()
	if at == span.None {
		return
	}
	s := &run.Spans[at]
	if s.Last == e.Seq {
		e.TookMs, e.HTTPStatus = milliseconds(s.End-s.Start), s.Status
	}
	if in := run.CallOf(at); in != span.None {
		e.Call = oneLine(run.Spans[in].CallName())
	}
}

func milliseconds(ns int64) float64 { return float64(ns/1000) / 1000 }

// oneLine returns a text from a run as one printable line of bounded length.
func oneLine(text string) string {
	return display.Shorten(display.Printable(display.Clip(text, 4*maxFacts)), maxFacts)
}

// spans makes the spans of a run of at most so many of its events, and passes each of these to each. It returns
// the run as an assistant sees it, with bounded texts, and whether it has more events. An unreadable one says so in its facts, and
// is in no call.
func spans(ctx context.Context, v eventview.View, id string, b *span.Builder, most uint64, each func(ev event.Event)) (doc eventview.RunDocument, more bool, err error) {
	run, err := v.Run(ctx, id)
	if err == nil {
		err = v.Reserve(ctx, id)
	}
	if err != nil {
		return doc, false, err
	}
	for ev, err := range v.Events(ctx, id, 0) {
		if err != nil {
			return doc, false, err
		}
		if more = ev.Seq > most; more {
			break
		}
		_ = b.Add(ev)
		each(ev)
	}
	d := b.Run().Document(run)
	d.Map(func(text string) string {
		return display.Shorten(display.Printable(display.Clip(text, 4*maxGoal)), maxGoal)
	})
	if len(d.Result) > maxEvent {
		d.FinalText, d.Result = string(d.Result), nil
	}
	d.FinalText, d.Log = display.Clip(d.FinalText, maxEvent), display.Clip(d.Log, maxEvent)
	return v.Describe(ctx, d)[0], more, nil
}

func getRun(ctx context.Context, v eventview.View, in getRunArgs) (out runWithEvents, err error) {
	out.Events = []eventInfo{}
	room, b := maxList, span.Builder{} // from the first event on: one does not name the tool of its call
	out.Run, _, err = spans(ctx, v, in.RunID, &b, max(maxSummarized, in.After+uint64(in.Limit)), func(ev event.Event) {
		if ev.Seq <= in.After || out.Truncated {
			return
		}
		if len(out.Events) == in.Limit {
			out.Next, out.Truncated = ev.Seq-1, true
			return
		}
		info := newEventInfo(ev, max(1, min(maxPayload, room)))
		info.place(&b)
		room -= len(info.Payload)
		out.Events = append(out.Events, info)
	})
	out.TotalEvents = out.Run.LastSeq
	return out, err
}

type getEventArgs struct {
	RunID string `json:"run_id" jsonschema:"minLength=1"`
	Seq   uint64 `json:"seq" jsonschema:"minimum=1,description=Number of the event"`
}

func getEvent(ctx context.Context, v eventview.View, in getEventArgs) (eventInfo, error) {
	ev, err := v.Event(ctx, in.RunID, in.Seq)
	if err != nil {
		return eventInfo{}, err
	}
	return newEventInfo(ev, maxEvent), nil
}

type oneRunArgs struct {
	RunID string `json:"run_id" jsonschema:"minLength=1"`
}

// validity is the result of validate_run.
type validity struct {
	OK         bool   `json:"ok"`
	Reason     string `json:"reason,omitempty"` // why not
	Seq        uint64 `json:"seq,omitempty"`    // of the event that is wrong or missing
	Invariant  string `json:"invariant,omitempty"`
	Events     uint64 `json:"events,omitempty"`
	Open       bool   `json:"open,omitempty"`      // the run has not ended yet
	Encrypted  uint64 `json:"encrypted,omitempty"` // events whose payloads only a key opens
	Head       string `json:"head,omitempty"`
	MerkleRoot string `json:"merkle_root,omitempty"`
}

func validateRun(ctx context.Context, v eventview.View, in oneRunArgs) (validity, error) {
	report, err := v.Check(ctx, in.RunID)
	var corrupt *eventlog.CorruptError
	switch {
	case errors.As(err, &corrupt):
		return validity{Reason: display.Shorten(display.Printable(corrupt.Reason), maxGoal), Seq: corrupt.Seq, Invariant: corrupt.Invariant}, nil
	case err != nil:
		return validity{}, err
	}
	found := validity{OK: true, Events: report.Events, Open: report.Open, Encrypted: report.Encrypted, Head: report.Head.String()}
	if !report.Open {
		found.MerkleRoot = report.Root.String()
	}
	return found, nil
}

// Bounds of a summary.
const (
	maxSummarized = 100_000 // events
	maxCalls      = 100
	maxRequests   = 20 // of one call
)

// summary is the result of summarize_run.
type summary struct {
	Run         eventview.RunDocument `json:"run"`
	FailedCalls int                   `json:"failed_calls"`
	WaitedMs    float64               `json:"waited_ms"`        // before repeated attempts
	Calls       []callInfo            `json:"calls"`            // attempts in the order in which they began, as far as they fit, and all that failed
	Capped      bool                  `json:"capped,omitempty"` // the run has more than this
}

// callInfo is one attempt of a call.
type callInfo struct {
	Call     string   `json:"call"`              // its number in the run, its tool and its attempt
	Seq      uint64   `json:"seq"`               // of its first event
	MadeBy   string   `json:"made_by,omitempty"` // the call that made it; otherwise the model did
	State    string   `json:"state"`
	Error    string   `json:"error,omitempty"`
	AtMs     float64  `json:"at_ms"` // since the beginning of the run
	TookMs   float64  `json:"took_ms"`
	Fuel     uint64   `json:"fuel,omitempty"`
	Effects  int      `json:"effects,omitempty"`
	Requests []string `json:"http_requests,omitempty"` // each with its status and time, as far as they fit, and all that failed
	WaitMs   float64  `json:"wait_ms,omitempty"`       // after it, before the next attempt
}

func summarizeRun(ctx context.Context, v eventview.View, in oneRunArgs) (s summary, err error) {
	s.Calls = []callInfo{}
	b := span.Builder{Whole: true}
	s.Run, s.Capped, err = spans(ctx, v, in.RunID, &b, maxSummarized, func(event.Event) {})
	s.fill(b.Run())
	return s, err
}

// fill fills in what the spans of the run have.
func (s *summary) fill(run *span.Run) {
	s.FailedCalls, s.WaitedMs = run.FailedCalls, milliseconds(run.Waited)
	listed := map[int]int{}     // index in Calls, by that of the span
	attempt := map[string]int{} // the last listed attempt of each call
	for i := range run.Spans {
		x := &run.Spans[i]
		in, known := listed[run.CallOf(x.Parent)]
		switch {
		case x.Kind == span.Call && len(s.Calls) >= maxCalls && (x.State == span.OK || len(s.Calls) >= 2*maxCalls):
			s.Capped = true
		case x.Kind == span.Call:
			c := callInfo{Call: oneLine(x.CallName()), Seq: x.First, State: string(x.State), AtMs: milliseconds(x.Start), TookMs: milliseconds(x.End - x.Start), Fuel: x.Fuel}
			if x.Error != "" {
				c.Error = oneLine(x.ErrorType + ": " + x.Error)
			}
			if known {
				c.MadeBy = s.Calls[in].Call
			}
			listed[i], attempt[x.CallID] = len(s.Calls), len(s.Calls)
			s.Calls = append(s.Calls, c)
		case x.Kind == span.Wait && x.CallID != "":
			if at, known := attempt[x.CallID]; known {
				s.Calls[at].WaitMs = milliseconds(x.End - x.Start)
			}
		case x.Kind == span.Effect && known:
			c := &s.Calls[in]
			c.Effects++
			bad := x.State != span.OK || x.Status >= 400
			if x.Request == "" && !bad {
				continue
			}
			if len(c.Requests) >= maxRequests && (!bad || len(c.Requests) >= 2*maxRequests) {
				s.Capped = true
				continue
			}
			text := fmt.Sprintf("%d %s, %gms", x.Status, cmp.Or(x.Request, x.Name), milliseconds(x.End-x.Start))
			if x.Status == 0 {
				text = fmt.Sprintf("%s, %s: %s", cmp.Or(x.Request, x.Name), x.State, x.Error)
			}
			c.Requests = append(c.Requests, oneLine(text))
		}
	}
}
