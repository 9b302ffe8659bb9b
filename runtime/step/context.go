package step

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/tool"
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
	carried     carried                // effects of calls without an outcome; not used by a replay, not changed
	files       *event.Workspace       // that the next call of the run is given, or nil; guarded by mu
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
	Meter      Meter  // fuel of all attempts, the highest peak memory, the log of the last attempt, the files that the calls have left
	MerkleRoot []byte // of the terminal event, nil before
}

// NewContext returns a Context before the first event. The error is [ErrInvalidConfig].
func NewContext(cfg Config) (*Context, error) {
	c := &Context{cfg: cfg, logger: slog.New(slog.DiscardHandler), callIDs: make(map[string]struct{}), files: cfg.Workspace}
	if cfg.Logger != nil {
		c.logger = cfg.Logger.With("run_id", cfg.RunID)
	}
	if c.cfg.ClockFn == nil {
		c.cfg.ClockFn = time.Now
	}
	c.cfg.ToolTimeout = cmp.Or(c.cfg.ToolTimeout, DefaultToolTimeout)
	if c.cfg.MaxParallelTools <= 0 {
		c.cfg.MaxParallelTools = DefaultMaxParallelTools
	}
	if first := c.first(); first != nil && first.Kind == event.KindRunStarted {
		started, err := first.AsRunStarted()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
		}
		c.files = cmp.Or(started.Workspace, c.files)
		c.rules = make(map[string]uint32)
		for _, ref := range started.ToolSchemas {
			if ref.Sandbox != nil {
				c.rules[ref.Name] = ref.Sandbox.Rules
			}
		}
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
	for _, payload := range m.decoded { // the files of a direct run are those of its call
		if p, ok := payload.(event.ToolCallScheduled); ok && c.files == nil {
			c.files = p.Workspace
		}
	}
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
		c.outcome(a, p.Meter)
		c.leave(p.Workspace)
	case *event.ToolCallFailed:
		c.outcome(a, p.Meter)
	case *event.RunCompleted:
		t.MerkleRoot, c.closed = p.MerkleRoot, true
	case *event.RunFailed:
		t.MerkleRoot, c.closed = p.MerkleRoot, true
	case *event.RunCancelled:
		t.MerkleRoot, c.closed = p.MerkleRoot, true
	}
}

// outcome ends an attempt, and counts its consumption.
func (c *Context) outcome(a *Attempt, m Meter) {
	a.ended = true
	c.open--
	_ = c.meter.Outcome(m) // [Checkpoint] checks the caps
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

// leave notes the files that a call has left, if it was given some. One within a call leaves those that the
// outer one was given. The caller holds mu.
func (c *Context) leave(root []byte) {
	if c.files != nil && len(root) > 0 {
		c.files = &event.Workspace{Root: root, Mounts: c.files.Mounts}
		c.totals.Meter.Workspace = root
	}
}

// The operator's log has the start, the resumption and the end of live runs (Info), retries and
// exceeded caps (Warn), and turns and calls (Debug). Every record has the run_id. No record has
// text of a prompt, an answer, an argument, a result or an error: these are only in the event log.
// A failure appears as its type, one of a closed set.

// maxLogged bounds a name in a record, in bytes.
const maxLogged = 128

// log writes one record.
func (c *Context) log(ctx context.Context, level slog.Level, msg string, attrs ...slog.Attr) {
	if !c.replaying() {
		c.logger.LogAttrs(ctx, level, msg, attrs...)
	}
}

// named returns an attribute for a name or a type. Handlers omit it if it is empty.
func named(key, value string) slog.Attr {
	if value == "" {
		return slog.Attr{}
	}
	return slog.String(key, strings.ToValidUTF8(value[:min(len(value), maxLogged)], ""))
}

// LogStarted logs the start of the run in this process. [Emit] calls it for RunStarted; the caller
// must call it for a run that was opened before.
func (c *Context) LogStarted(ctx context.Context, started event.RunStarted) {
	if started.ModelID != "" {
		c.log(ctx, slog.LevelInfo, "run started", named("model", started.ModelID))
		return
	}
	c.log(ctx, slog.LevelInfo, "run started", named("tool", started.Goal)) // a direct run: its goal is the tool's name
}

// LogEnded logs the end of the run or, if terminal is 0, that it stopped in this process without an
// end.
func (c *Context) LogEnded(ctx context.Context, terminal event.Kind, errorType string, took time.Duration) {
	level, name := slog.LevelInfo, ""
	if terminal != 0 {
		name = terminal.String()
	}
	if terminal != event.KindRunCompleted && terminal != event.KindRunCancelled {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{named("terminal", name), named("error_type", errorType), slog.Duration("duration", took)}
	if c.cfg.Provider != nil {
		spent := c.Spent()
		attrs = append(attrs, slog.Int64("input_tokens", spent.InputTokens),
			slog.Int64("output_tokens", spent.OutputTokens), slog.Float64("cost_usd", spent.USD))
	}
	c.log(ctx, level, "run ended", attrs...)
}

// logEvent logs a recorded event. payload is a pointer. logCall logs the outcomes of calls.
func (c *Context) logEvent(ctx context.Context, payload any) {
	switch p := payload.(type) {
	case *event.RunStarted:
		c.LogStarted(ctx, *p)
	case *event.RunResumed:
		c.log(ctx, slog.LevelInfo, "run resumed", slog.Uint64("seq", p.AtSeq))
	case *event.TurnStarted:
		c.log(ctx, slog.LevelDebug, "turn started", slog.String("turn_id", p.TurnID))
	case *event.AssistantMessageCompleted:
		c.log(ctx, slog.LevelDebug, "turn ended", slog.String("turn_id", p.TurnID), slog.Int64("input_tokens", p.InputTokens),
			slog.Int64("output_tokens", p.OutputTokens), slog.Float64("cost_usd", p.CostUSD))
	case *event.BudgetExceeded:
		c.log(ctx, slog.LevelWarn, "budget exceeded", slog.String("limit", p.Limit), slog.Float64("cap", p.Cap),
			slog.Float64("actual", p.Actual), slog.String("where", p.Where))
	}
}

// Mode selects between a live run and a replay.
type Mode uint8

const (
	// ModeLive, the zero value, performs effects and records them.
	ModeLive Mode = iota
	// ModeReplay takes the results of effects from Config.Recorded. It performs and appends
	// nothing.
	ModeReplay
)

// DefaultToolTimeout is the default of Config.ToolTimeout.
const DefaultToolTimeout = 5 * time.Minute

// DefaultMaxParallelTools is the default of Config.MaxParallelTools.
const DefaultMaxParallelTools = 8

// Config configures a [Context]. RunID is always required, Log in live mode, Recorded in replay
// mode.
type Config struct {
	// Log receives the events of a live run. A replay does not touch it.
	Log eventlog.EventLog

	// RunID is the run's identity, see [event.NewID].
	RunID string

	// Tools are the tools that can be called. If it is nil, every call fails with
	// [ErrToolNotFound].
	Tools *Registry

	// Provider is the model for [LLMCall]. A replay does not need it.
	Provider provider.Provider

	// ModelAttempts bounds the attempts at a turn when the provider fails with an error that may be
	// temporary, see [provider.Transient]. Zero means one.
	ModelAttempts int

	// RequireRawResponseHash refuses an answer without the hash of the response that the provider
	// received.
	RequireRawResponseHash bool

	// Budget bounds the spending of the run. The zero value sets no bound.
	Budget budget.Limits

	// Prices are the prices of tokens. With them a replay computes costs again and compares them.
	// Nil means the table of the process; since that table changes, a replay then takes the
	// recorded costs.
	Prices budget.Prices

	// Earlier are the events of a resumed run: all of them, checked. The Context continues after
	// them. It is nil for a run from its start.
	Earlier []event.Event

	// Mode is [ModeLive] by default.
	Mode Mode

	// Recorded is the recording to replay: the events of the run after Earlier, which must have
	// passed [eventlog.Check]. It is not used in live mode.
	Recorded []event.Event

	// Matched, if not nil, is called for each recorded event that the replay has reproduced, in
	// that order.
	Matched func(event.Event)

	// IgnoreMeter makes a replay accept any fuel and peak memory, for replaying
	// with a module or limits other than the recorded ones.
	IgnoreMeter bool

	// ClockFn reads the wall clock for [Now], timestamps and durations. Nil
	// means time.Now. It must be safe for concurrent use. A replay never calls
	// it.
	ClockFn func() time.Time

	// MaxParallelTools bounds how many tools [CallTools] runs at once. Zero
	// means [DefaultMaxParallelTools], one makes it sequential.
	MaxParallelTools int

	// ToolTimeout bounds an attempt at a native tool, which must watch its context. A sandboxed
	// tool has a limit of its own. Zero means [DefaultToolTimeout], a negative value no bound.
	ToolTimeout time.Duration

	// Workspace are the files of the run, for the tools that look for some. A call of the run gets them
	// as the one before has left them, and a call of another call as that one was given them, to read.
	// Nil for none. A replay takes the first ones from the record.
	Workspace *event.Workspace

	// Commit returns the field commitment of the event of a scheduled call, given the first event of
	// the run. Nil commits to nothing. A replay copies what was recorded.
	Commit func(first, scheduled event.Event) ([]byte, error)

	// Logger receives log records of a live run. Each record has the run_id, and none has text that
	// a user, a model or a tool wrote. Nil discards them.
	Logger *slog.Logger

	// Metrics receives measurements of live calls and appends. It may be nil.
	Metrics MetricsSink

	// Observer receives the progress of a live run. It may be nil.
	Observer Observer

	// Tracer follows a live run. It may be nil.
	Tracer Tracer

	// EmitTimeout bounds each append and each barrier. They continue when the run is cancelled,
	// because its outcome must still be written. Zero means no bound.
	EmitTimeout time.Duration
}

// MetricsSink receives measurements. Implementations must be safe for
// concurrent use and fast, because the append observer runs for every event.
// Replays are not measured. Status is "ok" or "error".
type MetricsSink interface {
	ObserveProviderCall(model, status string, d time.Duration, promptTokens, completionTokens int64)
	ObserveToolCall(toolName, status, errorType string, d time.Duration)
	ObserveEventlogAppend(kind, status string, d time.Duration)
	ObserveBudgetExceeded(axis string)
}

// Observer watches a live run. Several goroutines call its methods at the same time, and wait for
// them.
type Observer interface {
	// Chunk receives a piece of the model's answer.
	Chunk(turnID string, attempt int, chunk provider.StreamChunk)

	// Again reports that the request to the model is retried: the following pieces are of a new
	// answer.
	Again(turnID string)

	// ToolStarted reports an attempt at a call that is recorded and about to begin.
	ToolStarted(call event.ToolCallScheduled)

	// ToolEnded reports the outcome of an attempt: its result as canonical JSON, or its failure.
	ToolEnded(call event.ToolCallScheduled, result json.RawMessage, err *CallError)
}

// Tracer makes spans of the events of a live run. It must be safe for concurrent use.
type Tracer interface {
	// Recorded receives each event in order, once the log has taken it.
	Recorded(ev event.Event)

	// Within returns the context for an attempt at a call or, for an empty id, for a request to the
	// model.
	Within(ctx context.Context, callID string) context.Context
}

// FileTool is a sandboxed tool that may look for the files of its calls.
type FileTool interface {
	tool.Tool
	FindsFiles() bool
}

// FindsFiles reports whether a tool, or the one that it wraps, looks for the files of its calls.
func FindsFiles(t tool.Tool) bool {
	finder, ok := tool.Inside[FileTool](t)
	return ok && finder.FindsFiles()
}

// Registry is an immutable set of tools by name.
type Registry struct {
	tools map[string]*callee
}

// callee is a tool as calls need it: without its guards.
type callee struct {
	tool      tool.Tool
	parsed    ParsedTool // the same tool, or nil
	guards    []tool.Guard
	sandboxed bool // it is sandboxed, or what it wraps is
	files     bool // it looks for the files of its calls
	confined  bool // it is sandboxed itself, so all of its code can act through this package alone
}

// NewRegistry returns a Registry of the given tools. If two have the same name, the later one wins.
func NewRegistry(tools ...tool.Tool) *Registry {
	byName := make(map[string]*callee, len(tools))
	for _, t := range tools {
		inner, guards := tool.Unguard(t)
		parsed, _ := inner.(ParsedTool)
		_, itself := inner.(tool.Sandboxed)
		sandboxed := tool.SandboxOf(inner) != nil
		byName[t.Name()] = &callee{inner, parsed, guards, sandboxed, FindsFiles(inner), sandboxed && itself}
	}
	return &Registry{tools: byName}
}

// lookup returns the tool with this name, or nil. A nil Registry has no tools.
func (r *Registry) lookup(name string) *callee {
	if r == nil {
		return nil
	}
	return r.tools[name]
}
