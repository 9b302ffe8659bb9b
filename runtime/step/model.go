package step

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/tool"
)

// LLMCall asks the model and returns its answer as the log has it.
//
// TurnStarted is recorded before the request leaves, with the hash of everything that the request
// sends to the model. The answer is streamed. When it is complete, its reasoning is recorded as
// ReasoningEmitted, one event for each block, and the rest as AssistantMessageCompleted. The
// arguments of tool uses become canonical JSON. Call ids that the run has used before, or that some
// provider would not accept in a history, are replaced.
//
// A request without an answer is recorded as well, as an effect with the name "model" and its cost.
// It is retried up to Config.ModelAttempts; the last failure is returned as a [*ModelError]. If a
// cap of Config.Budget is exceeded, by the prompt before a request, by the answer as it arrives, or
// by the clock, it is recorded as BudgetExceeded, with the received part of the answer, and
// returned as [ErrBudgetExceeded].
//
// A replay does not ask the provider. LLMCall panics outside of a run, and in a live run without a
// Provider.
func LLMCall(ctx context.Context, req *provider.Request) (*provider.Response, error) {
	a := attemptOf(ctx, "LLMCall")
	if a.callID != "" {
		return nil, fmt.Errorf("%w: the model is asked from within call %s; a tool that asks one is a run of its own", ErrInvalidCall, a.callID)
	}
	if !a.c.replaying() && a.c.cfg.Provider == nil {
		panic("step: LLMCall without a Config.Provider")
	}
	t := &turn{Attempt: a, req: req}
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	if a.c.replaying() {
		return t.recall(ctx)
	}
	if err := a.c.barrier(ctx); err != nil {
		return nil, err
	}
	return t.ask(ctx)
}

// turn is one exchange with the model.
type turn struct {
	*Attempt
	req       *provider.Request
	estimate  int64 // tokens of the request
	id        string
	reasoning []provider.Reasoning // recorded so far
}

// begin checks the budget and records the start of the turn.
func (t *turn) begin(ctx context.Context) error {
	apart, images := t.req.ImagesApart()
	if images > 0 && t.c.replaying() { // older runs have images in the text
		if ev := t.c.peek(""); ev != nil && t.hasImagesInText(*ev) {
			apart, images = t.req, 0
		}
	}
	t.req = apart
	hash, err := t.req.Hash()
	if err != nil {
		return fmt.Errorf("step: the request cannot be hashed: %w", err)
	}
	t.estimate = budget.EstimateInput(t.req)
	if err := t.afford(ctx); err != nil {
		return err
	}
	started := event.TurnStarted{TurnID: event.NewID(), PromptHash: hash[:], InputTokens: t.estimate, Images: uint32(images)}
	started, err = record(ctx, t.Attempt, started, func(now *event.TurnStarted, recorded event.TurnStarted) error {
		now.TurnID = recorded.TurnID
		return nil
	})
	t.id = started.TurnID
	return err
}

// hasImagesInText reports whether the recorded turn, or the recorded trip of the budget, counts
// images as text.
func (t *turn) hasImagesInText(ev event.Event) bool {
	if ev.Kind == event.KindTurnStarted {
		recorded, err := ev.AsTurnStarted()
		return err == nil && recorded.Images == 0
	}
	recorded, err := ev.AsBudgetExceeded()
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	exceeded, ok := errors.AsType[*budget.Exceeded](t.c.meter.BeforeCall(budget.EstimateInput(t.req)))
	return err == nil && ok && exceeded.Event().Actual == recorded.Actual
}

// afford ends the run if the request exceeds its cap on input tokens.
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
		if attempt > 1 { // earlier attempts may have had a cost
			if err := t.afford(ctx); err != nil {
				return nil, err
			}
		}
		began := t.c.clock()
		ctx, after := provider.WithRetryAfter(ctx)
		a, err := t.stream(ctx, attempt)
		if m := t.c.cfg.Metrics; m != nil {
			m.ObserveProviderCall(t.req.Model, status(err), max(t.c.clock().Sub(began), 0), a.usage.InputTokens, a.usage.OutputTokens)
		}
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

// stream makes one attempt. It returns the received part of the answer with an error too.
func (t *turn) stream(ctx context.Context, attempt int) (a *answer, err error) {
	plain, own := t.req.PlainNames() // the log does not have them
	a = &answer{own: own}
	defer tool.Recover(&err)
	if tracer := t.c.cfg.Tracer; tracer != nil {
		ctx = tracer.Within(ctx, "")
	}
	stream, err := t.c.cfg.Provider.Stream(context.WithValue(ctx, attemptKey{}, (*Attempt)(nil)), plain)
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
			if t.c.cfg.RequireRawResponseHash && len(a.end.RawResponseHash) != len(canon.Hash{}) {
				return a, ErrMissingRawResponseHash
			}
			return a, a.broken(t.req)
		}
		if err == nil {
			err = t.take(ctx, a, attempt, chunk)
		}
		if err != nil {
			return a, err
		}
	}
}

// take adds a chunk to the answer and checks the budget.
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

// answered records a complete answer.
func (t *turn) answered(ctx context.Context, a *answer) (*provider.Response, error) {
	for _, block := range a.reasoning {
		block.TurnID, block.Content = t.id, strings.ToValidUTF8(block.Content, string(utf8.RuneError))
		if err := t.recordReasoning(ctx, block); err != nil {
			return nil, err
		}
	}
	return t.recordAnswer(ctx, event.AssistantMessageCompleted{
		TurnID: t.id, Text: a.partial(), ToolUses: t.planned(a.uses), StopReason: recordable(a.end.StopReason),
		InputTokens: a.usage.InputTokens, OutputTokens: a.usage.OutputTokens,
		CacheReadTokens: a.usage.CacheReadTokens, CacheCreateTokens: a.usage.CacheCreateTokens,
		CostUSD: t.c.cost(ctx, t.req.Model, a.usage), RawResponseHash: a.end.RawResponseHash,
		ProviderRequestID: recordable(a.end.RequestID), Outcome: provider.OutcomeOf(a.end.StopReason),
	})
}

// partial is the text so far.
func (a *answer) partial() string {
	return strings.ToValidUTF8(a.text.String(), string(utf8.RuneError))
}

func (t *turn) recordReasoning(ctx context.Context, block event.ReasoningEmitted) error {
	block, err := record(ctx, t.Attempt, block, func(now *event.ReasoningEmitted, recorded event.ReasoningEmitted) error {
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
	completed, err := record(ctx, t.Attempt, completed, func(now *event.AssistantMessageCompleted, recorded event.AssistantMessageCompleted) error {
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
		TurnID: completed.TurnID, Text: completed.Text, Reasoning: t.reasoning, StopReason: completed.StopReason, Outcome: completed.Outcome,
		Usage: usageOf(completed), CostUSD: completed.CostUSD,
		RawResponseHash: completed.RawResponseHash, RequestID: completed.ProviderRequestID,
	}
	r.ToolUses, err = ToolUses(completed.ToolUses)
	return r, err
}

func usageOf(p event.AssistantMessageCompleted) provider.Usage {
	return provider.Usage{
		InputTokens: p.InputTokens, OutputTokens: p.OutputTokens,
		CacheReadTokens: p.CacheReadTokens, CacheCreateTokens: p.CacheCreateTokens,
	}
}

// ToolUses returns recorded tool uses in the form that a provider accepts.
func ToolUses(planned []event.PlannedToolUse) ([]provider.ToolUse, error) {
	var uses []provider.ToolUse
	for _, u := range planned {
		args, err := canon.ToJSON(u.Args)
		if err != nil {
			return nil, fmt.Errorf("step: arguments of the tool use %q: %w", u.CallID, err)
		}
		uses = append(uses, provider.ToolUse{CallID: u.CallID, Name: u.ToolName, Args: args, Malformed: u.Malformed})
	}
	return uses, nil
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

// maxRetryAfter bounds how long a server may ask to be left alone, as in the vendors' own SDKs. A longer
// request is ignored.
const maxRetryAfter = time.Minute

// failure describes an attempt without an answer. The next attempt waits at least for after, as the
// server asked.
func (t *turn) failure(ctx context.Context, attempt int, a *answer, err error, after time.Duration) event.ModelFailure {
	f := event.ModelFailure{
		TurnID: t.id, Attempt: uint32(attempt), Class: modelClass(ctx, err),
		Error: recordable(err.Error()), PartialText: a.partial(), Final: true,
		InputTokens: a.usage.InputTokens, OutputTokens: a.usage.OutputTokens, CostUSD: t.c.cost(ctx, t.req.Model, a.usage),
	}
	if attempt < t.c.cfg.ModelAttempts && ctx.Err() == nil && provider.Transient(err) {
		wait := DefaultBackoff(attempt, rand.Uint64())
		if after <= maxRetryAfter {
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
	_, err = record(ctx, t.Attempt, effect, func(*event.SideEffectRecorded, event.SideEffectRecorded) error { return nil })
	return err
}

// wait waits before another attempt, or until ctx ends.
func (t *turn) wait(ctx context.Context, f event.ModelFailure) {
	if o := t.c.cfg.Observer; o != nil {
		o.Again(t.id)
	}
	wait := time.Duration(f.WaitMs) * time.Millisecond
	t.c.log(ctx, slog.LevelWarn, "retrying the request to the model",
		slog.String("turn_id", f.TurnID), slog.Int("attempt", int(f.Attempt)), slog.String("class", f.Class), slog.Duration("wait", wait))
	await.Pause(ctx, wait)
}

var (
	// ErrBudgetExceeded is wrapped by the error of a run that has exceeded a cap. The
	// BudgetExceeded event names the cap.
	ErrBudgetExceeded = errors.New("step: budget exceeded")

	// ErrInvalidStream is wrapped by the error of a provider that broke the rules
	// of a stream.
	ErrInvalidStream = errors.New("step: invalid provider stream")

	// ErrMissingRawResponseHash means that Config.RequireRawResponseHash is set, and the provider
	// returned no hash of the response.
	ErrMissingRawResponseHash = errors.New("step: provider returned empty RawResponseHash")

	errAnswerTooLarge = fmt.Errorf("step: %w", tool.ErrLimit)
)

// ModelError is a turn without an answer, as recorded in the log. In a replay Err has only the
// recorded text.
type ModelError struct {
	Failure event.ModelFailure // of the last attempt
	Err     error
}

// Error returns the recorded text.
func (e *ModelError) Error() string { return e.Failure.Error }

// Unwrap returns the provider's own error.
func (e *ModelError) Unwrap() error { return e.Err }

// Is reports whether target is the sentinel of the failure's class.
func (e *ModelError) Is(target error) bool {
	return slices.Contains(modelClasses, class{e.Failure.Class, target})
}

// modelClasses are the classes of failure as they are recorded.
var modelClasses = []class{
	{"rate_limit", provider.ErrRateLimit},
	{"auth", provider.ErrAuth},
	{"server", provider.ErrServer},
	{"network", provider.ErrNetwork},
	{"invalid_stream", ErrInvalidStream},
	{"no_hash", ErrMissingRawResponseHash},
	{event.ErrorLimit, tool.ErrLimit},
	{event.ErrorPanic, tool.ErrPanicked},
	{event.ErrorCancelled, context.Canceled},
	{event.ErrorTimeout, context.DeadlineExceeded},
}

// modelClass classifies the error of an attempt. The end of ctx takes precedence over the
// provider's own error.
func modelClass(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return interruptionType(ctx.Err())
	}
	for _, c := range modelClasses {
		if errors.Is(err, c.sentinel) && !isInterruption(c.name) {
			return c.name
		}
	}
	return "provider"
}

// The bounds on one answer of a model. The rest of an event is for other fields.
const (
	maxAnswerBytes = maxValueBytes / 4 // of text, reasoning and arguments together; the log has them at most twice
	maxToolUses    = 1000
	maxToolName    = 256
)

// answer collects the chunks of a response and holds them to the rules: a tool use
// begins once and ends, and nothing follows the end.
type answer struct {
	text      strings.Builder
	reasoning []event.ReasoningEmitted
	open      bool // the last block of reasoning continues
	uses      []*use
	own       map[string]string // tool names by the names in the request
	bytes     int
	usage     provider.Usage
	end       *provider.StreamChunk // nil before the end
}

// use is a tool use as it arrives.
type use struct {
	id, name string
	args     strings.Builder
	ended    bool
}

// add takes a chunk. The error wraps [ErrInvalidStream], or means that the answer is too large.
func (a *answer) add(chunk provider.StreamChunk) error {
	if a.end != nil {
		return invalid("%s after the end", chunk.Kind)
	}
	if chunk.Kind != provider.ChunkReasoning {
		a.open = false
	}
	switch chunk.Kind {
	case provider.ChunkText:
		a.text.WriteString(chunk.Text)
		return a.grow(len(chunk.Text))
	case provider.ChunkReasoning, provider.ChunkRedactedThinking:
		return a.think(chunk)
	case provider.ChunkToolUseStart, provider.ChunkToolUseDelta, provider.ChunkToolUseEnd:
		return a.use(chunk)
	case provider.ChunkUsage:
		return a.count(chunk.Usage)
	case provider.ChunkEnd:
		return a.finish(chunk)
	}
	return invalid("a chunk of kind %d", chunk.Kind)
}

// invalid is an error of a stream that breaks the rules.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidStream, fmt.Sprintf(format, args...))
}

func (a *answer) grow(n int) error {
	if a.bytes += n; a.bytes > maxAnswerBytes {
		return fmt.Errorf("%w: an answer of more than %d bytes", errAnswerTooLarge, maxAnswerBytes)
	}
	return nil
}

// think takes a piece of reasoning. A block ends with its signature, or with the
// next chunk of another kind.
func (a *answer) think(chunk provider.StreamChunk) error {
	redacted := chunk.Kind == provider.ChunkRedactedThinking
	if !a.open || redacted {
		a.reasoning = append(a.reasoning, event.ReasoningEmitted{Sensitive: true, Redacted: redacted})
	}
	last := &a.reasoning[len(a.reasoning)-1]
	last.Content += chunk.Text
	last.Signature = append(last.Signature, chunk.Signature...)
	a.open = !redacted && len(chunk.Signature) == 0
	return a.grow(len(chunk.Text) + len(chunk.Signature))
}

func (a *answer) use(chunk provider.StreamChunk) error {
	if chunk.ToolUse == nil {
		return invalid("%s without a tool use", chunk.Kind)
	}
	if chunk.Kind == provider.ChunkToolUseStart {
		return a.begin(chunk.ToolUse)
	}
	u := a.find(chunk.ToolUse.CallID)
	if u == nil || u.ended {
		return invalid("%s of %q, which is not open", chunk.Kind, chunk.ToolUse.CallID)
	}
	u.ended = chunk.Kind == provider.ChunkToolUseEnd
	u.args.WriteString(chunk.ToolUse.ArgsDelta)
	return a.grow(len(chunk.ToolUse.ArgsDelta))
}

func (a *answer) begin(piece *provider.ToolUseChunk) error {
	switch {
	case a.find(piece.CallID) != nil:
		return invalid("the tool use %q begins twice", piece.CallID)
	case len(a.uses) == maxToolUses:
		return fmt.Errorf("%w: more than %d tool uses", errAnswerTooLarge, maxToolUses)
	case len(piece.Name) > maxToolName:
		return fmt.Errorf("%w: a tool's name of %d bytes", errAnswerTooLarge, len(piece.Name))
	}
	u := &use{id: piece.CallID, name: strings.ToValidUTF8(cmp.Or(a.own[piece.Name], piece.Name), string(utf8.RuneError))}
	u.args.WriteString(piece.ArgsDelta)
	a.uses = append(a.uses, u)
	return a.grow(len(piece.CallID) + len(piece.Name) + len(piece.ArgsDelta))
}

func (a *answer) find(id string) *use {
	for _, u := range a.uses {
		if u.id == id {
			return u
		}
	}
	return nil
}

func (a *answer) count(u *provider.Usage) error {
	if u == nil {
		return invalid("usage without counts")
	}
	if u.InputTokens < 0 || u.OutputTokens < 0 || u.CacheReadTokens < 0 || u.CacheCreateTokens < 0 {
		return invalid("usage below zero: %+v", *u)
	}
	a.usage = *u
	return nil
}

func (a *answer) finish(chunk provider.StreamChunk) error {
	for _, u := range a.uses {
		if !u.ended {
			return invalid("the tool use %q has no end", u.id)
		}
	}
	a.end = &chunk
	return nil
}

// broken returns the error of a finished answer that must be requested again, because its provider
// reports it as broken, or it is empty. Text after a stop sequence is left out, so an answer that
// begins with one is empty.
func (a *answer) broken(req *provider.Request) error {
	why := ""
	switch outcome := provider.OutcomeOf(a.end.StopReason); {
	case outcome == provider.AnswerBroken:
	case outcome != "" || len(a.uses) > 0:
		return nil
	case slices.Contains([]string{"tool_calls", "tool_use", "function_call"}, a.end.StopReason):
		why = ", and it calls no tool"
	case a.text.Len() > 0 || len(req.StopSequences) > 0:
		return nil
	default:
		why = ", and it has neither text nor a tool call"
	}
	return fmt.Errorf("%w: the answer is broken: the provider's reason is %q%s", provider.ErrServer, recordable(a.end.StopReason), why)
}

// planned returns the tool uses in recorded form. A use whose id the run has used before gets another one.
func (t *turn) planned(uses []*use) []event.PlannedToolUse {
	var all []event.PlannedToolUse
	for _, u := range uses {
		planned := event.PlannedToolUse{CallID: u.id, ToolName: u.name}
		t.c.mu.Lock()
		_, used := t.c.callIDs[u.id]
		t.c.mu.Unlock()
		if used || !plainID().MatchString(u.id) {
			planned.CallID = NewCallID()
		}
		planned.Args, planned.Malformed = argsOf(u.args.String())
		all = append(all, planned)
	}
	return all
}

// plainID matches ids that every provider accepts in a history.
var plainID = lazy.Regexp(`^[a-zA-Z0-9_-]{1,64}$`)

// argsOf returns the arguments that a model wrote, in canonical form, and the reason if they are
// not an object. Empty text means no arguments. Text that is not JSON is recorded as a string: it
// can be shown to the model again, and no tool accepts it as an object.
func argsOf(text string) (args canon.Raw, malformed string) {
	if strings.TrimSpace(text) == "" {
		return canon.AppendMap(nil, 0), ""
	}
	doc, err := ParseInput([]byte(text), nil)
	if err != nil {
		return canon.AppendText(nil, strings.ToValidUTF8(text, string(utf8.RuneError))), recordable(err.Error())
	}
	if bad := tool.CheckObject(doc); bad != nil {
		malformed = bad.Error()
	}
	return doc.CBOR, malformed
}
