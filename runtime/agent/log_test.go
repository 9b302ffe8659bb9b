package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// canary is in every text that a user, a model or a tool of these tests controls.
const canary = "CANARY"

var errCanary = errors.New("no data for " + canary)

// operatorsLog is a log of an operator, read back.
type operatorsLog struct{ bytes.Buffer }

func (l *operatorsLog) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// check fails the test if a record shows the canary or names none of the runs, and
// returns the records' messages.
func (l *operatorsLog) check(t *testing.T, runs ...string) (messages string) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		var record struct {
			Msg   string `json:"msg"`
			RunID string `json:"run_id"`
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		known := false
		for _, id := range runs {
			known = known || id == record.RunID
		}
		if !known || strings.Count(line, `"run_id"`) != 1 || strings.Contains(line, canary) {
			t.Errorf("a record of no run, or with a tenant's text: %s", line)
		}
		messages += record.Msg + "\n"
	}
	return messages
}

// has fails the test unless all these messages are there.
func has(t *testing.T, messages string, want ...string) {
	t.Helper()
	for _, msg := range want {
		if !strings.Contains(messages, msg+"\n") {
			t.Errorf("no record %q in:\n%s", msg, messages)
		}
	}
}

// tenants are tools that say the canary in every way in which a tool can.
func tenants() []tool.Tool {
	inner := newAgent([]agenttest.Turn{agenttest.Say(canary)})
	inner.Config.Logger = nil
	return []tool.Tool{
		raw("fails", func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, errCanary }),
		raw("snoozes", func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return nil, tool.ToolSnooze(time.Second, errCanary)
		}),
		raw("panics", func(context.Context, json.RawMessage) (json.RawMessage, error) { panic(canary) }),
		raw("answers", func(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
			c, _ := step.From(ctx)
			c.Logger().Info("a tool's own record")
			_, err := step.SideEffect(ctx, "ask/"+canary, func() (string, error) { return "", errCanary })
			return json.RawMessage(fmt.Sprintf("%q", err)), nil
		}),
		agent.AsTool(inner, "asks", canary),
	}
}

// TestNoTextOfATenantIsLogged makes runs of agents in which everything fails in every
// way, takes them up again, and reads the operator's log: each record is of a run, and
// none shows what a user, a model or a tool has said.
func TestNoTextOfATenantIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		use := func(id, name string) agenttest.Use {
			return agenttest.Use{CallID: id, Tool: name, Args: fmt.Sprintf(`{"goal":%q}`, canary)}
		}
		turns := []agenttest.Turn{
			agenttest.Calls(use("c1", "fails"), use("c2", "snoozes"), use("c3", "panics"), use("c4", "answers"), use("c5", "asks"), use("c6", canary),
				agenttest.Use{CallID: "c7", Tool: "fails", Args: canary}),
			{Chunks: []provider.StreamChunk{
				{Kind: provider.ChunkReasoning, Text: canary}, {Kind: provider.ChunkText, Text: canary}, agenttest.Tokens(120, 45),
			}, Breaks: fmt.Errorf("%w: %s", provider.ErrServer, canary)},
		}
		ctx, err := tool.WithVariables(tool.WithSessionID(t.Context(), canary), map[string]any{"v": canary})
		if err != nil {
			t.Fatal(err)
		}
		newRun := func() (*agent.Agent, *operatorsLog) {
			a, log := newAgent(turns, tenants()...), &operatorsLog{}
			a.Config.Retries = map[string]tool.RetryConfig{"fails": {}, "snoozes": {MaxSnoozes: 2}, "panics": {}, canary: {}}
			a.Config.Logger = log.logger()
			return a, log
		}

		a, log := newRun()
		r, err := a.Run(ctx, canary)
		if r == nil || !errors.Is(err, provider.ErrServer) {
			t.Fatalf("%+v, %v", r, err)
		}
		has(t, log.check(t, r.RunID), "run started", "turn started", "turn ended", "tool call will be retried", "tool ended",
			"a tool's own record", "retrying the request to the model", "run ended")

		whole := eventsOf(t, a, r.RunID, false)
		a, log = newRun()
		a.Log = cut(t, whole, len(whole)-2)
		if _, err = a.Resume(ctx, r.RunID, canary); !errors.Is(err, provider.ErrServer) {
			t.Fatal(err)
		}
		messages := log.check(t, r.RunID)
		has(t, messages, "run resumed", "run ended")
		if strings.Contains(messages, "run started") {
			t.Errorf("a run that was taken over began again:\n%s", messages)
		}

		for limit, l := range map[string]budget.Limits{
			budget.OutputTokens: {MaxOutputTokens: 50}, budget.InputTokens: {MaxInputTokens: 300}, budget.WallClock: {MaxWallClock: time.Millisecond},
		} {
			a, log = newRun()
			if a.Budget = l; limit == budget.WallClock {
				a.Provider = agenttest.ScriptedProvider{Turns: []agenttest.Turn{{Chunks: turns[1].Chunks, Blocks: true}}}
			}
			if r, err = a.Run(ctx, canary); !errors.Is(err, step.ErrBudgetExceeded) {
				t.Fatalf("%s: %v", limit, err)
			}
			has(t, log.check(t, r.RunID), "budget exceeded", "run ended")
		}

		a, log = newRun()
		a.Config.Model, a.Budget = "a model without a price", budget.Limits{MaxUSD: 1}
		if r, err = a.Run(ctx, canary); err == nil {
			t.Fatal("completed")
		}
		has(t, log.check(t, r.RunID), "model has no price: the dollar budget is not enforced")
	})
}

// TestNoTextOfATenantIsLoggedOfDirectRuns is the same for runs of one tool.
func TestNoTextOfATenantIsLoggedOfDirectRuns(t *testing.T) {
	input := json.RawMessage(fmt.Sprintf(`{"goal":%q}`, canary))
	for _, own := range tenants() {
		log := &operatorsLog{}
		d := agent.Direct{Log: store.Memory(), Tool: own, Logger: log.logger()}
		r, err := d.Run(t.Context(), input)
		if err != nil {
			t.Fatal(err)
		}
		has(t, log.check(t, r.RunID), "run started", "tool ended", "run ended")

		whole := eventsOf(t, &agent.Agent{Log: d.Log}, r.RunID, false)
		for n, want := range map[int]string{1: "run started", 2: "run resumed"} {
			log.Reset()
			d.Log = cut(t, whole, n)
			if _, err := d.Continue(t.Context(), r.RunID, input); err != nil {
				t.Fatal(err)
			}
			messages := log.check(t, r.RunID)
			has(t, messages, want, "run ended")
			if strings.Count(messages, "run started")+strings.Count(messages, "run resumed") != 1 {
				t.Errorf("taken up after %d events:\n%s", n, messages)
			}
		}
	}
}

// full is a log that takes so many events, and then fails.
type full struct {
	*store.MemoryLog
	left *int
}

func (f full) Append(ctx context.Context, runID string, ev event.Event) error {
	if *f.left--; *f.left < 0 {
		return errors.New("disk full")
	}
	return f.MemoryLog.Append(ctx, runID, ev)
}

// TestARunThatStaysOpenIsLogged fails the log in the middle of runs.
func TestARunThatStaysOpenIsLogged(t *testing.T) {
	log, left := &operatorsLog{}, 3
	d := agent.Direct{Log: full{store.Memory(), &left}, Tool: tenants()[0], Logger: log.logger()}
	if _, err := d.RunWithID(t.Context(), "r1", json.RawMessage(`{}`)); err == nil {
		t.Error("ended")
	}
	a := newAgent([]agenttest.Turn{agenttest.Say(canary)})
	left = 2
	a.Log, a.Config.Logger = full{store.Memory(), &left}, log.logger()
	if _, err := a.RunWithID(t.Context(), "r2", canary); err == nil {
		t.Error("ended")
	}
	if n := strings.Count(log.check(t, "r1", "r2"), "run ended"); n != 2 || strings.Contains(log.String(), "terminal") {
		t.Errorf("%d runs stopped:\n%s", n, log)
	}
}
