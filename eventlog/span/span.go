package span

import (
	"errors"
	"fmt"
	"strings"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
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
	Goal, Model string
	Began       int64  // Unix nanoseconds
	End         int64  // of the last event, in nanoseconds since Began
	Events      uint64 // number of the last event
	Spans       []Span // in the order in which they began; a parent comes before its children

	State     State // Open until the terminal event
	ErrorType string
	Error     string
	// Cause is the index of the attempt or the answer whose failure ended the run, or None.
	Cause int

	Turns, Calls, FailedCalls      int // a call counts once, whatever the number of its attempts
	Requests, Status4xx, Status5xx int // HTTP requests, and their responses by class
	Fuel, PeakMemory               uint64
	InputTokens, OutputTokens      int64
	CostUSD                        float64
	Waited                         int64 // nanoseconds before repeated attempts
	Encrypted                      bool  // some payloads cannot be read without the key
}

// Builder makes a [Run] of events that are added in order. The zero value is ready.
type Builder struct {
	run     Run
	turn    int            // the open turn, or None
	calls   map[string]int // the open attempt of each call
	numbers map[string]int // of the calls so far
	last    map[int]last   // of open attempts
	open    []int          // spans without an end
	at      int            // the span of the last event, or None

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
	for _, ev := range events {
		if err := b.Add(ev); err != nil {
			return nil, err
		}
	}
	return b.Run(), nil
}

// Run returns what the events so far say. It stays valid until the next Add.
func (b *Builder) Run() *Run { return &b.run }

// At returns the index of the span that the event added last belongs to, or [None].
func (b *Builder) At() int { return b.at }

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
		*b = Builder{turn: None, calls: map[string]int{}, numbers: map[string]int{}, last: map[int]last{}}
		r.ID, r.Began, r.State, r.Cause = ev.RunID, ev.Timestamp, Open, None
	}
	r.Events, b.at = ev.Seq, None
	before := r.End
	r.End = max(before, ev.Timestamp-r.Began)
	err := b.take(ev, before)
	if errors.Is(err, event.ErrEncrypted) {
		r.Encrypted = true
		return nil
	}
	return err
}

func (b *Builder) take(ev event.Event, before int64) error {
	r := &b.run
	switch ev.Kind {
	case event.KindRunStarted:
		p, err := ev.AsRunStarted()
		if err != nil {
			return err
		}
		r.Goal = p.Goal
		if p.ModelID != "" {
			r.Model = p.ProviderID + "/" + p.ModelID
		}
	case event.KindTurnStarted:
		p, err := ev.AsTurnStarted()
		if err != nil {
			return err
		}
		b.endTurn()
		r.Turns++
		b.turn = b.begin(ev, Span{Kind: Turn, Parent: None, Name: fmt.Sprintf("turn %d", r.Turns), TurnID: p.TurnID})
		b.begin(ev, Span{Kind: Answer, Parent: b.turn, Name: r.Model, TurnID: p.TurnID})
		b.at = b.turn
	case event.KindReasoningEmitted:
		b.at = b.answer()
	case event.KindAssistantMessageCompleted:
		p, err := event.Decode[event.AssistantMessageCompleted](ev)
		if err != nil {
			return err
		}
		if at := b.answer(); at != None {
			s := b.end(at, ev, OK)
			s.InputTokens, s.OutputTokens, s.CostUSD = p.InputTokens, p.OutputTokens, p.CostUSD
			if p.Outcome == event.ErrorCut || p.Outcome == event.ErrorRefused {
				s.State, s.ErrorType, s.Final = Failed, p.Outcome, true
			}
		}
		r.InputTokens += p.InputTokens
		r.OutputTokens += p.OutputTokens
		r.CostUSD += p.CostUSD
	case event.KindToolCallScheduled:
		p, err := event.Decode[event.ToolCallScheduled](ev)
		if err != nil {
			return err
		}
		parent := b.turn
		if at, ok := b.calls[p.ParentID]; ok && p.ParentID != "" {
			parent = at
		}
		if p.Attempt <= 1 {
			r.Calls++
		}
		if b.numbers[p.CallID] == 0 {
			b.numbers[p.CallID] = len(b.numbers) + 1
		}
		at := b.begin(ev, Span{Kind: Call, Parent: parent, Name: p.ToolName, Number: b.numbers[p.CallID], CallID: p.CallID, Attempt: p.Attempt})
		b.calls[p.CallID], b.last[at] = at, last{at: r.End, intent: None}
	case event.KindToolCallCompleted:
		p, err := event.Decode[event.ToolCallCompleted](ev)
		if err != nil {
			return err
		}
		b.outcome(ev, p.CallID, p.Attempt, p.Meter, OK)
	case event.KindToolCallFailed:
		p, err := event.Decode[event.ToolCallFailed](ev)
		if err != nil {
			return err
		}
		s := b.outcome(ev, p.CallID, p.Attempt, p.Meter, stateOf(p.ErrorType))
		if s == nil {
			return nil
		}
		s.ErrorType, s.Error, s.Final = p.ErrorType, p.Error, p.Final
		if p.Final {
			r.FailedCalls++
		}
		if !p.Final {
			b.wait(ev, Span{Parent: s.Parent, CallID: p.CallID}, p.WaitMs)
		}
	case event.KindSideEffectRecorded:
		p, err := event.Decode[event.SideEffectRecorded](ev)
		if err != nil {
			return err
		}
		if f, ok := p.ModelFailure(); ok {
			b.modelFailed(ev, f)
		} else {
			b.effect(ev, p)
		}
	case event.KindBudgetExceeded:
		p, err := event.Decode[event.BudgetExceeded](ev)
		if err != nil {
			return err
		}
		b.budget, b.budgetAt = p.Describe(), None
		if at := b.answer(); at != None && p.TurnID == r.Spans[at].TurnID {
			s := b.end(at, ev, Failed)
			s.ErrorType, s.Error, s.Final = event.ErrorBudget, b.budget, true
		}
		for at := len(r.Spans) - 1; at >= 0 && p.CallID != ""; at-- {
			if s := &r.Spans[at]; s.Kind == Call && s.CallID == p.CallID {
				b.at, b.budgetAt = at, at
				break
			}
		}
	case event.KindRunResumed:
		b.endTurn()
		b.close(Lost, before)
		at := b.begin(ev, Span{Kind: Wait, Parent: None, Name: "until another process continued the run"})
		r.Spans[at].Start = before
		b.end(at, ev, OK)
	case event.KindRunCompleted:
		b.ended(OK, "", "")
	case event.KindRunFailed:
		p, err := event.Decode[event.RunFailed](ev)
		if err != nil {
			return err
		}
		b.ended(Failed, p.ErrorType, p.Error)
	case event.KindRunCancelled:
		p, err := event.Decode[event.RunCancelled](ev)
		if err != nil {
			return err
		}
		b.ended(Cancelled, event.ErrorCancelled, p.Reason)
	}
	return nil
}

// begin adds a span that begins with an event.
func (b *Builder) begin(ev event.Event, s Span) int {
	if s.Parent != None {
		s.Depth = b.run.Spans[s.Parent].Depth + 1
	}
	s.First, s.Start, s.End, s.State = ev.Seq, b.run.End, b.run.End, Open
	b.run.Spans = append(b.run.Spans, s)
	at := len(b.run.Spans) - 1
	b.open = append(b.open, at)
	b.at = at
	return at
}

// end ends a span with an event.
func (b *Builder) end(at int, ev event.Event, state State) *Span {
	s := &b.run.Spans[at]
	s.Last, s.End, s.State = ev.Seq, b.run.End, state
	b.at = at
	return s
}

// answer returns the open answer of the open turn, or None.
func (b *Builder) answer() int {
	if b.turn == None {
		return None
	}
	for at := len(b.run.Spans) - 1; at > b.turn; at-- {
		if s := &b.run.Spans[at]; s.Kind == Answer && s.Parent == b.turn && s.State == Open {
			return at
		}
	}
	return None
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
	b.turn = None
}

// outcome ends the open attempt of a call.
func (b *Builder) outcome(ev event.Event, call string, attempt uint32, m event.Meter, state State) *Span {
	at, ok := b.calls[call]
	if !ok || b.run.Spans[at].Attempt != attempt {
		return nil
	}
	s := b.end(at, ev, state)
	s.Fuel, s.PeakMemory = m.Fuel, m.PeakMemory
	b.run.Fuel += m.Fuel
	b.run.PeakMemory = max(b.run.PeakMemory, m.PeakMemory)
	delete(b.calls, call)
	delete(b.last, at)
	return s
}

// effect adds an effect. Its event has the end, and its duration or an intent the beginning.
func (b *Builder) effect(ev event.Event, p event.SideEffectRecorded) {
	r := &b.run
	parent, now := b.turn, last{intent: None, at: r.End}
	attempt, inCall := b.calls[p.CallID]
	if inCall && p.CallID != "" {
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
	}
	if inCall && p.CallID != "" {
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
		s.State, s.ErrorType, s.Error = stateOf(f.Type), f.Type, f.Message
	}
	if !event.IsHTTP(p.Request) {
		return
	}
	r.Requests++
	s.Request = event.DescribeRequest(p.Request)
	_, s.Host, _ = strings.Cut(s.Request, "://")
	s.Host = s.Host[:strings.IndexAny(s.Host+"/", "/?#")]
	var x event.Exchange
	if p.Error != nil || canon.Unmarshal(p.Value, &x) != nil {
		return
	}
	s.Bytes, s.Status = len(x.Response), x.StatusCode()
	switch {
	case x.Status != 0:
		s.State, s.ErrorType, s.Error = Failed, x.Status.String(), x.Text
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
	failed := b.answer()
	if failed == None {
		return
	}
	s := b.end(failed, ev, stateOf(f.Class))
	s.ErrorType, s.Error, s.Final = f.Class, f.Error, f.Final
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
	for _, i := range b.open {
		if s := &b.run.Spans[i]; s.State == Open {
			s.State, s.End = state, max(s.Start, at)
		}
	}
	clear(b.calls)
	clear(b.last)
	b.open = b.open[:0]
}

// ended is the end of the run.
func (b *Builder) ended(state State, errorType, text string) {
	r := &b.run
	b.endTurn()
	b.close(Lost, r.End)
	r.State, r.ErrorType, r.Error = state, errorType, text
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
	for at := len(r.Spans) - 1; at >= 0; at-- {
		if s := &r.Spans[at]; s.Final && s.State == Failed {
			r.Cause = at
			return
		}
	}
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
