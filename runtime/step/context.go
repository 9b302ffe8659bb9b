package step

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/internal/budget"
)

// Context is the state of one run: the end of its chain of events and, in a replay, the position in
// the recording. It is safe for concurrent use.
type Context struct {
	cfg    Config // checked and completed by NewContext; not changed
	logger *slog.Logger

	// mu is held while an event is numbered, hashed and handed to the log, so
	// that the order of the chain is the order of the log. Append only queues,
	// and nothing else that could block or call back runs under mu. It guards
	// everything below, and the mutable fields of every attempt.
	mu       sync.Mutex
	seq      uint64              // of the last event
	prevHash []byte              // hash of the last event, nil before the first; live only
	opening  event.Event         // the first event, if this process wrote it and cfg.Commit needs it
	leaves   canon.Tree          // over the hashes of all events; live only
	matcher  *matcher            // nil in live mode
	callIDs  map[string]struct{} // used by the run
	totals   Totals
	meter    *budget.Meter // the spending of the run
	open     int           // attempts that are scheduled and have no outcome
	closed   bool          // the terminal event exists
	err      error         // the reason why nothing more can be recorded

	rules       map[string]uint32      // recorded versions of the rules, by tool, see [Call]; not changed
	nested      map[string]*nestedCall // nested calls in the earlier events, by id
	carried     carried                // effects of calls without an outcome; live only, not changed
	began       time.Time              // when this process took over the run; live only
	earlierTime time.Duration          // the time that the run took in earlier processes
}

// Totals counts the work of a run so far.
type Totals struct {
	Events     uint64 // written or, in a replay, matched
	Turns      int    // started exchanges with the model
	ToolCalls  int    // without further attempts
	Effects    int    // host calls: readings of the clock, draws, side effects
	BytesIn    int    // of encoded values that effects returned
	BytesOut   int    // of the requests that effects sent
	Meter      Meter  // fuel of all attempts, the highest peak memory, the log of the attempt that ended last
	MerkleRoot []byte // of the terminal event, nil before
}

// NewContext returns a Context before the first event. The error is [ErrInvalidConfig].
func NewContext(cfg Config) (*Context, error) {
	c := &Context{cfg: cfg, logger: slog.New(slog.DiscardHandler), callIDs: make(map[string]struct{})}
	if cfg.Logger != nil {
		c.logger = cfg.Logger.With("run_id", cfg.RunID)
	}
	if c.cfg.ClockFn == nil {
		c.cfg.ClockFn = time.Now
	}
	if c.cfg.ToolTimeout == 0 {
		c.cfg.ToolTimeout = DefaultToolTimeout
	}
	if c.cfg.MaxParallelTools <= 0 {
		c.cfg.MaxParallelTools = DefaultMaxParallelTools
	}
	if err := c.continueFrom(cfg.Earlier); err != nil {
		return nil, fmt.Errorf("%w: Earlier: %w", ErrInvalidConfig, err)
	}
	if first := c.first(); first != nil && first.Kind == event.KindRunStarted {
		started, err := first.AsRunStarted()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
		}
		c.rules = make(map[string]uint32)
		for _, ref := range started.ToolSchemas {
			if ref.Sandbox != nil {
				c.rules[ref.Name] = ref.Sandbox.Rules
			}
		}
	}
	switch {
	case cfg.RunID == "":
		return nil, fmt.Errorf("%w: RunID is empty", ErrInvalidConfig)
	case cfg.Mode == ModeLive && cfg.Log == nil:
		return nil, fmt.Errorf("%w: Log is nil", ErrInvalidConfig)
	case cfg.Mode == ModeLive:
		return c, nil
	case cfg.Mode != ModeReplay:
		return nil, fmt.Errorf("%w: unknown Mode %d", ErrInvalidConfig, cfg.Mode)
	case len(cfg.Recorded) == 0:
		return nil, fmt.Errorf("%w: ModeReplay needs Recorded events", ErrInvalidConfig)
	}
	m, err := newMatcher(cfg.RunID, uint64(len(cfg.Earlier)), cfg.Recorded)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	c.matcher = m
	return c, nil
}

// MustNewContext is [NewContext] for a Config that is known to be valid. It panics on an error.
func MustNewContext(cfg Config) *Context {
	c, err := NewContext(cfg)
	if err != nil {
		panic(err)
	}
	return c
}

// RunID returns the identity of the run.
func (c *Context) RunID() string { return c.cfg.RunID }

// Logger returns Config.Logger with the run_id, or a logger that discards. It is
// never nil.
func (c *Context) Logger() *slog.Logger { return c.logger }

// Metrics returns Config.Metrics, which may be nil.
func (c *Context) Metrics() MetricsSink { return c.cfg.Metrics }

// Totals returns the work of the run so far.
func (c *Context) Totals() Totals {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.totals
}

// Err returns the reason why nothing more can be recorded: the failure of the log, the first
// mismatch of a replay (a *[MismatchError]), or the end of the context of a replay. It is nil while
// the run can continue. It never returns an error of a tool, and no tool can hide it.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Finish must be called when the code of the run has returned. It returns the error of
// [Context.Err]. If that is nil and the recording of a replay has events that the replay did not
// reach, it returns a [*MismatchError] of class exhausted.
func (c *Context) Finish() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.matcher != nil {
		return c.matcher.leftover()
	}
	return c.err
}

// replaying reports whether the results of effects come from a recording.
func (c *Context) replaying() bool { return c.cfg.Mode == ModeReplay }

// clock reads the wall clock in live mode; a replay has none.
func (c *Context) clock() time.Time {
	if c.replaying() {
		return time.Time{}
	}
	return c.cfg.ClockFn()
}

// fail sets err as the reason why nothing more can be recorded. It returns the reason that counts:
// the first one, or the earlier of two mismatches in the recording. The caller holds mu.
func (c *Context) fail(err error) error {
	var now, was *MismatchError
	if c.err == nil || errors.As(err, &now) && errors.As(c.err, &was) && now.Seq < was.Seq {
		c.err = err
	}
	return c.err
}

// stop ends the run without an outcome, because the host failed with err.
func (c *Context) stop(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fail(err)
}

// blocked returns the reason why s cannot record another event, or nil. The caller holds mu.
func (c *Context) blocked(a *Attempt) error {
	switch {
	case c.err != nil:
		return c.err
	case c.closed:
		return fmt.Errorf("%w: run %s", ErrEnded, c.cfg.RunID)
	case a.ended:
		return fmt.Errorf("%w: attempt %d of call %s", ErrEnded, a.number, a.callID)
	case c.replaying() && a.root.Err() != nil:
		return c.fail(fmt.Errorf("step: replay of run %s: %w", c.cfg.RunID, context.Cause(a.root)))
	}
	return nil
}

// count counts an event that a wrote or matched. An outcome ends the attempt or the run. The caller
// holds mu.
func (c *Context) count(a *Attempt, payload any) {
	t := &c.totals
	t.Events++
	switch p := payload.(type) {
	case *event.SideEffectRecorded:
		_ = c.meter.Effect(*p) // [Checkpoint] checks the caps
		a.took = p.DurationUs
		t.addEffect(p)
	case *event.TurnStarted:
		t.Turns++
	case *event.AssistantMessageCompleted:
		c.meter.Answered(*p)
	case *event.ToolCallScheduled:
		c.open++
		if p.Attempt <= 1 {
			t.ToolCalls++
		}
	case *event.ToolCallCompleted:
		a.ended = true
		c.open--
		c.outcome(p.Meter)
	case *event.ToolCallFailed:
		a.ended = true
		c.open--
		c.outcome(p.Meter)
	case *event.RunCompleted:
		t.MerkleRoot, c.closed = p.MerkleRoot, true
	case *event.RunFailed:
		t.MerkleRoot, c.closed = p.MerkleRoot, true
	case *event.RunCancelled:
		t.MerkleRoot, c.closed = p.MerkleRoot, true
	}
}

// outcome counts the consumption of an attempt.
func (c *Context) outcome(m Meter) {
	_ = c.meter.Outcome(m)
	c.totals.addMeter(m)
}

func (t *Totals) addEffect(p *event.SideEffectRecorded) {
	if !p.IsHostCall() {
		return
	}
	t.Effects++
	t.BytesOut += len(p.Request)
	if p.Error == nil {
		t.BytesIn += len(p.Value)
	}
}

func (t *Totals) addMeter(m Meter) {
	t.Meter.Fuel += m.Fuel
	t.Meter.PeakMemory = max(t.Meter.PeakMemory, m.PeakMemory)
	t.Meter.Log = m.Log
}
