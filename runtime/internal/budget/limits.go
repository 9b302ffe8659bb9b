package budget

import (
	"fmt"
	"math"
	"time"

	"github.com/starling-host/starling/eventlog/event"
)

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
	switch limit {
	case InputTokens:
		return float64(l.MaxInputTokens)
	case OutputTokens:
		return float64(l.MaxOutputTokens)
	case USD:
		return l.MaxUSD
	case WallClock:
		return float64(milliseconds(l.MaxWallClock))
	case Fuel:
		return float64(l.MaxFuel)
	case Effects:
		return float64(l.MaxEffects)
	case EgressBytes:
		return float64(l.MaxEgressBytes)
	}
	return 0
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
