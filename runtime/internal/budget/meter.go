package budget

import (
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/provider"
)

// Spent is the usage of a run.
type Spent struct {
	InputTokens  int64
	OutputTokens int64
	USD          float64
	Fuel         uint64
	Effects      uint64
	EgressBytes  uint64
}

// Meter adds up the usage of a run and reports when a cap is passed. It depends
// on nothing but its calls. It is not safe for concurrent use: its calls follow
// the order of the events in the log, whose writer holds a lock already.
//
// An answer that broke off counts up to the last count that the provider sent. Only an answer
// during which the process died is missing, because the log does not have it.
type Meter struct {
	limits Limits
	done   usage // of the answers that ended, complete or not
	turn   usage // of the response that is coming in
	tools  Spent // fuel, effects and egress
}

type usage struct {
	input, output int64
	cost          picos
}

// NewMeter returns the Meter of a run that has used nothing.
func NewMeter(limits Limits) *Meter { return &Meter{limits: limits} }

// Resume returns the Meter of a run with the given events. It reports no cap
// for them: what happened was allowed.
func Resume(limits Limits, events []event.Event) (*Meter, error) {
	m := NewMeter(limits)
	for _, ev := range events {
		if err := m.Add(ev); err != nil {
			return nil, fmt.Errorf("budget: resume at seq %d: %w", ev.Seq, err)
		}
	}
	return m, nil
}

// Add takes an event of a run. It trips over none.
func (m *Meter) Add(ev event.Event) error {
	switch ev.Kind {
	case event.KindAssistantMessageCompleted:
		return event.On(ev, m.Answered)
	case event.KindToolCallCompleted:
		return event.On(ev, func(p event.ToolCallCompleted) { m.addFuel(p.Fuel) })
	case event.KindToolCallFailed:
		return event.On(ev, func(p event.ToolCallFailed) { m.addFuel(p.Fuel) })
	case event.KindSideEffectRecorded:
		return event.On(ev, m.addEffect)
	}
	return nil
}

// BeforeCall begins a request. It returns an [*Exceeded] if the estimate, see
// [EstimateInput], takes the run past its cap on input tokens.
func (m *Meter) BeforeCall(estimate int64) error {
	m.turn = usage{}
	return over(InputTokens, PreCall, m.limits.MaxInputTokens, addTokens(m.done.input, estimate))
}

// Usage takes the counts of the turn so far, which replace earlier ones, and
// their cost. It returns an [*Exceeded] if the turn has taken the run past its
// cap on output tokens or dollars. For a model without a price the cost is
// zero, and the axis never trips.
func (m *Meter) Usage(u provider.Usage, usd float64) error {
	m.turn = usage{u.InputTokens, u.OutputTokens, toPicos(usd)}
	if err := over(OutputTokens, MidStream, m.limits.MaxOutputTokens, addTokens(m.done.output, u.OutputTokens)); err != nil {
		return err
	}
	spent := addCost(m.done.cost, m.turn.cost).dollars()
	if limit := m.limits.MaxUSD; limit > 0 && spent > limit {
		return &Exceeded{Limit: USD, Cap: limit, Actual: spent, Where: MidStream}
	}
	return nil
}

// Abandoned ends an answer that broke off. [Meter.Effect] counts its recorded
// part.
func (m *Meter) Abandoned() { m.turn = usage{} }

// Answered ends a turn with its recorded counts.
func (m *Meter) Answered(p event.AssistantMessageCompleted) {
	m.turn = usage{}
	m.spend(p.InputTokens, p.OutputTokens, p.CostUSD)
}

func (m *Meter) spend(input, output int64, usd float64) {
	m.done.input = addTokens(m.done.input, input)
	m.done.output = addTokens(m.done.output, output)
	m.done.cost = addCost(m.done.cost, toPicos(usd))
}

// Outcome takes the consumption of an attempt of a tool. It returns an
// [*Exceeded] if that has taken the run past its cap on fuel.
func (m *Meter) Outcome(consumed event.Meter) error {
	m.addFuel(consumed.Fuel)
	return over(Fuel, PostCall, m.limits.MaxFuel, m.tools.Fuel)
}

// Effect takes a recorded effect. It returns an [*Exceeded] if that has taken
// the run past its cap on effects or on egress.
func (m *Meter) Effect(p event.SideEffectRecorded) error {
	m.addEffect(p)
	if err := over(Effects, PostCall, m.limits.MaxEffects, m.tools.Effects); err != nil {
		return err
	}
	return over(EgressBytes, PostCall, m.limits.MaxEgressBytes, m.tools.EgressBytes)
}

// Tools returns an [*Exceeded] if the tools of the run have used more than they
// may. Parallel calls use it in an order that a replay does not repeat; their sums
// it does.
func (m *Meter) Tools() error {
	return errors.Join(
		over(Fuel, PostCall, m.limits.MaxFuel, m.tools.Fuel),
		over(Effects, PostCall, m.limits.MaxEffects, m.tools.Effects),
		over(EgressBytes, PostCall, m.limits.MaxEgressBytes, m.tools.EgressBytes))
}

// Elapsed returns an [*Exceeded] if the run has taken longer than it may.
func (m *Meter) Elapsed(d time.Duration) error {
	if limit := m.limits.MaxWallClock; limit > 0 && d >= limit {
		return &Exceeded{Limit: WallClock, Cap: float64(milliseconds(limit)), Actual: float64(d.Milliseconds()), Where: MidStream}
	}
	return nil
}

// Recorded returns the [*Exceeded] of a trip in the middle of a response, for a
// replay: the counts of a response that was cut off are not in the log, and
// neither is the clock. It returns another error if the trip could not have
// happened under the limits of this Meter.
func (m *Meter) Recorded(p event.BudgetExceeded) error {
	limit := m.limits.of(p.Limit)
	if limit <= 0 || p.Cap != limit || !(p.Actual >= limit) {
		return fmt.Errorf("budget: the recording exceeds %s with %v of %v, where the cap is %v", p.Limit, p.Actual, p.Cap, limit)
	}
	return &Exceeded{Limit: p.Limit, Cap: p.Cap, Actual: p.Actual, Where: p.Where}
}

// Spent returns the usage so far, including the turn in progress.
func (m *Meter) Spent() Spent {
	all := m.tools
	all.InputTokens = addTokens(m.done.input, m.turn.input)
	all.OutputTokens = addTokens(m.done.output, m.turn.output)
	all.USD = addCost(m.done.cost, m.turn.cost).dollars()
	return all
}

// addEffect counts a tool's effect, like the totals of package step, and the
// cost of a broken answer.
func (m *Meter) addEffect(p event.SideEffectRecorded) {
	if f, ok := p.ModelFailure(); ok {
		m.spend(f.InputTokens, f.OutputTokens, f.CostUSD)
	}
	if !p.IsHostCall() {
		return
	}
	m.tools.Effects++
	m.tools.EgressBytes += uint64(len(p.Request))
}

func (m *Meter) addFuel(fuel uint64) {
	m.tools.Fuel += min(fuel, math.MaxUint64-m.tools.Fuel)
}

// over compares the amount with a cap that is set.
func over[N int64 | uint64](limit, where string, most, actual N) error {
	if most == 0 || actual <= most {
		return nil
	}
	return &Exceeded{Limit: limit, Cap: float64(most), Actual: float64(actual), Where: where}
}

// addTokens and addCost end at the largest number: a count that wraps around
// would be a way past the cap.
func addTokens(total, more int64) int64 {
	return total + clamp(more, math.MaxInt64-total)
}

func addCost(total, more picos) picos {
	switch sum := total + more; {
	case more > 0 && sum < total:
		return math.MaxInt64
	case more < 0 && sum > total:
		return math.MinInt64
	default:
		return sum
	}
}

// EstimateInput guesses the input tokens of a request from its length: one for
// every three characters, rounded up, of prompt, messages, arguments, results
// and the schemas of the tools. TurnStarted records it.
func EstimateInput(req *provider.Request) int64 {
	runes := utf8.RuneCountInString(req.SystemPrompt)
	for _, m := range req.Messages {
		runes += utf8.RuneCountInString(m.Content)
		for _, r := range m.Reasoning {
			runes += utf8.RuneCountInString(r.Content)
		}
		for _, u := range m.ToolUses {
			runes += utf8.RuneCount(u.Args)
		}
		if m.ToolResult != nil {
			runes += utf8.RuneCountInString(m.ToolResult.Content)
		}
	}
	for _, t := range req.Tools {
		runes += utf8.RuneCount(t.Schema)
	}
	return int64(runes+2) / 3
}

// The names of the axes, as in [event.BudgetExceeded].
const (
	InputTokens  = "input_tokens"
	OutputTokens = "output_tokens"
	USD          = "usd"
	WallClock    = "wall_clock" // in milliseconds
	Fuel         = "fuel"       // units of spec/determinism.md
	Effects      = "effects"
	EgressBytes  = "egress_bytes"
)

// Where a cap was found to be passed.
const (
	PreCall   = "pre_call"   // before a request was sent
	MidStream = "mid_stream" // while a response came in, or a deadline passed
	PostCall  = "post_call"  // after an event of a tool was recorded
)

// Limits are the caps of a run. Each counts over the whole run, including the
// time before it was resumed. Zero disables an axis, so the zero value limits
// nothing.
type Limits struct {
	MaxInputTokens  int64         `yaml:"input_tokens"` // including cached tokens
	MaxOutputTokens int64         `yaml:"output_tokens"`
	MaxUSD          float64       `yaml:"usd"`
	MaxWallClock    time.Duration `yaml:"wall_clock"` // from the run's first event to its last

	// The axes of sandboxed tools, over all their calls. [event.SandboxLimits]
	// bound each call besides.
	MaxFuel        uint64 `yaml:"fuel"`
	MaxEffects     uint64 `yaml:"effects"`      // recorded host calls
	MaxEgressBytes uint64 `yaml:"egress_bytes"` // of the requests that effects send
}

// Validate refuses negative caps and a dollar cap that is not a number.
func (l Limits) Validate() error {
	switch {
	case l.MaxInputTokens < 0:
		return fmt.Errorf("budget: MaxInputTokens is %d, want 0 or more", l.MaxInputTokens)
	case l.MaxOutputTokens < 0:
		return fmt.Errorf("budget: MaxOutputTokens is %d, want 0 or more", l.MaxOutputTokens)
	case !(l.MaxUSD >= 0) || math.IsInf(l.MaxUSD, 1):
		return fmt.Errorf("budget: MaxUSD is %v, want 0 or more", l.MaxUSD)
	case l.MaxWallClock < 0:
		return fmt.Errorf("budget: MaxWallClock is %v, want 0 or more", l.MaxWallClock)
	}
	return nil
}

// Event returns the limits as RunStarted records them, or nil without limits.
func (l Limits) Event() *event.BudgetLimits {
	if l == (Limits{}) {
		return nil
	}
	return &event.BudgetLimits{
		MaxInputTokens: l.MaxInputTokens, MaxOutputTokens: l.MaxOutputTokens,
		MaxUSD: l.MaxUSD, MaxWallClockMs: milliseconds(l.MaxWallClock),
		MaxFuel: l.MaxFuel, MaxEffects: l.MaxEffects, MaxEgressBytes: l.MaxEgressBytes,
	}
}

// of returns the cap of an axis, or zero.
func (l Limits) of(limit string) float64 {
	return map[string]float64{
		InputTokens: float64(l.MaxInputTokens), OutputTokens: float64(l.MaxOutputTokens), USD: l.MaxUSD,
		WallClock: float64(milliseconds(l.MaxWallClock)),
		Fuel:      float64(l.MaxFuel), Effects: float64(l.MaxEffects), EgressBytes: float64(l.MaxEgressBytes),
	}[limit]
}

// milliseconds rounds up, so that a cap does not become none.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// FromEvent returns the limits that a run was started with; b may be nil.
func FromEvent(b *event.BudgetLimits) Limits {
	if b == nil {
		return Limits{}
	}
	const longest = math.MaxInt64 / int64(time.Millisecond)
	return Limits{
		MaxInputTokens: b.MaxInputTokens, MaxOutputTokens: b.MaxOutputTokens,
		MaxUSD: b.MaxUSD, MaxWallClock: time.Duration(clamp(b.MaxWallClockMs, longest)) * time.Millisecond,
		MaxFuel: b.MaxFuel, MaxEffects: b.MaxEffects, MaxEgressBytes: b.MaxEgressBytes,
	}
}

// Exceeded is the error of a run that has passed a cap.
type Exceeded struct {
	Limit  string  // the name of the axis
	Cap    float64 // the allowed amount
	Actual float64 // the amount used, or about to be
	Where  string  // PreCall, MidStream or PostCall
}

// Error returns a text with the axis, the amount and the cap.
func (e *Exceeded) Error() string {
	return fmt.Sprintf("budget: %s exceeded (%s): %v of %v", e.Limit, e.Where, e.Actual, e.Cap)
}

// Event returns the payload that records e. The caller adds the turn, the call and the received
// part of the response.
func (e *Exceeded) Event() event.BudgetExceeded {
	return event.BudgetExceeded{Limit: e.Limit, Cap: e.Cap, Actual: e.Actual, Where: e.Where}
}
