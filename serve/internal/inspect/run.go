package inspect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/internal/eventview"
)

// The views of a run, by the ends of their paths.
const (
	viewWaterfall    = ""
	viewEvents       = "events"
	viewConversation = "conversation"
	viewRequests     = "requests"
	viewFuel         = "fuel"
)

// Bounds of a page about a run.
const (
	maxDrawn   = 100_000  // events
	maxBody    = 64 << 10 // bytes of a text in the panel
	maxNesting = 64       // of JSON that is indented
	silence    = time.Minute
)

// runPage is a run in one of its views.
type runPage struct {
	Run     runHead
	Verdict *verdict
	Failure *failure
	Did     *span.Run // nil if nothing was read
	Tabs    []link
	Notes   []string // what is not shown
	Failing string   // path of the next failure, or empty
	Panel   *panel
	// Anchored means that a row stands for the selected event.
	Anchored bool
	Live     string // path of the stream that tells when there is more, or empty

	// One of the views.
	Waterfall    *waterfall
	Events       *timeline
	Conversation []message
	Requests     []requestRow
	Fuel         *flame
}

// runHead is the header of the pages about a run.
type runHead struct {
	ID, Goal, Model string
	Input           string // of the call that a run without a model is
	Status          state
	Silent          string // how long nothing has come from an open run, or empty
	Started         moment
	Last            int64  // when the last event came, in Unix milliseconds
	Job             string // its place in the queue, or empty
	RunID           string // as the log has it
	Replays         bool   // it can be replayed here
}

// fact is a figure with its name.
type fact struct{ Name, Value string }

// Hash reports whether the figure is a hash, which people copy.
func (f fact) Hash() bool { return len(f.Value) == 2*event.HashSize }

// failure is why a run did not complete.
type failure struct {
	Text, Type string
	Cause      *span.Span // whose failure ended the run, or nil
	Attempts   uint32     // that it could have
	Path       string     // of its row
	Command    string     // that helps to find out, or empty
}

// reader builds a page of the events of a run.
type reader struct {
	*Server
	view     eventview.View
	run      eventlog.RunSummary
	did      *span.Run              // once it was read
	first    event.Event            // of the run
	selected uint64                 // number of an event, or zero
	broken   bool                   // an event cannot be read
	bad      []uint64               // events of rows in which something failed
	pathOf   func(at uint64) string // of the view with an event selected
	page     runPage
}

// runView answers with a view of a run.
func runView(name string) page {
	return func(s *Server, w http.ResponseWriter, r *http.Request, v eventview.View) error {
		run, err := v.Run(r.Context(), r.PathValue("run"))
		if err != nil {
			return err
		}
		return s.showRun(w, r, v, run, name, nil)
	}
}

// showRun answers with a view of a run, below the result of a check if there is one.
func (s *Server) showRun(w http.ResponseWriter, r *http.Request, v eventview.View, run eventlog.RunSummary, name string, judged *verdict) (err error) {
	if s.alone != nil {
		select {
		case s.alone <- struct{}{}:
			defer func() { <-s.alone }()
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
	b := &reader{Server: s, view: v, run: run, selected: uint64(asNumber(r, "at"))}
	b.page.Verdict = judged
	b.pathOf = func(at uint64) string { return s.runPath(run.RunID, name, at) }
	switch name {
	case viewEvents:
		err = b.events(r)
	case viewConversation:
		err = b.conversation(r)
	case viewRequests:
		err = b.requests(r)
	case viewFuel:
		err = b.fuel(w, r)
	default:
		err = b.waterfall(r)
	}
	if err != nil {
		return err
	}
	b.frame(r, name)
	return s.render(w, r, http.StatusOK, "run", run.RunID, v, b.page)
}

// read makes the spans of the run, or continues those of an earlier page. If take is not nil, it
// receives each event once its spans are made. What is unreadable ends it with a note.
func (b *reader) read(r *http.Request, take func(event.Event)) error {
	if err := b.view.Reserve(r.Context(), b.run.RunID); err != nil {
		return err
	}
	b.first, _ = b.view.Event(r.Context(), b.run.RunID, 1)
	key := builtKey{b.view.Namespace, b.run.RunID, b.first.Hash()}
	var k *kept
	if take == nil {
		k = b.built.Take(key)
	}
	k = cmp.Or(k, &kept{})
	n := k.spans.Run().Events
	last, err := b.view.Event(r.Context(), b.run.RunID, n)
	if err != nil || last.Hash() != k.last {
		k, n = &kept{}, 0
		k.spans.Grow(int(min(b.run.LastSeq, maxDrawn)))
	}
	b.did = k.spans.Run()
	for ev, err := range b.view.Events(r.Context(), b.run.RunID, n) {
		if err != nil && !errors.Is(err, eventlog.ErrLogCorrupt) {
			return err
		}
		if ev.Seq > maxDrawn {
			b.note(fmt.Sprintf("Only the first %s events are read.", display.Digits(maxDrawn)))
			break
		}
		if err == nil {
			err = k.spans.Add(ev)
		}
		if err != nil {
			b.broken = true
			b.note("The next event cannot be read: " + display.PrintableError(err))
			return nil
		}
		if last = ev; take != nil {
			take(ev)
		}
	}
	did := *b.did
	did.Spans = slices.Clone(did.Spans)
	b.did, k.last = &did, last.Hash()
	if size := k.spans.Run().Size(); size <= maxBuilt {
		b.built.Put(key, k, size)
	}
	return nil
}

// builtKey names a run that begins with an event, as its reader has read it. A reader without the key
// of an encrypted run has read another one.
type builtKey struct {
	namespace, run string
	first          canon.Hash
}

// kept are the spans of a run up to an event. They are of use to who reads the same event, whose hash
// covers those before in a valid run. Whether a run is one, only its validation tells.
type kept struct {
	spans span.Builder
	last  canon.Hash
}

// Bounds of the spans that are kept. After the time, nothing of a removed run stays.
const (
	maxBuilt  = 64 << 20 // bytes
	builtTime = 5 * time.Minute
)

func (b *reader) note(text string) { b.page.Notes = append(b.page.Notes, text) }

// frame fills in what every view has around it.
func (b *reader) frame(r *http.Request, name string) {
	p, run := &b.page, b.did
	p.Run = b.runHead(r, b.view, b.run)
	if at := slices.IndexFunc(run.Spans, func(s span.Span) bool { return s.Kind == span.Call }); run.Model == "" && at >= 0 { // the goal is the name of the tool
		p.Run.Input = display.Shorten(arguments(run.Spans[at].Input), maxGoal)
	}
	if run.Events > 0 {
		p.Did = run
	}
	if run.Encrypted {
		b.note("Some payloads are encrypted. What they did is not shown.")
	}
	if len(b.bad) > 0 { // the one after the selected event, or the first
		p.Failing = b.pathOf(b.bad[(slices.Index(b.bad, b.selected)+1)%len(b.bad)])
	}
	for _, tab := range []struct {
		title, view string
		count       string
		shown       bool
	}{
		{"Waterfall", viewWaterfall, "", true}, {"Events", viewEvents, digits(b.run.LastSeq), true}, {"Conversation", viewConversation, "", run.Turns > 0},
		{"Requests", viewRequests, digits(run.Requests), run.Requests > 0}, {"Fuel", viewFuel, "", run.Fuel > 0},
	} {
		if tab.shown || tab.view == name {
			p.Tabs = append(p.Tabs, link{tab.title, b.runPath(b.run.RunID, tab.view, b.selected), tab.count, tab.view == name})
		}
	}
	if run.State == span.Failed || run.State == span.Cancelled {
		p.Failure = b.failure(run)
	}
	if b.run.TerminalKind == 0 && p.Did != nil && !b.broken && (p.Events == nil || p.Events.Next == "") {
		p.Live = b.path("runs", b.run.RunID, "live") + fmt.Sprintf("?seen=%d", run.Events)
	}
}

// runPath is the path of a view of a run, with an event selected unless its number is zero.
func (s *Server) runPath(id, view string, at uint64) string {
	path := s.path("runs", id)
	if view != viewWaterfall {
		path = s.path("runs", id, view)
	}
	if at == 0 {
		return path
	}
	return fmt.Sprintf("%s?at=%d%s", path, at, anchor(view, at))
}

// anchor is the end of the path of a view in which an event is selected.
func anchor(view string, at uint64) string {
	switch {
	case at == 0, view == viewFuel: // which has no rows of events
		return ""
	case view == viewEvents:
		return fmt.Sprintf("#e%d", at)
	}
	return "#at"
}

// drawn notes that a view has a row for an event, whether it is the selected one, and whether
// something failed in it.
func (b *reader) drawn(at uint64, current, bad bool) {
	b.page.Anchored = b.page.Anchored || current
	if bad {
		b.bad = append(b.bad, at)
	}
}

// asNumber returns a parameter of a request that is a number from zero on, or zero.
func asNumber(r *http.Request, name string) int64 {
	n, _ := strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
	return max(n, 0)
}

// runHead describes a run.
func (s *Server) runHead(r *http.Request, v eventview.View, run eventlog.RunSummary) runHead {
	goal, model := opening(r.Context(), v, run.RunID)
	h := runHead{
		ID: display.Printable(run.RunID), Goal: goal, Model: model, Status: stateOf(run.Status()), Started: newMoment(run.StartedAt.UnixNano(), time.Now()),
		RunID: run.RunID, Replays: v.CanReplay(),
	}
	if job, ok := v.OpenJobs(r.Context(), run)[run.RunID]; ok {
		h.Status, h.Job = stateOf(job.State), sentenceOf(job)
	}
	last := run.StartedAt.Add(time.Duration(run.DurationMs) * time.Millisecond)
	h.Last = last.UnixMilli()
	if quiet := time.Since(last); run.TerminalKind == 0 && quiet > silence {
		h.Silent = "Silent for " + display.Duration(quiet.Round(time.Second)) + "."
		if h.Job == "" {
			h.Status.Class = "warn"
			h.Silent += " The run is waiting for something that takes long, or its process died."
		}
	}
	return h
}

// failure describes why a run ended.
func (b *reader) failure(run *span.Run) *failure {
	_, why := run.Reason()
	f := &failure{Text: errorText(why), Type: run.ErrorType}
	if run.Cause == span.None {
		return f
	}
	f.Cause = &run.Spans[run.Cause]
	f.Attempts = f.Cause.Attempt
	if started, err := b.first.AsRunStarted(); err == nil {
		for _, ref := range started.ToolSchemas {
			if ref.Name == f.Cause.Name {
				f.Attempts = max(f.Attempts, ref.Attempts)
			}
		}
	}
	f.Path, f.Command = b.runPath(b.run.RunID, viewWaterfall, numberOf(f.Cause)), b.debugCommand(f.Cause, f.Cause.Last)
	return f
}

// errorText returns the whole text of an error for reading. Its class is told elsewhere.
func errorText(text string) string {
	return display.PrintableText(display.Clip(strings.TrimPrefix(text, "tool: "), maxBody))
}

// debugCommand returns the command that executes a call again as far as one of its events, or
// nothing if it cannot be executed or the reader has no database. The end of a call is named by its
// event and not by its fuel: that is spent after the place at which it failed.
func (b *reader) debugCommand(call *span.Span, seq uint64) string {
	if b.view.Database == "" || call.Kind != span.Call || call.Fuel == 0 {
		return ""
	}
	return fmt.Sprintf("starling-host debug %s %s --at %d", display.ShellWord(b.view.Database), display.ShellWord(b.run.RunID), seq)
}

// numberOf returns the number of the event that stands for a span: the one with the request of an
// effect or with the answer of the model, and the first of anything else.
func numberOf(s *span.Span) uint64 {
	if (s.Kind == span.Effect || s.Kind == span.Answer) && s.Last > 0 {
		return s.Last
	}
	return s.First
}

// callName returns the name of the call that a span is in, or nothing.
func callName(run *span.Run, at int) string {
	if in := run.CallOf(at); in != span.None {
		return line(run.Spans[in].CallName())
	}
	return ""
}

// panel is what is known of the selected event and its span.
type panel struct {
	Event       event.Event
	Hash        string
	Span        *span.Span // nil for an event without one
	Took, Error string
	Call        string // that an effect is in, or empty
	Decision    []fact
	Parts       []titled
	Command     string // that debugs the call from here, or empty
	Fuel, Tool  string // paths: where the fuel of a call went, and its tool; or empty
	Path, Close string // of the event, and of the view without the panel
}

// titled is a text with a title.
type titled struct {
	Title, Text string
	JSON        bool
}

// choose fills in the panel for the event with the selected number, if there is one.
func (b *reader) choose(r *http.Request, view string) (chosen int) {
	run, id := b.did, b.run.RunID
	if b.selected == 0 {
		return span.None
	}
	ev, err := b.view.Event(r.Context(), id, b.selected)
	if err != nil {
		return span.None // an unreadable one is noted
	}
	p := &panel{Event: ev, Hash: ev.Hash().String(), Parts: parts(ev), Path: b.path("runs", id, "events", strconv.FormatUint(ev.Seq, 10)), Close: b.runPath(id, view, 0)}
	b.page.Panel = p
	if chosen = run.At(ev.Seq); chosen == span.None {
		return chosen
	}
	s := &run.Spans[chosen]
	p.Span, p.Took = s, span.Row{Span: s, End: s.End}.Took()
	if s.Error != "" {
		p.Error = line(s.ErrorType) + ": " + errorText(s.Error)
	}
	switch s.Kind {
	case span.Call:
		p.Tool = b.path("tools", s.Name)
		if s.Fuel > 0 {
			p.Command, p.Fuel = b.debugCommand(s, cmp.Or(s.Last, s.First)), b.runPath(id, viewFuel, s.First)
		}
		if s.Last > 0 && ev.Seq == s.First { // with its outcome
			if end, err := b.view.Event(r.Context(), id, s.Last); err == nil {
				p.Parts = append(p.Parts, parts(end)...)
			}
		}
	case span.Effect:
		if effect, err := ev.AsSideEffectRecorded(); err == nil {
			p.Decision = decision(effect)
			if p.Call = callName(run, chosen); p.Call != "" {
				p.Command = b.debugCommand(&run.Spans[run.CallOf(chosen)], ev.Seq)
			}
		}
	}
	return chosen
}

// decision describes what the policies of the run decided on a request.
func decision(effect event.SideEffectRecorded) (facts []fact) {
	var x event.Exchange
	if !event.IsHTTP(effect.Request) || canon.Unmarshal(effect.Value, &x) != nil {
		return nil
	}
	for _, v := range x.Decision {
		text := "allowed"
		if v.Denied != "" {
			text = "denied: " + v.Denied
		}
		if v.Rule > 0 {
			text += fmt.Sprintf(" by rule %d", v.Rule)
		}
		if v.Line > 0 {
			text += fmt.Sprintf(", line %d", v.Line)
		}
		facts = append(facts, fact{line(v.Side + "'s policy"), line(text)})
	}
	return facts
}

// parts returns the texts of an event that people look for.
func parts(ev event.Event) []titled {
	if effect, err := ev.AsSideEffectRecorded(); err == nil && event.IsHTTP(effect.Request) {
		all := []titled{{"Request", httpMessage(effect.Request), false}}
		var x event.Exchange
		if canon.Unmarshal(effect.Value, &x) == nil && len(x.Response) > 0 {
			all = append(all, titled{"Response", httpMessage(x.Response), false})
		}
		return all
	}
	if call, err := ev.AsToolCallScheduled(); err == nil { // a program among the arguments keeps its lines
		return append(texts(call.Args), value("Arguments", call.Args))
	}
	logged := func(m event.Meter, all ...titled) []titled {
		if m.Log != "" {
			all = append(all, titled{"Log", display.PrintableText(display.Clip(m.Log, maxBody)), false})
		}
		return all
	}
	if done, err := ev.AsToolCallCompleted(); err == nil {
		return logged(done.Meter, value("Result", done.Result))
	}
	if failed, err := ev.AsToolCallFailed(); err == nil {
		return logged(failed.Meter)
	}
	return append(texts(ev.Payload), value("Payload", ev.Payload))
}

// texts returns the texts of a value that have several lines or are long.
func texts(raw canon.Raw) (all []titled) {
	if len(raw) <= maxShown {
		for _, t := range event.LongTexts(raw) {
			all = append(all, titled{cmp.Or(t.Path, "Text"), t.Text, false})
		}
	}
	return all
}

// value returns a value as indented JSON, or as its size if it is long.
func value(title string, raw canon.Raw) titled {
	if len(raw) > maxBody {
		return titled{title, display.Size(uint64(len(raw))) + ": open the event to see it.", false}
	}
	return titled{title, event.Indented(raw), true}
}

// httpMessage returns an HTTP message for reading: its head, and its body, indented if it is JSON.
// Of a long body it returns the beginning.
func httpMessage(message []byte) string {
	head, body, _ := bytes.Cut(message, []byte("\r\n\r\n"))
	text := string(head[:min(len(head), maxBody)])
	if len(body) == 0 {
		return display.PrintableText(text)
	}
	var indented bytes.Buffer
	if len(body) <= maxBody && nesting(body) <= maxNesting && json.Indent(&indented, body, "", "  ") == nil {
		return display.PrintableText(text + "\n\n" + indented.String())
	}
	text = display.PrintableText(text + "\n\n" + string(body[:min(len(body), maxBody)]))
	if len(body) > maxBody {
		text += fmt.Sprintf("\n… the first %s of %s", display.Size(maxBody), display.Size(uint64(len(body))))
	}
	return text
}

// nesting returns how deep brackets are nested at most, those in strings included.
func nesting(doc []byte) (deepest int) {
	depth := 0
	for _, c := range doc {
		switch c {
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth--
		}
	}
	return deepest
}

func duration(ns int64) string { return display.Duration(time.Duration(ns)) }
