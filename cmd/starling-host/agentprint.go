package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/hint"
	"github.com/starling-host/starling/runtime/agent"
)

// follow prints the progress of a run, and then its result.
func (a *app) follow(ctx context.Context, db *starling.DB, runID string, events <-chan agent.AgentEvent, f agentFlags) error {
	p := &agentPrinter{app: a, flags: f, stream: a.stdout.Terminal && !a.asJSON}
	var done agent.Done
	for ev := range events {
		if d, ok := ev.(agent.Done); ok {
			done = d
			continue
		}
		p.print(ev)
	}
	p.line()
	if done.Result == nil {
		return stayedOpen(runID, done.Err, f)
	}
	if err := p.end(ctx, db, done.Result); err != nil {
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

// agentPrinter prints a run. The texts of the model and of tools are hostile.
type agentPrinter struct {
	*app
	flags  agentFlags
	stream bool // text goes to standard output as it comes
	open   bool // the cursor is behind text that has no line break yet
}

// mostShown bounds what a line shows of arguments and results, in bytes.
const mostShown = 200

func (p *agentPrinter) print(ev agent.AgentEvent) {
	switch ev := ev.(type) {
	case agent.TextDelta:
		p.text(ev.Text)
	case agent.Restarted:
		p.line()
		p.stderr.Printf("retrying the request to the model\n")
	case agent.ToolCallStarted:
		p.line()
		p.call("-> " + ev.Tool + " " + shown(string(ev.Args)) + attempt(ev.Attempt))
	case agent.ToolCallEnded:
		p.line()
		if ev.Err != nil {
			p.call("<- " + ev.Tool + " failed: " + shown(ev.Err.Error()))
		} else {
			p.call("<- " + ev.Tool + " " + shown(string(ev.Result)))
		}
	}
}

// text prints a piece of the model's answer.
func (p *agentPrinter) text(text string) {
	if !p.stream || text == "" {
		return
	}
	fmt.Fprint(p.stdout.Lines(), strings.NewReplacer("\r\n", "\n", "\t", "    ").Replace(text))
	p.open = !strings.HasSuffix(text, "\n")
}

// call prints a line about a call, or about the run.
func (p *agentPrinter) call(text string) {
	for i, line := range p.stderr.Wrap(text, 3) {
		p.stderr.Printf("%*s%s\n", 3*min(i, 1), "", line)
	}
}

// line ends a line of text that is open.
func (p *agentPrinter) line() {
	if p.open {
		p.stdout.Printf("\n")
	}
	p.open = false
}

func attempt(n int) string {
	if n > 1 {
		return fmt.Sprintf(" (attempt %d)", n)
	}
	return ""
}

// shown is a text on one line, shortened.
func shown(text string) string {
	if len(text) <= mostShown {
		return text
	}
	return strings.ToValidUTF8(text[:mostShown], "") + fmt.Sprintf("... (%s)", display.Plural(len(text), "byte"))
}

// agentDocument is the output of "agent run -o json" and "agent resume -o json".
type agentDocument struct {
	span.Document
	Database string `json:"database"`
}

// end prints the result of the run.
func (p *agentPrinter) end(ctx context.Context, db *starling.DB, r *agent.Result) error {
	p.call(fmt.Sprintf("%s, %s, %s tokens in, %s out, $%s, fuel %s, wall time %s",
		display.Plural(r.TurnCount, "turn"), display.Plural(r.ToolCallCount, "tool call"), display.Digits(uint64(r.InputTokens)), display.Digits(uint64(r.OutputTokens)),
		dollars(r.TotalCostUSD), display.Digits(r.Meter.Fuel), display.Duration(r.Duration)))
	p.stderr.Printf("replay: %s\n", display.Command("starling-host replay", named(p.flags.database), r.RunID))
	if p.asJSON {
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
		return p.writeValue(agentDocument{doc, named(p.flags.database)})
	}
	if p.stream || r.FinalText == "" && r.TerminalKind != event.KindRunCompleted {
		return nil
	}
	_, err := fmt.Fprintln(p.stdout.Exact(), r.FinalText)
	return err
}

// dollars is an amount with as many digits as small ones need.
func dollars(usd float64) string {
	text := fmt.Sprintf("%.6f", usd)
	for strings.HasSuffix(text, "0") && len(text) > len("0.00") {
		text = strings.TrimSuffix(text, "0")
	}
	return text
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
