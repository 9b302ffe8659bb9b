package span

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
)

// Kind is what a span measures.
type Kind string

// The kinds. A turn contains the answer of the model and the calls that it asked for. A call
// contains its effects, and the calls that it made.
const (
	Turn   Kind = "turn"
	Answer Kind = "answer" // of the model, or a request to it that brought none
	Call   Kind = "call"   // one attempt
	Effect Kind = "effect"
	Wait   Kind = "wait" // before the next attempt, or until another process continued the run
)

// State is how a span ended.
type State string

// The states.
const (
	Open      State = "open" // it has no end in the log
	OK        State = "ok"
	Failed    State = "failed"
	Cancelled State = "cancelled"
	Lost      State = "lost" // its process died
)

// None is the index of no span.
const None = -1

// Span is one thing that a run did. Times are nanoseconds since the first event of the run, and
// never go back, even if the clock did.
type Span struct {
	Kind   Kind
	Parent int // index in [Run].Spans, or None
	Depth  int // number of ancestors

	// Name is the tool of a call, the name of an effect, the model of an answer, or the reason of
	// a wait. It may be hostile, like every text here.
	Name    string
	Number  int    // of a call in its run, from 1; its attempts share it
	Attempt uint32 // of a call, from 1
	Input   string // the arguments of a call as JSON, or their beginning
	CallID  string // of a call and its effects
	TurnID  string // of a turn and its answer

	First, Last uint64 // numbers of the events with the beginning and the end; Last is zero while it is open
	Start, End  int64
	// Approximate means that Start is the earliest possible time: the log of an effect may have
	// its end alone.
	Approximate bool

	State     State
	ErrorType string // a constant of package event, of a span that failed
	Error     string
	Final     bool // of a failed attempt: no other follows

	// Fuel is what an attempt used. For an effect it is what the attempt used since its effect before.
	Fuel       uint64
	PeakMemory uint64 // bytes, of an attempt
	Request    string // the method and the URL, of an HTTP request
	Host       string // of its URL, with the port if it names one
	Status     int    // of an HTTP response, or zero
	Bytes      int    // of the response of an effect

	InputTokens, OutputTokens int64 // of an answer
	CostUSD                   float64
}

// Run is what is known of a run after some of its events.
type Run struct {
	ID          string
	Goal, Model string // without a model, the goal is the name of the tool
	Module      string // of a run that is one call, the digest of its module in hexadecimal
	Began       int64  // Unix nanoseconds
	End         int64  // of the last event, in nanoseconds since Began
	Events      uint64 // number of the last event
	Spans       []Span // in the order in which they began; a parent comes before its children

	State     State // Open until the terminal event
	ErrorType string
	Error     string
	// Cause is the index of the attempt or the answer whose failure ended the run, or None. If a call
	// failed with the error of a call that it made, it is that one.
	Cause int

	Turns, Calls, FailedCalls      int // a call counts once, whatever the number of its attempts
	Requests, Status4xx, Status5xx int // HTTP requests, and their responses by class
	Meter
	InputTokens, OutputTokens int64
	CostUSD                   float64
	Waited                    int64 // nanoseconds before repeated attempts
	Encrypted                 bool  // some payloads cannot be read without the key
	MerkleRoot                []byte
	StopReason                string // of the last answer

	// Of a [Builder] that keeps the run whole: the result of the tool or the last answer of the model,
	// and what the tools wrote to their standard output and standard error.
	FinalText, Log string

	of    []int32 // the span of each event, or None
	texts int     // bytes of the texts of spans
}

// Builder makes a [Run] of events that are added in order. The zero value is ready.
type Builder struct {
	// Whole keeps the final text and the log of the run, which may be long.
	Whole bool

	run    Run
	turn   int            // the open turn, or None
	answer int            // its open answer, or None
	calls  map[string]int // the last attempt of each call, by keyOf its id
	last   map[int]last   // of open attempts
	closed int            // all spans before this index have an end
	at     int            // the span of the last event, or None

	budget   string // which bound of the run was passed, or empty
	budgetAt int    // the attempt that passed it, or None
}

// last is where an attempt stands.
type last struct {
	at     int64
	fuel   uint64
	intent int // the effect that an intent announced, or None
}

// Of returns the run that has these events.
func Of(events []event.Event) (*Run, error) {
	var b Builder
	b.Grow(len(events))
	for _, ev := range events {
		if err := b.Add(ev); err != nil {
			return nil, err
		}
	}
	return b.Run(), nil
}

// Grow makes room for the spans of a number of events.
func (b *Builder) Grow(events int) {
	b.run.Spans, b.run.of = slices.Grow(b.run.Spans, events), slices.Grow(b.run.of, events)
}

// Run returns what the events so far say. It stays valid until the next Add.
func (b *Builder) Run() *Run {
	if b.calls == nil { // nothing was added
		b.run.State, b.run.Cause = Open, None
	}
	return &b.run
}

// At returns the index of the span that the event added last belongs to, or [None].
func (b *Builder) At() int { return b.at }

// At returns the index of the span that the event with a number belongs to, or [None].
func (r *Run) At(seq uint64) int {
	if seq == 0 || seq > uint64(len(r.of)) {
		return None
	}
	return int(r.of[seq-1])
}

// Size returns how many bytes of memory the run takes.
func (r *Run) Size() int { return cap(r.Spans)*int(unsafe.Sizeof(Span{})) + 4*cap(r.of) + r.texts }

// The texts of spans come from a log that anybody may have written. All of them together are bounded:
// once they are many, only their beginnings are kept.
const (
	maxText  = 16 << 10
	maxTexts = 16 << 20 // of a run
	maxBrief = 64
	maxInput = 2000
)

// keep returns a text as a span keeps it.
func (r *Run) keep(text string) string {
	most := maxText
	if r.texts > maxTexts {
		most = maxBrief
	}
	text = display.Clip(text, most)
	r.texts += len(text)
	return text
}

// CallName names a call and its attempt, such as "#3 fetch, attempt 2", among others of the same tool.
func (s *Span) CallName() string {
	name := fmt.Sprintf("#%d %s", s.Number, s.Name)
	if s.Attempt > 1 {
		name += fmt.Sprintf(", attempt %d", s.Attempt)
	}
	return name
}

// CallOf returns the index of the attempt that a span is, or is in, or None.
func (r *Run) CallOf(at int) int {
	for at != None && r.Spans[at].Kind != Call {
		at = r.Spans[at].Parent
	}
	return at
}

// Add takes the next event of the run. An error means that its payload does not fit its kind.
// Events whose payload is encrypted move the time on, and nothing else.
func (b *Builder) Add(ev event.Event) error {
	r := &b.run
	if b.calls == nil {
		*b = Builder{Whole: b.Whole, run: Run{Spans: r.Spans, of: r.of}, turn: None, answer: None, calls: map[string]int{}, last: map[int]last{}}
		r.ID, r.Began, r.State, r.Cause = ev.RunID, ev.Timestamp, Open, None
	}
	r.Events, b.at = ev.Seq, None
	before := r.End
	r.End = max(before, ev.Timestamp-r.Began)
	err := b.take(ev, before)
	if ev.Seq == uint64(len(r.of))+1 { // a log may skip numbers; the spans of later events are not looked up
		r.of = append(r.of, int32(b.at))
	}
	if errors.Is(err, event.ErrEncrypted) {
		r.Encrypted = true
		return nil
	}
	return err
}

// take takes an event into the spans. Until it came, the run had lasted for some nanoseconds.
func (b *Builder) take(ev event.Event, before int64) error {
	r := &b.run
	switch ev.Kind {
	case event.KindRunStarted:
		return event.On(ev, func(p event.RunStarted) {
			if r.Goal = p.Goal; p.ModelID != "" {
				r.Model = p.ProviderID + "/" + p.ModelID
			} else if len(p.ToolSchemas) == 1 && p.ToolSchemas[0].Sandbox != nil {
				r.Module = r.keep(hex.EncodeToString(p.ToolSchemas[0].Sandbox.Module))
			}
		})
	case event.KindTurnStarted:
		return event.On(ev, func(p event.TurnStarted) {
			b.endTurn()
			r.Turns++
			b.turn = b.begin(ev, Span{Kind: Turn, Parent: None, Name: fmt.Sprintf("turn %d", r.Turns), TurnID: p.TurnID})
			b.begin(ev, Span{Kind: Answer, Parent: b.turn, Name: r.Model, TurnID: p.TurnID})
			b.at = b.turn
		})
	case event.KindReasoningEmitted:
		b.at = b.answer
	case event.KindAssistantMessageCompleted:
		return event.On(ev, func(p event.AssistantMessageCompleted) {
			r.InputTokens, r.OutputTokens, r.CostUSD = r.InputTokens+p.InputTokens, r.OutputTokens+p.OutputTokens, r.CostUSD+p.CostUSD
			if r.StopReason = r.keep(p.StopReason); p.Text != "" {
				b.final(p.Text)
			}
			if b.answer == None {
				return
			}
			s := b.end(b.answer, ev, OK)
			s.InputTokens, s.OutputTokens, s.CostUSD = p.InputTokens, p.OutputTokens, p.CostUSD
			if p.Outcome == event.ErrorCut || p.Outcome == event.ErrorRefused {
				s.State, s.ErrorType, s.Final = Failed, p.Outcome, true
			}
		})
	case event.KindToolCallScheduled:
		return event.On(ev, func(p event.ToolCallScheduled) {
			parent, ok := b.attempt(p.ParentID)
			if !ok || p.ParentID == "" {
				parent = b.turn
			}
			if p.Attempt <= 1 {
				r.Calls++
			}
			number := len(b.calls) + 1
			if before, again := b.calls[keyOf(p.CallID)]; again {
				number = r.Spans[before].Number
			}
			input, _ := canon.Render(p.Args)
			at := b.begin(ev, Span{Kind: Call, Parent: parent, Name: p.ToolName, Number: number, CallID: p.CallID, Attempt: p.Attempt, Input: display.Clip(string(input), maxInput)})
			b.calls[keyOf(p.CallID)], b.last[at] = at, last{at: r.End, intent: None}
		})
	case event.KindToolCallCompleted:
		return event.On(ev, func(p event.ToolCallCompleted) { b.outcome(ev, p.CallID, p.Attempt, p.Meter, OK) })
	case event.KindToolCallFailed:
		return event.On(ev, func(p event.ToolCallFailed) {
			s := b.outcome(ev, p.CallID, p.Attempt, p.Meter, stateOf(p.ErrorType))
			if s == nil {
				return
			}
			if s.ErrorType, s.Error, s.Final = r.keep(p.ErrorType), r.keep(p.Error), p.Final; p.Final {
				r.FailedCalls++
			} else {
				b.wait(ev, Span{Parent: s.Parent, CallID: s.CallID}, p.WaitMs)
			}
		})
	case event.KindSideEffectRecorded:
		return event.On(ev, func(p event.SideEffectRecorded) {
			if p.IsHostCall() {
				r.Effects++
				if r.BytesOut += len(p.Request); p.Error == nil {
					r.BytesIn += len(p.Value)
				}
			}
			if f, ok := p.ModelFailure(); ok {
				b.modelFailed(ev, f)
			} else {
				b.effect(ev, p)
			}
		})
	case event.KindBudgetExceeded:
		return event.On(ev, func(p event.BudgetExceeded) {
			b.budget, b.budgetAt = p.Describe(), None
			if b.answer != None && p.TurnID == r.Spans[b.answer].TurnID {
				s := b.end(b.answer, ev, Failed)
				s.ErrorType, s.Error, s.Final = event.ErrorBudget, b.budget, true
			}
			if at, ok := b.calls[keyOf(p.CallID)]; ok && p.CallID != "" {
				b.at, b.budgetAt = at, at
			}
		})
	case event.KindRunResumed:
		b.endTurn()
		b.close(Lost, before)
		at := b.begin(ev, Span{Kind: Wait, Parent: None, Name: "until another process continued the run"})
		r.Spans[at].Start = before
		b.end(at, ev, OK)
	case event.KindRunCompleted:
		b.ended(OK, "", "", nil) // the kind of an encrypted event is enough
		return event.On(ev, func(p event.RunCompleted) {
			r.MerkleRoot = p.MerkleRoot
			b.final(p.FinalText)
		})
	case event.KindRunFailed:
		return event.On(ev, func(p event.RunFailed) { b.ended(Failed, p.ErrorType, p.Error, p.MerkleRoot) })
	case event.KindRunCancelled:
		return event.On(ev, func(p event.RunCancelled) { b.ended(Cancelled, event.ErrorCancelled, p.Reason, p.MerkleRoot) })
	}
	return nil
}

// final keeps the final text so far.
func (b *Builder) final(text string) {
	if b.Whole {
		b.run.texts += len(text) - len(b.run.FinalText)
		b.run.FinalText = text
	}
}

// begin adds a span that begins with an event.
func (b *Builder) begin(ev event.Event, s Span) int {
	if s.Parent != None {
		s.Depth = b.run.Spans[s.Parent].Depth + 1
	}
	s.First, s.Start, s.End, s.State = ev.Seq, b.run.End, b.run.End, Open
	s.Name, s.CallID, s.TurnID, s.Input = b.run.keep(s.Name), b.run.keep(s.CallID), b.run.keep(s.TurnID), b.run.keep(s.Input)
	b.run.Spans = append(b.run.Spans, s)
	if b.at = len(b.run.Spans) - 1; s.Kind == Answer {
		b.answer = b.at
	}
	return b.at
}

// end ends a span with an event.
func (b *Builder) end(at int, ev event.Event, state State) *Span {
	s := &b.run.Spans[at]
	s.Last, s.End, s.State = ev.Seq, b.run.End, state
	if b.at = at; at == b.answer {
		b.answer = None
	}
	return s
}

// keyOf returns the id of a call or, if it is long, its hash.
func keyOf(id string) string {
	if len(id) > maxBrief {
		id = canon.Sum([]byte(id)).String()
	}
	return id
}

// attempt returns the index of the open attempt of a call.
func (b *Builder) attempt(call string) (at int, ok bool) {
	at, ok = b.calls[keyOf(call)]
	return at, ok && b.run.Spans[at].State == Open
}

// endTurn ends the open turn where its last part ended.
func (b *Builder) endTurn() {
	if b.turn == None {
		return
	}
	turn := &b.run.Spans[b.turn]
	for _, s := range b.run.Spans[b.turn+1:] {
		turn.End, turn.Last = max(turn.End, s.End), max(turn.Last, s.Last)
		if s.Parent == b.turn && s.Kind == Answer {
			turn.State = s.State
		}
	}
	b.turn, b.answer = None, None
}

// outcome ends the open attempt of a call.
func (b *Builder) outcome(ev event.Event, call string, attempt uint32, m event.Meter, state State) *Span {
	at, ok := b.attempt(call)
	if !ok || b.run.Spans[at].Attempt != attempt {
		return nil
	}
	s := b.end(at, ev, state)
	s.Fuel, s.PeakMemory = m.Fuel, m.PeakMemory
	b.run.Fuel += m.Fuel
	b.run.PeakMemoryBytes = max(b.run.PeakMemoryBytes, m.PeakMemory)
	if b.Whole {
		b.run.Log += m.Log
		b.run.texts += len(m.Log)
	}
	delete(b.last, at)
	return s
}

// effect adds an effect. Its event has the end, and its duration or an intent the beginning.
func (b *Builder) effect(ev event.Event, p event.SideEffectRecorded) {
	r := &b.run
	parent, now := b.turn, last{intent: None, at: r.End}
	attempt, inCall := b.attempt(p.CallID)
	if inCall = inCall && p.CallID != ""; inCall {
		parent, now = attempt, b.last[attempt]
	}
	b.at = parent
	since, spent := now.at, p.Fuel-min(p.Fuel, now.fuel)
	now.at, now.fuel = r.End, max(p.Fuel, now.fuel)
	at := now.intent
	switch {
	case p.Name == event.EffectIntent:
		var intent event.Intent
		_ = canon.Unmarshal(p.Value, &intent) // an unreadable one has no name
		now.intent = b.begin(ev, Span{Kind: Effect, Parent: parent, Name: intent.Name, CallID: p.CallID, Fuel: spent})
		at = None
	case p.Error == nil && strings.HasPrefix(p.Name, event.NestedCallPrefix): // the call has spans of its own
		at = None
	case at != None && r.Spans[at].Name == p.Name:
		now.intent = None
	default:
		at = b.begin(ev, Span{Kind: Effect, Parent: parent, Name: p.Name, CallID: p.CallID, Fuel: spent})
		s := &r.Spans[at]
		switch p.Name {
		case event.EffectNow, event.EffectRandom, event.EffectSeed: // these take no time
		default:
			s.Start, s.Approximate = since, p.DurationUs <= 0
		}
		if strings.HasPrefix(p.Name, "mcp/") && len(p.Request) > 0 { // what a server asked its client
			var given struct {
				Result  string `cbor:"result"`
				Refused string `cbor:"refused"`
			}
			_ = canon.Unmarshal(p.Value, &given) // a failure has no value
			s.Input = r.keep(display.Clip(string(p.Request)+" -> "+given.Result+given.Refused, maxInput))
		}
	}
	if inCall {
		b.last[attempt] = now
	}
	if at == None {
		return
	}
	s := b.end(at, ev, OK)
	if p.DurationUs > 0 {
		s.Start = max(r.End-min(p.DurationUs, r.End/1000)*1000, 0)
	}
	result(r, s, p)
}

// result sets what came back from an effect.
func result(r *Run, s *Span, p event.SideEffectRecorded) {
	if f := p.Error; f != nil {
		s.State, s.ErrorType, s.Error = stateOf(f.Type), r.keep(f.Type), r.keep(f.Message)
	}
	if !event.IsHTTP(p.Request) {
		return
	}
	r.Requests++
	s.Request = r.keep(event.DescribeRequest(p.Request))
	_, s.Host, _ = strings.Cut(s.Request, "://")
	s.Host = s.Host[:strings.IndexAny(s.Host+"/", "/?#")]
	var x event.Exchange
	if p.Error != nil || canon.Unmarshal(p.Value, &x) != nil {
		return
	}
	s.Bytes, s.Status = len(x.Response), x.StatusCode()
	switch {
	case x.Status != 0:
		s.State, s.ErrorType, s.Error = Failed, x.Status.String(), r.keep(x.Text)
	case s.Status >= 500:
		r.Status5xx++
	case s.Status >= 400:
		r.Status4xx++
	}
}

// modelFailed ends a request to the model that brought no answer, and begins the next.
func (b *Builder) modelFailed(ev event.Event, f event.ModelFailure) {
	r := &b.run
	r.InputTokens, r.OutputTokens, r.CostUSD = r.InputTokens+f.InputTokens, r.OutputTokens+f.OutputTokens, r.CostUSD+f.CostUSD
	failed := b.answer
	if failed == None {
		return
	}
	s := b.end(failed, ev, stateOf(f.Class))
	s.ErrorType, s.Error, s.Final = r.keep(f.Class), r.keep(f.Error), f.Final
	s.InputTokens, s.OutputTokens, s.CostUSD = f.InputTokens, f.OutputTokens, f.CostUSD
	if next := *s; !f.Final {
		wait := b.wait(ev, Span{Parent: b.turn, TurnID: next.TurnID}, f.WaitMs)
		at := b.begin(ev, Span{Kind: Answer, Parent: b.turn, Name: next.Name, TurnID: next.TurnID})
		r.Spans[at].Start += wait
		r.Spans[at].End += wait
		b.at = failed
	}
}

// wait adds a wait of some milliseconds that begins with an event, and returns its nanoseconds.
func (b *Builder) wait(ev event.Event, s Span, ms int64) int64 {
	if ms <= 0 {
		return 0
	}
	s.Kind, s.Name = Wait, "before the next attempt"
	of := b.at
	at := b.begin(ev, s)
	b.end(at, ev, OK)
	b.at = of
	ns := min(ms, maxWaitMs) * 1e6
	b.run.Spans[at].End += ns
	b.run.Waited += ns
	return ns
}

// maxWaitMs bounds a wait that a log claims: a year.
const maxWaitMs = 366 * 24 * 3600 * 1000

// close ends everything that is open.
func (b *Builder) close(state State, at int64) {
	for ; b.closed < len(b.run.Spans); b.closed++ {
		if s := &b.run.Spans[b.closed]; s.State == Open {
			s.State, s.End = state, max(s.Start, at)
		}
	}
	clear(b.last)
}

// ended is the end of the run.
func (b *Builder) ended(state State, errorType, text string, root []byte) {
	r := &b.run
	if r.State != Open { // a second terminal event, which only an invalid log has
		return
	}
	b.endTurn()
	b.close(Lost, r.End)
	r.State, r.ErrorType, r.Error, r.MerkleRoot = state, errorType, text, root
	for at := range r.Spans {
		r.Spans[at].End = min(r.Spans[at].End, r.End) // a wait may have been cut off
	}
	if state != Failed {
		return
	}
	if errorType == event.ErrorBudget && b.budget != "" {
		if r.Error = b.budget; b.budgetAt != None {
			r.Cause = b.budgetAt
			return
		}
	}
	for at := len(r.Spans) - 1; at >= 0 && r.Cause == None; at-- {
		s := &r.Spans[at]
		if nested := s.Parent != None && r.Spans[s.Parent].Kind == Call; nested || s.Kind != Call && s.Kind != Answer {
			continue
		}
		if !s.Final || s.State != Failed { // the model could answer, or its last call succeeded
			return
		}
		r.Cause = at
	}
	if r.Cause == None {
		return
	}
	failing := map[int]string{r.Cause: brief(r.Spans[r.Cause].Error)} // calls that failed with one another's error
	for at, s := range r.Spans {
		if outer, ok := failing[s.Parent]; ok && s.Kind == Call && s.Final && s.State == Failed && s.Error != "" && strings.Contains(outer, brief(s.Error)) {
			r.Cause, failing[at] = at, brief(s.Error)
		}
	}
}

// brief returns the beginning of the first line of an error.
func brief(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return text[:min(len(text), maxInput)]
}

// Reason returns the tool that made a run fail, or an empty name, and its error. The first line is
// the same wherever the call was. If the run, or the call around it, has another error, it follows.
func (r *Run) Reason() (tool, text string) {
	class, text := r.ErrorType, strings.TrimPrefix(r.Error, "tool: ")
	if r.Model == "" {
		tool = r.Goal
	}
	outer := ""
	if r.Cause != None && r.Spans[r.Cause].Kind == Call {
		s := &r.Spans[r.Cause]
		if class == event.ErrorBudget {
			tool = s.Name
		} else if own := brief(s.Error); own != "" && (class == event.ErrorMaxTurns || strings.Contains(brief(text), own)) {
			if !strings.HasPrefix(text, own) {
				outer = "\n" + class + ": " + text
			}
			tool, class, text = s.Name, s.ErrorType, s.Error
		}
	}
	return tool, worded(class, text) + outer
}

// worded returns an error after its class, unless the text is enough to tell it.
func worded(class, text string) string {
	text = strings.TrimPrefix(text, "tool: ")
	if trap, ok := strings.CutPrefix(text, "panicked: trap: "); ok {
		text = "trap: " + trap
	}
	if text != "" && (class == event.ErrorTool || class == event.ErrorPanic || class == event.ErrorFuel) {
		return text
	}
	return strings.TrimSuffix(class+": "+text, ": ")
}

// stateOf returns the state of a span that failed with this type of error.
func stateOf(errorType string) State {
	switch errorType {
	case event.ErrorCancelled:
		return Cancelled
	case event.ErrorLost:
		return Lost
	}
	return Failed
}
