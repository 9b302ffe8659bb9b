package step

import (
	"encoding/json"
	"log/slog"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/tool"
)

// Mode selects between acting and re-enacting.
type Mode uint8

const (
	// ModeLive, the zero value: effects happen and are recorded.
	ModeLive Mode = iota
	// ModeReplay: effects are answered from Config.Recorded, nothing happens
	// and nothing is appended.
	ModeReplay
)

// DefaultToolTimeout bounds an attempt at a native tool unless Config.ToolTimeout
// says otherwise.
const DefaultToolTimeout = 5 * time.Minute

// DefaultMaxParallelTools is the number of tools that [CallTools] runs at the
// same time unless Config.MaxParallelTools says otherwise.
const DefaultMaxParallelTools = 8

// Config is what a [Context] needs to know. RunID is always required, Log in
// live mode, Recorded in replay mode.
type Config struct {
	// Log receives the events of a live run. A replay does not touch it.
	Log eventlog.EventLog

	// RunID is the run's identity, see [event.NewID].
	RunID string

	// Tools are the tools that can be called. Nil means none: every call fails
	// with [ErrToolNotFound].
	Tools *Registry

	// Provider is asked by [LLMCall]. A replay does not need it.
	Provider provider.Provider

	// ModelAttempts bounds the attempts at a turn when the provider fails with
	// something that may pass, see [provider.Transient]. Zero means one.
	ModelAttempts int

	// RequireRawResponseHash refuses an answer of which the provider does not
	// say what it had received.
	RequireRawResponseHash bool

	// Budget bounds what the run may spend. The zero value bounds nothing.
	Budget budget.Limits

	// Prices say what tokens cost. With them a replay computes costs again and
	// compares them. Nil means the table of the process, which changes; then a
	// replay takes the recorded costs.
	Prices budget.Prices

	// Earlier are the events of a run that is resumed: all of them, checked. The
	// Context stands behind them. Nil for a run from its start.
	Earlier []event.Event

	// Mode is [ModeLive] by default.
	Mode Mode

	// Recorded is the recording that a replay follows: the run's events behind
	// Earlier, which must have passed [eventlog.Check]. Not used in live mode.
	Recorded []event.Event

	// Matched, unless it is nil, is told of each recorded event that the replay has
	// arrived at and found the same, in that order.
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

	// ToolTimeout bounds an attempt at a native tool, which has to look at its
	// context for that. A sandboxed one has a limit of its own. Zero means
	// [DefaultToolTimeout], below zero no bound.
	ToolTimeout time.Duration

	// Logger is told what a live run does; each record has the run_id, and none has
	// text that a user, a model or a tool wrote. Nil discards.
	Logger *slog.Logger

	// Metrics is told about live calls and appends. Nil disables it.
	Metrics MetricsSink

	// Observer is told what a live run does while it does it. Nil for none.
	Observer Observer

	// EmitTimeout bounds each append and each barrier, which otherwise do not
	// end when the run is cancelled, because its outcome must still be written.
	// Zero means no bound.
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

// Observer watches a live run. Several goroutines call its methods at a time, and wait
// until they return.
type Observer interface {
	// Chunk tells of a piece of the model's answer.
	Chunk(turnID string, attempt int, chunk provider.StreamChunk)

	// Again reports that the request to the model is retried: the pieces that follow begin
	// the answer anew.
	Again(turnID string)

	// ToolStarted tells that an attempt at a call is recorded and about to begin.
	ToolStarted(call event.ToolCallScheduled)

	// ToolEnded tells of the outcome of an attempt: its result as canonical JSON,
	// or its failure.
	ToolEnded(call event.ToolCallScheduled, result json.RawMessage, err *CallError)
}

// Registry is an immutable set of tools by name.
type Registry struct {
	tools map[string]tool.Tool
}

// NewRegistry returns a Registry of the given tools. Of two tools with the same
// name the later one wins.
func NewRegistry(tools ...tool.Tool) *Registry {
	byName := make(map[string]tool.Tool, len(tools))
	for _, t := range tools {
		byName[t.Name()] = t
	}
	return &Registry{tools: byName}
}

// lookup returns the tool of that name, or nil. A nil Registry has no tools.
func (r *Registry) lookup(name string) tool.Tool {
	if r == nil {
		return nil
	}
	return r.tools[name]
}
