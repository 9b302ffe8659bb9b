package observe

import (
	"context"
	"log/slog"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/budget"
)

// RunLog writes the records of one run's life. Each has the run_id. What an
// operator wants to see of every run is at level Info, its turns and tools at
// Debug, and what needs attention at Warn. The zero value writes nothing.
type RunLog struct{ logger *slog.Logger }

// NewRunLog returns the RunLog of a run. Nil discards.
func NewRunLog(logger *slog.Logger, runID string) RunLog {
	if logger == nil {
		return RunLog{}
	}
	return RunLog{logger.With(keyRun, runID)}
}

// Logger returns the logger with the run_id, for records of the caller's own.
// It is never nil.
func (l RunLog) Logger() *slog.Logger {
	if l.logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l.logger
}

func (l RunLog) log(ctx context.Context, level slog.Level, msg string, attrs ...slog.Attr) {
	if l.logger != nil {
		l.logger.LogAttrs(ctx, level, msg, attrs...)
	}
}

// Started records the beginning of a run with a model.
func (l RunLog) Started(ctx context.Context, model string) {
	l.log(ctx, slog.LevelInfo, msgRunStarted, optionalString(keyModel, model))
}

// ToolRunStarted records the beginning of a run that is one call of a tool.
func (l RunLog) ToolRunStarted(ctx context.Context, tool string) {
	l.log(ctx, slog.LevelInfo, msgRunStarted, slog.String(keyTool, bounded(tool)))
}

// Resumed records that this process goes on with a run, after the event seq.
func (l RunLog) Resumed(ctx context.Context, seq uint64) {
	l.log(ctx, slog.LevelInfo, msgRunResumed, slog.Uint64(keySeq, seq))
}

// Ended records the end of a run with a model. A run that failed, or that stopped
// without a terminal event, is at level Warn.
func (l RunLog) Ended(ctx context.Context, terminal event.Kind, errorType string, d time.Duration, spent budget.Spent) {
	l.ended(ctx, terminal, errorType, d,
		slog.Int64(keyInput, spent.InputTokens), slog.Int64(keyOutput, spent.OutputTokens), slog.Float64(keyCost, spent.USD))
}

// ToolRunEnded is [RunLog.Ended] of a run that is one call of a tool.
func (l RunLog) ToolRunEnded(ctx context.Context, terminal event.Kind, errorType string, d time.Duration) {
	l.ended(ctx, terminal, errorType, d)
}

func (l RunLog) ended(ctx context.Context, terminal event.Kind, errorType string, d time.Duration, more ...slog.Attr) {
	level, name := slog.LevelInfo, ""
	if terminal != 0 {
		name = terminal.String()
	}
	if terminal != event.KindRunCompleted && terminal != event.KindRunCancelled {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{optionalString(keyTerminal, name), optionalString(keyErrorType, errorType), slog.Duration(keyDuration, d)}
	l.log(ctx, level, msgRunEnded, append(attrs, more...)...)
}

// TurnStarted records the beginning of a turn.
func (l RunLog) TurnStarted(ctx context.Context, turnID string) {
	l.log(ctx, slog.LevelDebug, msgTurnStarted, slog.String(keyTurn, turnID))
}

// TurnEnded records the answer that ended a turn.
func (l RunLog) TurnEnded(ctx context.Context, p event.AssistantMessageCompleted) {
	l.log(ctx, slog.LevelDebug, msgTurnEnded, slog.String(keyTurn, p.TurnID),
		slog.Int64(keyInput, p.InputTokens), slog.Int64(keyOutput, p.OutputTokens), slog.Float64(keyCost, p.CostUSD))
}

// ToolEnded records the end of an attempt; errorType is "" for a success.
func (l RunLog) ToolEnded(ctx context.Context, c ToolCall, errorType string, d time.Duration) {
	l.log(ctx, slog.LevelDebug, msgToolEnded, slog.String(keyTool, bounded(c.Tool)), slog.String(keyCall, bounded(c.CallID)),
		slog.Uint64(keyAttempt, uint64(c.Attempt)), optionalString(keyErrorType, errorType), slog.Duration(keyDuration, d))
}

// BudgetExceeded records that a cap was passed.
func (l RunLog) BudgetExceeded(ctx context.Context, e *budget.Exceeded) {
	l.log(ctx, slog.LevelWarn, msgBudgetExceeded, slog.String(keyLimit, e.Limit),
		slog.Float64(keyCap, e.Cap), slog.Float64(keyActual, e.Actual), slog.String(keyWhere, e.Where))
}

// NoPrice records that a run has a cap on dollars and its model no price; see
// [budget.Table.Missing].
func (l RunLog) NoPrice(ctx context.Context, model string) {
	l.log(ctx, slog.LevelWarn, msgNoPrice, slog.String(keyModel, bounded(model)))
}

// optionalString returns an attribute that handlers leave out if the value is
// empty.
func optionalString(key, value string) slog.Attr {
	if value == "" {
		return slog.Attr{}
	}
	return slog.String(key, bounded(value))
}
