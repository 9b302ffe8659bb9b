package mcpsrv

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/queue"
)

// Bounds of the results of the tools over a log.
const (
	maxPayload = 4 << 10   // bytes of one payload in a list of events, as JSON
	maxList    = 256 << 10 // bytes of all payloads in a list of events
	maxEvent   = 256 << 10 // bytes of the payload of a single event
	maxFacts   = 300       // characters of the line about an event
	maxGoal    = 2000      // characters
)

type listArgs struct {
	Status        string `json:"status,omitempty" jsonschema:"enum=completed,enum=failed,enum=cancelled,enum=open,description=Only runs in this state"`
	Query         string `json:"query,omitempty" jsonschema:"maxLength=200,description=Part of the run's id or if no id has it of a state such as failed"`
	Since         string `json:"since,omitempty" jsonschema:"description=Only runs that started after this time of RFC 3339"`
	WithToolCalls bool   `json:"with_tool_calls,omitempty" jsonschema:"description=Only runs that called a tool"`
	Limit         int    `json:"limit" jsonschema:"default=50,minimum=1,maximum=200"`
	Offset        int    `json:"offset" jsonschema:"default=0,minimum=0"`
}

type runList struct {
	Runs   []runInfo `json:"runs"`
	Total  int       `json:"total"` // on all pages
	Limit  int       `json:"limit"`
	Offset int       `json:"offset"`
}

// runInfo is a run as all tools describe one.
type runInfo struct {
	RunID        string  `json:"run_id"`
	Status       string  `json:"status"`
	StartedAt    string  `json:"started_at"`
	Events       uint64  `json:"events"`
	Turns        int     `json:"turns"`
	ToolCalls    int     `json:"tool_calls"`
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	CostUSD      float64 `json:"cost_usd"`
	DurationMs   int64   `json:"duration_ms"`

	Job *queue.Progress `json:"job,omitempty"` // its place in the queue of a host, until it has ended
}

// describe describes runs.
func describe(ctx context.Context, v eventview.View, runs ...eventlog.RunSummary) []runInfo {
	infos, jobs := []runInfo{}, v.OpenJobs(ctx, runs...)
	for _, run := range runs {
		info := runInfo{
			RunID: run.RunID, Status: run.Status(), StartedAt: formatTime(run.StartedAt.UnixNano()), Events: run.LastSeq, Turns: run.TurnCount,
			ToolCalls: run.ToolCallCount, InputTokens: run.InputTokens, OutputTokens: run.OutputTokens, CostUSD: run.CostUSD, DurationMs: run.DurationMs,
		}
		if job, ok := jobs[run.RunID]; ok {
			info.Job = &job.Progress
		}
		infos = append(infos, info)
	}
	return infos
}

func formatTime(unixNano int64) string { return time.Unix(0, unixNano).UTC().Format(time.RFC3339Nano) }

func listRuns(ctx context.Context, v eventview.View, in listArgs) (runList, error) {
	o := eventlog.RunPageOptions{Limit: in.Limit, Offset: in.Offset, Status: in.Status, Query: in.Query, RequireToolCalls: in.WithToolCalls}
	if in.Since != "" {
		since, err := time.Parse(time.RFC3339Nano, in.Since)
		if err != nil {
			return runList{}, &mistake{"since: not a time of RFC 3339, such as 2026-11-21T10:00:00Z"}
		}
		o.StartedAfter = since
	}
	page, err := v.Runs(ctx, o)
	if status := statusNamed(in.Query); err == nil && page.TotalMatching == 0 && in.Status == "" && status != "" {
		o.Status, o.Query = status, ""
		page, err = v.Runs(ctx, o)
	}
	if err != nil {
		return runList{}, err
	}
	return runList{Runs: describe(ctx, v, page.Runs...), Total: page.TotalMatching, Limit: page.Limit, Offset: page.Offset}, nil
}

// statusNamed returns the only state of a run that a text is part of, or nothing.
func statusNamed(text string) (status string) {
	for _, s := range []string{eventlog.StatusCompleted, eventlog.StatusFailed, eventlog.StatusCancelled, eventlog.StatusOpen} {
		if text != "" && strings.Contains(s, eventlog.LowerASCII(text)) {
			if status != "" {
				return ""
			}
			status = s
		}
	}
	return status
}

type getRunArgs struct {
	RunID  string `json:"run_id" jsonschema:"minLength=1"`
	After  uint64 `json:"after" jsonschema:"default=0,minimum=0,description=Only events with numbers above this one"`
	Offset uint64 `json:"offset" jsonschema:"default=0,minimum=0,description=The same as after: events are numbered from 1 without gaps"`
	Limit  int    `json:"limit" jsonschema:"default=200,minimum=1,maximum=1000,description=Events at most"`
}

type runWithEvents struct {
	Run         runInfo     `json:"run"`
	Goal        string      `json:"goal,omitempty"`
	Events      []eventInfo `json:"events"`
	TotalEvents uint64      `json:"total_events"`
	Offset      uint64      `json:"offset"`         // events before the first of these
	Truncated   bool        `json:"truncated"`      // events follow
	Next        uint64      `json:"next,omitempty"` // the value of after, or offset, for them
}

// eventInfo is an event as all tools describe one.
type eventInfo struct {
	Seq          uint64          `json:"seq"`
	Kind         string          `json:"kind"`
	Time         string          `json:"time"`
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
		Seq: ev.Seq, Kind: ev.Kind.String(), Time: formatTime(ev.Timestamp), PayloadBytes: len(ev.Payload),
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

// oneLine returns a text from a run as one printable line of bounded length.
func oneLine(text string) string {
	return display.Shorten(display.Printable(bounded(text, 4*maxFacts)), maxFacts)
}

func getRun(ctx context.Context, v eventview.View, in getRunArgs) (runWithEvents, error) {
	run, err := v.Run(ctx, in.RunID)
	if err != nil {
		return runWithEvents{}, err
	}
	after := max(in.After, in.Offset)
	out := runWithEvents{Run: describe(ctx, v, run)[0], Goal: goalOf(ctx, v, in.RunID), Events: []eventInfo{}, TotalEvents: run.LastSeq, Offset: after}
	room := maxList
	for ev, err := range v.Events(ctx, in.RunID, after) {
		if err != nil {
			return runWithEvents{}, err
		}
		if len(out.Events) == in.Limit {
			out.Next, out.Truncated = ev.Seq-1, true
			break
		}
		info := newEventInfo(ev, max(1, min(maxPayload, room)))
		room -= len(info.Payload)
		out.Events = append(out.Events, info)
	}
	return out, nil
}

// goalOf returns a run's goal, or "" if its first event has none.
func goalOf(ctx context.Context, v eventview.View, id string) string {
	started, err := v.Started(ctx, id)
	if err != nil {
		return ""
	}
	return display.Shorten(display.Printable(started.Goal), maxGoal)
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

type validateArgs struct {
	RunID string `json:"run_id" jsonschema:"minLength=1"`
}

// validity is the result of validate_run.
type validity struct {
	OK         bool   `json:"ok"`
	Reason     string `json:"reason,omitempty"` // why not
	Seq        uint64 `json:"seq,omitempty"`    // of the event that is wrong or missing
	Invariant  string `json:"invariant,omitempty"`
	Events     uint64 `json:"events,omitempty"`
	Open       bool   `json:"open,omitempty"`   // the run has not ended yet
	Encrypted  uint64 `json:"sealed,omitempty"` // events whose payloads only a key opens
	Head       string `json:"head,omitempty"`
	MerkleRoot string `json:"merkle_root,omitempty"`
}

func validateRun(ctx context.Context, v eventview.View, in validateArgs) (validity, error) {
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
	maxNames      = 50      // names of tools, and of effects
	maxFailures   = 20
	maxName       = 120 // characters
)

type summaryArgs struct {
	RunID string `json:"run_id" jsonschema:"minLength=1"`
}

// summary is the result of summarize_run.
type summary struct {
	Run     runInfo `json:"run"`
	Goal    string  `json:"goal,omitempty"`
	Model   string  `json:"model,omitempty"`
	Outcome string  `json:"outcome,omitempty"` // facts of the terminal event

	// FinalText is the whole result of the run or, without one, the model's last
	// answer.
	FinalText string `json:"final_text,omitempty"`

	Kinds    map[string]int `json:"kinds"`            // events by kind
	Tools    map[string]int `json:"tools"`            // calls by tool, without further attempts
	Effects  map[string]int `json:"effects"`          // by name
	Failures []eventInfo    `json:"failures"`         // the first of them
	Capped   bool           `json:"capped,omitempty"` // the run has more than this
}

func summarizeRun(ctx context.Context, v eventview.View, in summaryArgs) (summary, error) {
	run, err := v.Run(ctx, in.RunID)
	if err != nil {
		return summary{}, err
	}
	s := summary{Run: describe(ctx, v, run)[0], Kinds: map[string]int{}, Tools: map[string]int{}, Effects: map[string]int{}, Failures: []eventInfo{}}
	examined := 0
	for ev, err := range v.Events(ctx, in.RunID, 0) {
		if err != nil {
			return summary{}, err
		}
		if examined++; examined > maxSummarized {
			s.Capped = true
			break
		}
		s.add(ev)
	}
	return s, nil
}

func (s *summary) add(ev event.Event) {
	s.Kinds[ev.Kind.String()]++
	switch ev.Kind {
	case event.KindRunStarted:
		if p, err := ev.AsRunStarted(); err == nil {
			s.Goal = display.Shorten(display.Printable(p.Goal), maxGoal)
			s.Model = strings.Trim(display.Shorten(display.Printable(p.ProviderID+"/"+p.ModelID), maxName), "/")
		}
	case event.KindToolCallScheduled:
		if p, err := ev.AsToolCallScheduled(); err == nil && p.Attempt <= 1 {
			s.count(s.Tools, p.ToolName)
		}
	case event.KindSideEffectRecorded:
		if p, err := ev.AsSideEffectRecorded(); err == nil {
			s.count(s.Effects, p.Name)
		}
	case event.KindToolCallFailed, event.KindRunFailed, event.KindBudgetExceeded, event.KindTurnFailed:
		s.fail(ev)
	}
	if p, err := ev.AsAssistantMessageCompleted(); err == nil && p.Text != "" {
		s.FinalText = bounded(p.Text, maxEvent)
	}
	if p, err := ev.AsRunCompleted(); err == nil {
		s.FinalText = bounded(p.FinalText, maxEvent)
	}
	if ev.Kind.Terminal() {
		s.Outcome = newEventInfo(ev, 0).Facts
	}
}

func (s *summary) fail(ev event.Event) {
	if len(s.Failures) == maxFailures {
		s.Capped = true
		return
	}
	s.Failures = append(s.Failures, newEventInfo(ev, 0))
}

// count counts a name that a program chose.
func (s *summary) count(in map[string]int, name string) {
	name = display.Shorten(display.Printable(name), maxName)
	if _, known := in[name]; !known && len(in) == maxNames {
		s.Capped = true
		return
	}
	in[name]++
}
