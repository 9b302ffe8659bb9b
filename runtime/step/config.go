package step

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/tool"
)

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
		byName[t.Name()] = &callee{inner, parsed, guards, sandboxed, sandboxed && itself}
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
