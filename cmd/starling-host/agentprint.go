package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/hint"
	"github.com/starling-host/starling/runtime/agent"
)

// follow prints the progress of a run, and then its result.
func (a *app) follow(ctx context.Context, db *starling.DB, runID string, events <-chan agent.AgentEvent, f agentFlags) error {
	p := &view.Progress{Out: a.stdout, Err: a.stderr, Stream: a.stdout.Terminal && !a.asJSON}
	var done agent.Done
	for ev := range events {
		if d, ok := ev.(agent.Done); ok {
			done = d
			continue
		}
		p.Print(ev)
	}
	p.Line()
	if done.Result == nil {
		return stayedOpen(runID, done.Err, f)
	}
	if err := a.agentEnd(ctx, db, p, done.Result, f); err != nil {
		return err
	}
	return agentOutcome(done.Result, done.Err)
}

// stayedOpen explains a run that has no end.
func stayedOpen(runID string, err error, f agentFlags) error {
	for _, refused := range []error{agent.ErrRunAlreadyTerminal, agent.ErrAgentChanged, agent.ErrPartialToolCall, agent.ErrRunInUse, agent.ErrNoModel} {
		if errors.Is(err, refused) {
			return &failure{code: exitUsage, message: starling.PlainError(err), hint: hint.Of(err)}
		}
	}
	if errors.Is(err, event.ErrEncrypted) {
		return &failure{code: exitRefused, message: fmt.Sprintf("run %s is encrypted: only its host can continue it", runID)}
	}
	out := *explain(err)
	if out.hint == "" && !errors.Is(err, agent.ErrRunNotFound) {
		out.hint = "the run is open; go on with: " + display.Command("starling-host agent resume --agent "+display.ShellWord(f.file), named(f.database), runID)
	}
	return &out
}

// agentDocument is the output of "agent run -o json" and "agent resume -o json".
type agentDocument struct {
	span.Document
	Database string `json:"database"`
}

// agentEnd prints the result of a run.
func (a *app) agentEnd(ctx context.Context, db *starling.DB, p *view.Progress, r *agent.Result, f agentFlags) error {
	p.Note(fmt.Sprintf("%s, %s, %s tokens in, %s out, $%s, fuel %s, wall time %s",
		display.Plural(r.TurnCount, "turn"), display.Plural(r.ToolCallCount, "tool call"), display.Digits(uint64(r.InputTokens)), display.Digits(uint64(r.OutputTokens)),
		display.Dollars(r.TotalCostUSD), display.Digits(r.Meter.Fuel), display.Duration(r.Duration)))
	a.stderr.Printf("replay: %s\n", display.Command("starling-host replay", named(f.database), r.RunID))
	if a.asJSON {
		ctx = context.WithoutCancel(ctx) // the run has ended, even if that was why
		log, err := db.Log(ctx)
		if err != nil {
			return err
		}
		summary, err := log.Run(ctx, r.RunID)
		if err != nil {
			return err
		}
		doc, err := span.Read(ctx, log, summary)
		if err != nil {
			return err
		}
		return a.writeValue(agentDocument{doc, named(f.database)})
	}
	if p.Stream || r.FinalText == "" && r.TerminalKind != event.KindRunCompleted {
		return nil
	}
	_, err := fmt.Fprintln(a.stdout.Exact(), r.FinalText)
	return err
}

// agentOutcome returns how the program ends after a run that ended with err, nil if
// all is well.
func agentOutcome(r *agent.Result, err error) error {
	out := &failure{code: exitFailed, message: "the run failed: " + starling.PlainError(errors.New(whyFailed(r, err)))}
	switch {
	case r.TerminalKind == event.KindRunCompleted:
		return nil
	case r.TerminalKind == event.KindRunCancelled:
		return &failure{code: exitCancelled, message: "cancelled; the run is recorded as cancelled"}
	case r.ErrorType == event.ErrorBudget:
		out.code, out.hint = exitLimit, "raise the budget in the agent's file"
	case r.ErrorType == event.ErrorMaxTurns:
		out.code, out.hint = exitLimit, "raise max_turns in the agent's file"
	case r.ErrorType == event.ErrorCut:
		out.code, out.hint = exitLimit, "raise max_output_tokens in the agent's file, or ask for less"
	case r.ErrorType == event.ErrorRefused:
		out.code = exitRefused
	}
	return out
}

// whyFailed is the recorded reason, with the bound of the budget if the run passed one,
// which is in an event before.
func whyFailed(r *agent.Result, err error) string {
	if e, ok := errors.AsType[*agent.BudgetExceeded](err); ok && r.ErrorType == event.ErrorBudget {
		return r.Error + ": " + e.Event().Describe()
	}
	return r.Error
}
