package step

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog/event"
)

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
