package step

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog/event"
)

// The operator's log says of a live run when it began, was resumed and ended (Info),
// what it retries and which cap it passed (Warn), and its turns and calls (Debug).
// Every record has the run_id. No record has text of a prompt, an answer, an
// argument, a result or an error: those are in the event log alone. What failed is
// told by its type, one of a closed set.

// maxLogged bounds a name in a record, in bytes.
const maxLogged = 128

// log writes one record.
func (c *Context) log(ctx context.Context, level slog.Level, msg string, attrs ...slog.Attr) {
	if !c.replaying() {
		c.logger.LogAttrs(ctx, level, msg, attrs...)
	}
}

// named returns an attribute for a name or a type; handlers leave an empty one out.
func named(key, value string) slog.Attr {
	if value == "" {
		return slog.Attr{}
	}
	return slog.String(key, strings.ToValidUTF8(value[:min(len(value), maxLogged)], ""))
}

// LogStarted writes that the run begins in this process. [Emit] does that for
// RunStarted; the caller does it for a run that was opened before.
func (c *Context) LogStarted(ctx context.Context, started event.RunStarted) {
	if started.ModelID != "" {
		c.log(ctx, slog.LevelInfo, "run started", named("model", started.ModelID))
		return
	}
	c.log(ctx, slog.LevelInfo, "run started", named("tool", started.Goal)) // a direct run: its goal is the tool's name
}

// LogEnded writes how the run ended, or, with a terminal of 0, that it stopped in
// this process without an end.
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

// logEvent writes what an event that was recorded tells an operator. payload is a
// pointer. Outcomes of calls are told by logCall.
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

// logCall writes what became of an attempt at a call. The name of a tool that is not
// there was made up by a model, and is not shown.
func (c *Context) logCall(ctx context.Context, level slog.Level, msg string, p *plan, attempt uint32, more ...slog.Attr) {
	name := "other"
	if p.tool != nil {
		name = p.Name
	}
	attrs := []slog.Attr{named("tool", name), named("call_id", p.CallID), slog.Uint64("attempt", uint64(attempt))}
	c.log(ctx, level, msg, append(attrs, more...)...)
}
