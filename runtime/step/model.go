package step

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/budget"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/tool"
)

// LLMCall asks the model and returns its answer, as the log has it.
//
// TurnStarted is recorded before the request leaves, with the hash of all that
// the model is told. The answer is streamed; when it is complete its reasoning
// is recorded as ReasoningEmitted, one for each block, and the rest as
// AssistantMessageCompleted. The arguments of tool uses are canonical JSON from
// here on, and call ids that the run has had before, or that not every provider
// would take back, are replaced.
//
// A request that brings no answer is recorded as well, as an effect with the name
// "model" that says what it cost, and is made again as Config.ModelAttempts allows;
// the last one is returned as a [*ModelError]. A cap of Config.Budget that is passed,
// by the prompt before a request, by the answer while it comes in, or by the clock,
// is recorded as BudgetExceeded and returned as [ErrBudgetExceeded]; then what had
// come of the answer is in the event.
//
// In a replay nobody is asked. LLMCall panics outside of a run, and in a live run
// without a Provider.
func LLMCall(ctx context.Context, req *provider.Request) (*provider.Response, error) {
	s := mustScope(ctx, "LLMCall")
	if s.attempt.callID != "" {
		return nil, fmt.Errorf("%w: the model is asked from within call %s; a tool that asks one is a run of its own", ErrInvalidCall, s.attempt.callID)
	}
	if !s.c.replaying() && s.c.cfg.Provider == nil {
		panic("step: LLMCall without a Config.Provider")
	}
	t := &turn{scope: s, req: req}
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	if s.c.replaying() {
		return t.recall(ctx)
	}
	if err := s.c.barrier(ctx); err != nil {
		return nil, err
	}
	return t.ask(ctx)
}

// turnIDKey is the key of WithTurnID.
type turnIDKey struct{}

// WithTurnID returns a context in which a live [LLMCall] records its turn under an
// id that the caller has chosen, see [event.NewID]; for whoever has to name the turn
// before it begins. It is for one call.
func WithTurnID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, turnIDKey{}, id)
}

// turn is one exchange with the model.
type turn struct {
	*scope
	req       *provider.Request
	estimate  int64 // tokens of the request
	id        string
	reasoning []provider.Reasoning // recorded so far
}

// begin checks the budget and records that the model is about to be asked.
func (t *turn) begin(ctx context.Context) error {
	hash, err := t.req.Hash()
	if err != nil {
		return fmt.Errorf("step: the request cannot be hashed: %w", err)
	}
	t.estimate = budget.EstimateInput(t.req)
	if err := t.afford(ctx); err != nil {
		return err
	}
	id, chosen := ctx.Value(turnIDKey{}).(string)
	if !chosen {
		id = event.NewID()
	}
	started := event.TurnStarted{TurnID: id, PromptHash: hash[:], InputTokens: t.estimate}
	started, err = record(ctx, t.scope, started, func(now *event.TurnStarted, recorded event.TurnStarted) error {
		now.TurnID = recorded.TurnID
		return nil
	})
	t.id = started.TurnID
	return err
}

// afford ends the run if the request takes it past its cap on input tokens.
func (t *turn) afford(ctx context.Context) error {
	t.c.mu.Lock()
	exceeded := t.c.meter.BeforeCall(t.estimate)
	t.c.mu.Unlock()
	if exceeded != nil {
		return t.trip(ctx, exceeded, event.BudgetExceeded{TurnID: t.id})
	}
	return nil
}

// ask makes attempts until there is an answer, or no attempt is left.
func (t *turn) ask(ctx context.Context) (*provider.Response, error) {
	for attempt := 1; ; attempt++ {
		if attempt > 1 { // the attempts before it may have cost something
			if err := t.afford(ctx); err != nil {
				return nil, err
			}
		}
		began := t.c.clock()
		ctx, after := provider.WithRetryAfter(ctx)
		a, err := t.stream(ctx, attempt)
		t.measure(a, err, began)
		if err == nil {
			return t.answered(ctx, a)
		}
		t.c.mu.Lock()
		t.c.meter.Abandoned()
		t.c.mu.Unlock()
		exceeded := t.c.outOfTime(ctx)
		if usage, ok := errors.AsType[*budget.Exceeded](err); ok {
			exceeded = usage
		}
		if exceeded != nil {
			return nil, t.trip(ctx, exceeded, event.BudgetExceeded{
				TurnID: t.id, PartialText: a.partial(), PartialTokens: a.usage.OutputTokens,
			})
		}
		failure := t.failure(ctx, attempt, a, err, after.Wait())
		if err := t.recordFailure(ctx, failure); err != nil {
			return nil, err
		}
		if failure.Final {
			return nil, &ModelError{Failure: failure, Err: err}
		}
		t.wait(ctx, failure)
	}
}

// stream makes one attempt. What has come of the answer is returned with an error
// too.
func (t *turn) stream(ctx context.Context, attempt int) (a *answer, err error) {
	a = &answer{}
	defer tool.Recover(&err)
	stream, err := t.c.cfg.Provider.Stream(context.WithValue(ctx, scopeKey{}, (*scope)(nil)), t.req)
	if err != nil {
		return a, err
	}
	defer stream.Close()
	for {
		chunk, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) && a.end == nil {
			return a, invalid("it ends without an end")
		}
		if errors.Is(err, io.EOF) {
			return a, t.usable(a)
		}
		if err == nil {
			err = t.take(ctx, a, attempt, chunk)
		}
		if err != nil {
			return a, err
		}
	}
}

// take adds a chunk to the answer, and holds the budget against it.
func (t *turn) take(ctx context.Context, a *answer, attempt int, chunk provider.StreamChunk) error {
	if err := a.add(chunk); err != nil {
		return err
	}
	if o := t.c.cfg.Observer; o != nil {
		o.Chunk(t.id, attempt, chunk)
	}
	if chunk.Kind != provider.ChunkUsage {
		return nil
	}
	usd := t.c.cost(ctx, t.req.Model, a.usage)
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return t.c.meter.Usage(a.usage, usd)
}

// usable refuses an answer without the hash that the configuration asks for.
func (t *turn) usable(a *answer) error {
	if t.c.cfg.RequireRawResponseHash && len(a.end.RawResponseHash) != hashBytes {
		return ErrMissingRawResponseHash
	}
	return nil
}

// hashBytes is the length of a BLAKE3-256.
const hashBytes = 32

// answered records a complete answer.
func (t *turn) answered(ctx context.Context, a *answer) (*provider.Response, error) {
	for _, block := range a.reasoning {
		block.TurnID, block.Content = t.id, strings.ToValidUTF8(block.Content, string(utf8.RuneError))
		if err := t.recordReasoning(ctx, block); err != nil {
			return nil, err
		}
	}
	return t.recordAnswer(ctx, event.AssistantMessageCompleted{
		TurnID: t.id, Text: a.partial(), ToolUses: a.planned(t.c.freeCallID), StopReason: recordable(a.end.StopReason),
		InputTokens: a.usage.InputTokens, OutputTokens: a.usage.OutputTokens,
		CacheReadTokens: a.usage.CacheReadTokens, CacheCreateTokens: a.usage.CacheCreateTokens,
		CostUSD: t.c.cost(ctx, t.req.Model, a.usage), RawResponseHash: a.end.RawResponseHash,
		ProviderRequestID: recordable(a.end.RequestID),
	})
}

// partial is the text so far.
func (a *answer) partial() string {
	return strings.ToValidUTF8(a.text.String(), string(utf8.RuneError))
}

func (t *turn) recordReasoning(ctx context.Context, block event.ReasoningEmitted) error {
	block, err := record(ctx, t.scope, block, func(now *event.ReasoningEmitted, recorded event.ReasoningEmitted) error {
		id := now.TurnID
		*now = recorded
		now.TurnID = id
		return nil
	})
	t.reasoning = append(t.reasoning, provider.Reasoning{Content: block.Content, Signature: block.Signature, Redacted: block.Redacted})
	return err
}

// recordAnswer records the answer, and returns it as the log has it.
func (t *turn) recordAnswer(ctx context.Context, completed event.AssistantMessageCompleted) (*provider.Response, error) {
	completed, err := record(ctx, t.scope, completed, func(now *event.AssistantMessageCompleted, recorded event.AssistantMessageCompleted) error {
		id := now.TurnID
		*now = recorded
		now.TurnID = id
		if t.c.cfg.Prices != nil {
			now.CostUSD = t.c.cost(ctx, t.req.Model, usageOf(recorded))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r := &provider.Response{
		TurnID: completed.TurnID, Text: completed.Text, Reasoning: t.reasoning, StopReason: completed.StopReason,
		Usage: usageOf(completed), CostUSD: completed.CostUSD,
		RawResponseHash: completed.RawResponseHash, RequestID: completed.ProviderRequestID,
	}
	r.ToolUses, err = ToolUses(completed.ToolUses)
	return r, err
}

// ToolUses returns recorded tool uses as a provider gets them back.
func ToolUses(planned []event.PlannedToolUse) ([]provider.ToolUse, error) {
	var uses []provider.ToolUse
	for _, u := range planned {
		args, err := canon.ToJSON(u.Args)
		if err != nil {
			return nil, fmt.Errorf("step: arguments of the tool use %q: %w", u.CallID, err)
		}
		uses = append(uses, provider.ToolUse{CallID: u.CallID, Name: u.ToolName, Args: args})
	}
	return uses, nil
}

func usageOf(p event.AssistantMessageCompleted) provider.Usage {
	return provider.Usage{
		InputTokens: p.InputTokens, OutputTokens: p.OutputTokens,
		CacheReadTokens: p.CacheReadTokens, CacheCreateTokens: p.CacheCreateTokens,
	}
}

// recall follows the recording through the turn.
func (t *turn) recall(ctx context.Context) (*provider.Response, error) {
	for {
		ev := t.c.peek("")
		if failure, ok := modelFailure(ev); ok {
			if err := t.recordFailure(ctx, failure); err != nil {
				return nil, err
			}
			if failure.Final {
				return nil, &ModelError{Failure: failure, Err: errors.New(failure.Error)}
			}
			continue
		}
		switch {
		case ev != nil && ev.Kind == event.KindReasoningEmitted:
			if err := t.recordReasoning(ctx, event.ReasoningEmitted{TurnID: t.id}); err != nil {
				return nil, err
			}
		case ev != nil && ev.Kind == event.KindBudgetExceeded:
			return nil, t.recallTrip(ctx, *ev, t.id)
		default:
			return t.recordAnswer(ctx, event.AssistantMessageCompleted{TurnID: t.id})
		}
	}
}

// mostAfter bounds how long a server is left alone because it asks for that, as it does
// in the vendors' own SDKs. One that asks for more is asked again as one that says nothing.
const mostAfter = time.Minute

// failure describes an attempt without an answer. Another one comes no sooner than after,
// which the server asked for.
func (t *turn) failure(ctx context.Context, attempt int, a *answer, err error, after time.Duration) event.ModelFailure {
	f := event.ModelFailure{
		TurnID: t.id, Attempt: uint32(attempt), Class: modelClass(ctx, err),
		Error: recordable(err.Error()), PartialText: a.partial(), Final: true,
		InputTokens: a.usage.InputTokens, OutputTokens: a.usage.OutputTokens, CostUSD: t.c.cost(ctx, t.req.Model, a.usage),
	}
	if attempt < t.c.cfg.ModelAttempts && ctx.Err() == nil && provider.Transient(err) {
		wait := DefaultBackoff(attempt, rand.Uint64())
		if after <= mostAfter {
			wait += after
		}
		f.Final, f.WaitMs = false, wait.Milliseconds()
	}
	return f
}

// modelFailure decodes a recorded failure; it is false for any other event.
func modelFailure(ev *event.Event) (f event.ModelFailure, ok bool) {
	if ev == nil || ev.Kind != event.KindSideEffectRecorded {
		return f, false
	}
	effect, err := ev.AsSideEffectRecorded()
	f, ok = effect.ModelFailure()
	return f, ok && err == nil
}

func (t *turn) recordFailure(ctx context.Context, f event.ModelFailure) error {
	f.TurnID = t.id
	value, err := canon.Marshal(f)
	if err != nil {
		return fmt.Errorf("step: failure of the model: %w", err)
	}
	effect := event.SideEffectRecorded{Name: event.EffectModel, Value: value}
	_, err = record(ctx, t.scope, effect, func(*event.SideEffectRecorded, event.SideEffectRecorded) error { return nil })
	return err
}

// wait waits before another attempt, no longer than ctx lasts.
func (t *turn) wait(ctx context.Context, f event.ModelFailure) {
	if o := t.c.cfg.Observer; o != nil {
		o.Again(t.id)
	}
	wait := time.Duration(f.WaitMs) * time.Millisecond
	t.c.log(ctx, slog.LevelWarn, "the model will be asked again",
		slog.String("turn_id", f.TurnID), slog.Int("attempt", int(f.Attempt)), slog.String("class", f.Class), slog.Duration("wait", wait))
	pause(ctx, wait)
}

// measure reports an attempt.
func (t *turn) measure(a *answer, err error, began time.Time) {
	if m := t.c.cfg.Metrics; m != nil {
		m.ObserveProviderCall(t.req.Model, status(err), max(t.c.clock().Sub(began), 0), a.usage.InputTokens, a.usage.OutputTokens)
	}
}
