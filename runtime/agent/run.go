package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/step"
)

// ErrMaxTurns is the error of a run whose model wanted to continue after its last turn.
var ErrMaxTurns = errors.New("starling: max turns exceeded")

// AnswerError ends a run whose model gave an incomplete answer. To continue, fork the log
// before the end of the run, and [Agent.Resume] with a message.
type AnswerError struct {
	Type       string // [event.ErrorRefused] or [event.ErrorCut]
	StopReason string // in the provider's own word
}

// Error describes the fate of the answer.
func (e *AnswerError) Error() string {
	if e.Type == event.ErrorCut {
		return fmt.Sprintf("the model's answer was cut off: the provider's reason is %q", e.StopReason)
	}
	return fmt.Sprintf("the model, or a filter of its provider, refused to answer: the provider's reason is %q", e.StopReason)
}

// Result is a run that ended in any way. The log has all of it.
type Result struct {
	RunID         string
	FinalText     string          // the model's answer; partial if it was cut off or refused
	StopReason    string          // of the last answer, in the provider's own word; empty for none
	Output        json.RawMessage // of a direct run: canonical JSON; nil unless the run completed
	TurnCount     int
	ToolCallCount int // without further attempts
	TotalCostUSD  float64
	InputTokens   int64
	OutputTokens  int64
	Duration      time.Duration // a replay gives the recorded one, in whole milliseconds
	TerminalKind  event.Kind    // RunCompleted, RunFailed or RunCancelled
	Error         string        // why the run did not complete, or empty
	Err           error         // of the tool of a direct run, if the tool failed or was refused
	ErrorType     string        // of RunFailed: an Error constant of package event
	MerkleRoot    []byte        // of the terminal event
	Events        uint64        // of the run, the terminal event included
	CacheStats    CacheStats
	Meter         event.Meter // the consumption of sandboxed tools
	Effects       int         // host calls
	BytesIn       int         // of encoded values that effects returned
	BytesOut      int         // of the requests that effects sent
}

// CacheStats counts hits and misses of the provider's prompt cache.
type CacheStats struct {
	Hits         int // answers that read from the cache
	Misses       int // answers that did not
	ReadTokens   int64
	CreateTokens int64
}

// Run makes a run under a fresh id. See [Agent.RunWithID].
func (a *Agent) Run(ctx context.Context, goal string) (*Result, error) {
	return a.RunWithID(ctx, a.newRunID(), goal)
}

// RunWithID makes one run: the model gets the goal, calls tools, and answers.
//
// If the run ended, the result is not nil and all of its events are durable. The error is
// nil if the run completed, and otherwise the reason: [step.ErrBudgetExceeded],
// [ErrMaxTurns], a [*step.ModelError], an [*AnswerError], or the error of ctx. A failing
// tool does not end the run: the model gets the error. Without a result the run was not
// begun, or it stays open because the host failed, and [Agent.Resume] can continue it.
func (a *Agent) RunWithID(ctx context.Context, runID, goal string) (*Result, error) {
	return a.run(ctx, runID, goal, nil)
}

// Opening returns the first event of a run that another process will make with
// [Agent.Continue]: once it is in the log, the run exists. The caller must store the
// modules of the tools first.
func (a *Agent) Opening(ctx context.Context, runID, goal string) (event.Event, error) {
	if err := a.canRun(goal); err != nil {
		return event.Event{}, err
	}
	a, err := a.prepared(ctx, a.Log, nil)
	if err != nil {
		return event.Event{}, err
	}
	return step.Opening(ctx, runID, a.started(goal), a.clock())
}

// canRun returns why the agent cannot work on a goal, or nil.
func (a *Agent) canRun(goal string) error {
	if a.direct {
		var err error
		a.doc, err = parsedInput(a.input, a.doc)
		return err
	}
	if err := a.Validate(); err != nil {
		return err
	}
	if !utf8.ValidString(goal) {
		return errors.New("starling: the goal is not UTF-8")
	}
	return nil
}

func (a *Agent) run(ctx context.Context, runID, goal string, o step.Observer) (*Result, error) {
	if err := a.canRun(goal); err != nil {
		return nil, err
	}
	if err := a.preflight(ctx); err != nil {
		return nil, err
	}
	a, err := a.prepared(ctx, a.Log, nil)
	if err != nil {
		return nil, err
	}
	started := a.started(goal)
	if err := modulesStored(ctx, a.Log, started.ToolSchemas); err != nil {
		return nil, err
	}
	ctx, trace := a.Tracer.StartRun(ctx, runID, nil)
	defer trace.End()
	c, err := step.NewContext(a.live(a.stepConfig(runID), o, trace))
	if err != nil {
		return nil, err
	}
	a.Metrics.RunStarted()
	return a.conduct(ctx, c, func(ctx context.Context) (*conversation, error) {
		return a.begin(goal), step.Emit(ctx, c, event.KindRunStarted, started)
	})
}

// conduct makes a live run from beginning to end.
func (a *Agent) conduct(ctx context.Context, c *step.Context, open func(context.Context) (*conversation, error)) (*Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if left, ok := c.TimeLeft(); ok {
		ctx, cancel = context.WithTimeoutCause(ctx, left, step.ErrWallClock)
		defer cancel()
	}
	began := a.clock()
	result, err := a.drive(step.WithContext(ctx, c), c, open, began)
	if result != nil {
		if lost := a.Log.Sync(context.WithoutCancel(ctx), c.RunID()); lost != nil {
			result, err = nil, fmt.Errorf("starling: make run %s durable: %w", c.RunID(), lost)
		}
	}
	took, terminal, errorType := max(a.clock().Sub(began), 0), event.Kind(0), ""
	if result != nil {
		terminal, errorType = result.TerminalKind, result.ErrorType
	}
	a.Metrics.RunEnded(terminal, errorType, took)
	c.LogEnded(ctx, terminal, errorType, took)
	return result, err
}

// drive is the run, live and in a replay: open it, let the model work, end it.
func (a *Agent) drive(ctx context.Context, c *step.Context, open func(context.Context) (*conversation, error), began time.Time) (*Result, error) {
	talk, err := open(ctx)
	if err != nil {
		return nil, err
	}
	err = a.work(ctx, c, talk)
	result := &Result{RunID: c.RunID()}
	if !result.classify(err, talk) {
		return nil, err
	}
	result.Duration = time.Duration(step.ReplayDurationMs(ctx, 0)) * time.Millisecond
	if !began.IsZero() {
		result.Duration = max(a.clock().Sub(began), 0)
	}
	if end := result.end(ctx, c); end != nil {
		return nil, end
	}
	result.complete(c, talk)
	return result, err
}

// work lets the model take turns until it answers.
func (a *Agent) work(ctx context.Context, c *step.Context, talk *conversation) error {
	if err := a.callPending(ctx, talk); err != nil {
		return err
	}
	for !talk.answered {
		if err := step.Checkpoint(ctx); err != nil {
			return err
		}
		if most := a.Config.MaxTurns; most > 0 && c.Totals().Turns >= most {
			return ErrMaxTurns
		}
		if err := a.turn(ctx, talk); err != nil {
			return err
		}
	}
	if talk.incomplete != nil {
		return talk.incomplete
	}
	return nil
}

// turn is one exchange with the model, and the calls that it asks for.
func (a *Agent) turn(ctx context.Context, talk *conversation) error {
	resp, err := step.LLMCall(ctx, a.request(talk.messages))
	if errors.As(err, new(*step.ModelError)) { // if the context has ended, that is the reason
		err = cmp.Or(step.Checkpoint(ctx), err)
	}
	if err != nil {
		return err
	}
	talk.addAnswer(resp)
	return a.callPending(ctx, talk)
}

// callPending makes the calls that the model has requested and that have no outcome yet.
func (a *Agent) callPending(ctx context.Context, talk *conversation) error {
	uses := talk.pending()
	if len(uses) == 0 {
		return nil
	}
	results, err := step.CallTools(ctx, lists.Map(uses, func(u *use) step.ToolCall { return a.call(talk.turnID, u) }))
	if err != nil {
		return err
	}
	for i, r := range results {
		uses[i].done, uses[i].output, uses[i].err = true, r.Result, r.Err
	}
	talk.settle()
	return nil
}

// call makes the calls that the model has planned.
func (a *Agent) call(turnID string, u *use) step.ToolCall {
	call := step.ToolCall{CallID: u.CallID, TurnID: turnID, Name: u.Name, Args: u.Args, Doc: u.doc}
	if u.callID != "" {
		call.CallID, call.IdempKey = "", u.CallID
	}
	if retry, ok := a.Config.Retries[u.Name]; ok {
		call.Retry = &retry
	}
	if slices.Contains(a.Config.InCode, u.Name) {
		call.Refuse = errInCode
	}
	if !a.direct && (len(u.Args) == 0 || u.Args[0] != '{') {
		call.Refuse = errors.New(u.Malformed) // the text of a tool.InputError, or of an earlier commit
		if !strings.HasPrefix(u.Malformed, "input ") {
			call.Refuse = errNoObject
			if u.Malformed != "" {
				call.Refuse = fmt.Errorf("%w: %s", errNoObject, u.Malformed)
			}
		}
	}
	return call
}

// errInCode is the answer to a direct call of a tool that only programs can call.
var errInCode = errors.New("this tool is called in a program, and not by itself")

// errNoObject is the answer to malformed arguments in runs of earlier commits.
var errNoObject = errors.New("the arguments are not a JSON object")

// classify turns the error of the work into the end of the run. It reports false if the run
// stays open.
func (r *Result) classify(err error, talk *conversation) bool {
	var failed *step.ModelError
	var part *AnswerError
	switch {
	case talk.direct && err == nil:
		r.classifyCall(talk.uses[0])
		return true
	case talk.direct:
		return false
	case err == nil:
		r.TerminalKind, r.FinalText = event.KindRunCompleted, talk.final
		return true
	case errors.Is(err, step.ErrBudgetExceeded):
		r.Error, r.ErrorType = step.ErrBudgetExceeded.Error(), event.ErrorBudget
	case errors.Is(err, ErrMaxTurns):
		r.Error, r.ErrorType = ErrMaxTurns.Error(), event.ErrorMaxTurns
	case errors.As(err, &part):
		r.Error, r.ErrorType, r.FinalText = part.Error(), part.Type, talk.final
	case errors.As(err, &failed):
		r.Error, r.ErrorType = failed.Error(), event.ErrorProvider
	case err == context.Canceled || err == context.DeadlineExceeded: // the result of Checkpoint
		r.TerminalKind, r.Error = event.KindRunCancelled, step.CancelReason(err)
		return true
	default:
		return false
	}
	r.TerminalKind = event.KindRunFailed
	return true
}

// classifyCall turns the outcome of its one call into the end of a direct run.
func (r *Result) classifyCall(u *use) {
	failed, _ := u.err.(*step.CallError)
	if failed == nil {
		r.TerminalKind, r.Output = event.KindRunCompleted, u.output
		return
	}
	r.TerminalKind, r.Err, r.Error, r.ErrorType = event.KindRunFailed, failed.Err, failed.Error(), failed.Failed.ErrorType
	if r.ErrorType == event.ErrorCancelled {
		r.TerminalKind, r.Error = event.KindRunCancelled, step.CancelReason(context.Canceled)
	}
}

// end records the terminal event.
func (r *Result) end(ctx context.Context, c *step.Context) error {
	totals, spent, ms := c.Totals(), c.Spent(), r.Duration.Milliseconds()
	switch r.TerminalKind {
	case event.KindRunCompleted:
		return step.Emit(ctx, c, r.TerminalKind, event.RunCompleted{
			FinalText: r.FinalText + string(r.Output), TurnCount: uint32(totals.Turns), ToolCallCount: uint32(totals.ToolCalls),
			TotalCostUSD: spent.USD, TotalInputTokens: spent.InputTokens, TotalOutputTokens: spent.OutputTokens, DurationMs: ms,
		})
	case event.KindRunCancelled:
		return step.Emit(ctx, c, r.TerminalKind, event.RunCancelled{Reason: r.Error, DurationMs: ms})
	default:
		return step.Emit(ctx, c, r.TerminalKind, event.RunFailed{Error: r.Error, ErrorType: r.ErrorType, DurationMs: ms})
	}
}

// complete fills in the totals of the run.
func (r *Result) complete(c *step.Context, talk *conversation) {
	totals, spent := c.Totals(), c.Spent()
	r.TurnCount, r.ToolCallCount = totals.Turns, totals.ToolCalls
	r.TotalCostUSD, r.InputTokens, r.OutputTokens = spent.USD, spent.InputTokens, spent.OutputTokens
	r.MerkleRoot, r.Events, r.Meter = totals.MerkleRoot, totals.Events, totals.Meter
	r.Effects, r.BytesIn, r.BytesOut = totals.Effects, totals.BytesIn, totals.BytesOut
	r.CacheStats, r.StopReason = talk.cache, talk.stopReason
}

// add counts one answer.
func (s *CacheStats) add(u provider.Usage) {
	if u.CacheReadTokens > 0 {
		s.Hits++
	} else {
		s.Misses++
	}
	s.ReadTokens += u.CacheReadTokens
	s.CreateTokens += u.CacheCreateTokens
}
