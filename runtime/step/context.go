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

// Context is the state of one run: where its chain of events stands and, in a
// replay, what the recording says next. It is safe for concurrent use.
type Context struct {
	cfg    Config // as checked and completed by NewContext; not changed
	logger *slog.Logger

	// mu is held while an event is numbered, hashed and handed to the log, so
	// that the order of the chain is the order of the log. Append only queues,
	// and nothing else that could block or call back runs under mu. It guards
	// everything below, and the mutable fields of every attempt.
	mu       sync.Mutex
	seq      uint64              // of the last event
	prevHash []byte              // hash of the last event, nil before the first; live only
	leaves   canon.Tree          // over the hashes of all events; live only
	matcher  *matcher            // nil in live mode
	callIDs  map[string]struct{} // that the run has used
	totals   Totals
	meter    *budget.Meter // what the run has spent
	open     int           // attempts that are scheduled and have no outcome
	closed   bool          // the terminal event is there
	err      error         // why nothing can be recorded any more

	nested      map[string]*nestedCall // calls of the earlier events that calls made, by their ids
	carried     carried                // what is known of calls without an outcome; live only, not changed
	began       time.Time              // when this process took the run up; live only
	earlierTime time.Duration          // that the run took in earlier processes
}

// Totals is what a run has done so far.
type Totals struct {
	Events     uint64 // written or, in a replay, matched
	Turns      int    // exchanges with the model that were begun
	ToolCalls  int    // without further attempts
	Effects    int    // host calls: readings of the clock, draws, side effects
	BytesIn    int    // of encoded values that effects returned
	BytesOut   int    // of the requests that effects sent
	Meter      Meter  // fuel of all attempts, the highest peak memory, the log of the attempt that ended last
	MerkleRoot []byte // of the terminal event, nil before
}

// NewContext returns a Context that stands before the first event. The error
// is [ErrInvalidConfig].
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

// MustNewContext is [NewContext] for a Config that is known to be right. It
// panics when it is not.
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

// Totals returns what the run has done so far.
func (c *Context) Totals() Totals {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.totals
}

// Err returns why nothing can be recorded any more: the failure of the log, the
// first mismatch of a replay (a *[MismatchError]), or the end of the context
// that a replay runs under. It is nil as long as the run can go on. An error of
// a tool is never in it, and nothing that a tool does hides it.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Finish is called when the code of the run has returned. It returns what
// [Context.Err] returns, and for a replay of which nothing is left to complain
// about a [*MismatchError] of class exhausted if the recording holds events
// that the replay did not reach.
func (c *Context) Finish() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.matcher != nil {
		return c.matcher.leftover()
	}
	return c.err
}

// replaying reports whether effects are answered from a recording.
func (c *Context) replaying() bool { return c.cfg.Mode == ModeReplay }

// clock reads the wall clock in live mode; a replay has none.
func (c *Context) clock() time.Time {
	if c.replaying() {
		return time.Time{}
	}
	return c.cfg.ClockFn()
}

// fail makes err the reason why nothing can be recorded any more, and returns
// the reason that holds: the first one, or of two mismatches the one that comes
// first in the recording. The caller holds mu.
func (c *Context) fail(err error) error {
	var now, was *MismatchError
	if c.err == nil || errors.As(err, &now) && errors.As(c.err, &was) && now.Seq < was.Seq {
		c.err = err
	}
	return c.err
}

// stop ends the run without an outcome, because of what the host failed at.
func (c *Context) stop(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fail(err)
}

// blocked returns why s cannot record another event, or nil. The caller holds
// mu.
func (c *Context) blocked(s *scope) error {
	switch {
	case c.err != nil:
		return c.err
	case c.closed:
		return fmt.Errorf("%w: run %s", ErrEnded, c.cfg.RunID)
	case s.attempt.ended:
		return fmt.Errorf("%w: attempt %d of call %s", ErrEnded, s.attempt.number, s.attempt.callID)
	case c.replaying() && s.root.Err() != nil:
		return c.fail(fmt.Errorf("step: replay of run %s: %w", c.cfg.RunID, context.Cause(s.root)))
	}
	return nil
}

// count takes note of an event that a wrote or matched: it adds to the totals,
// and an outcome ends the attempt or the run. The caller holds mu.
func (c *Context) count(a *attempt, payload any) {
	t := &c.totals
	t.Events++
	switch p := payload.(type) {
	case *event.SideEffectRecorded:
		_ = c.meter.Effect(*p) // [Checkpoint] looks whether a cap is passed
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

// outcome counts what an attempt consumed.
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
