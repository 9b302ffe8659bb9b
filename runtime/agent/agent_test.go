package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// clocked reads the clock and draws randomness, so that it replays only if that
// is recorded.
var clocked = tool.Typed("clocked", "Says when.", func(ctx context.Context, in struct {
	City string `json:"city"`
}) (map[string]any, error) {
	sky, err := step.SideEffect(ctx, "sky/"+in.City, func() (string, error) { return "clear", nil })
	return map[string]any{"at": step.Now(ctx).UnixNano(), "n": step.Random(ctx), "sky": sky}, err
})

var failing = tool.Typed("failing", "Fails.", func(context.Context, struct{}) (int, error) { return 0, errors.New("no such order") })

var panicking = tool.Typed("panicking", "Panics.", func(context.Context, struct{}) (int, error) { panic("kaboom") })

// newAgent returns an agent with a log of its own.
func newAgent(turns []agenttest.Turn, tools ...tool.Tool) *agent.Agent {
	return &agent.Agent{
		Provider: agenttest.ScriptedProvider{Turns: turns}, Tools: tools, Log: store.Memory(),
		Config: agent.Config{Model: "gpt-4o-mini", SystemPrompt: "You are a helper.", AppVersion: "1"},
	}
}

// failer is what *testing.T and *rapid.T have in common.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// eventsOf reads a run and checks it.
func eventsOf(t failer, a *agent.Agent, runID string, open bool) []event.Event {
	t.Helper()
	events, err := a.Log.Read(context.Background(), runID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := eventlog.Check(events, eventlog.CheckOptions{Strict: true, AllowOpen: open}); err != nil {
		t.Fatalf("the log is not valid: %v\n%s", err, kinds(events))
	}
	return events
}

// kinds lists the kinds of events.
func kinds(events []event.Event) string {
	var names []string
	for _, ev := range events {
		names = append(names, ev.Kind.String())
	}
	return strings.Join(names, " ")
}

// sameResult compares results, with the tool's error by type and text.
var sameResult = cmp.Options{
	cmpopts.IgnoreFields(agent.Result{}, "Duration"),
	cmp.Comparer(func(a, b error) bool { return fmt.Sprintf("%T %v", a, a) == fmt.Sprintf("%T %v", b, b) }),
}

// mustReplay replays a run in both ways: by the agent, and from the record alone.
func mustReplay(t failer, a *agent.Agent, live *agent.Result, events []event.Event) {
	t.Helper()
	offline := *a
	offline.Log, offline.Provider = nil, agenttest.ScriptedProvider{} // which has nothing to say
	got, err := offline.Replay(context.Background(), events, agent.ReplayOptions{})
	if err != nil {
		t.Fatalf("replay: %v\n%s", err, kinds(events))
	}
	if diff := cmp.Diff(live, got, sameResult); live != nil && diff != "" {
		t.Errorf("results (-live +replay):\n%s", diff)
	}
	resolve := func(_ context.Context, ref event.ToolSchemaRef) (tool.Tool, error) {
		for _, own := range a.Tools {
			if own.Name() == ref.Name {
				return own, nil
			}
		}
		return nil, fmt.Errorf("no tool %q", ref.Name)
	}
	v, err := agent.Replay(context.Background(), events, resolve, agent.ReplayOptions{})
	if err != nil || !v.Identical() {
		t.Errorf("from the record: %v, %v", v.Divergence, err)
	}
}

// TestAgentTerminalEvents records runs that end in every way, and replays them.
func TestAgentTerminalEvents(t *testing.T) {
	spin := agenttest.Turn{Blocks: true, Chunks: []provider.StreamChunk{{Kind: provider.ChunkText, Text: "let me"}}}
	broken := agenttest.Turn{Chunks: []provider.StreamChunk{{Kind: provider.ChunkText, Text: "let me"}, agenttest.Tokens(900, 90)}, Breaks: provider.ErrNetwork}
	down := fmt.Errorf("%w: 503", provider.ErrServer)
	tests := []struct {
		name    string
		turns   []agenttest.Turn
		adjust  func(*agent.Agent)
		kind    event.Kind
		errType string
		err     error
		events  string // the kinds between RunStarted and the end
	}{
		{name: "an answer", turns: []agenttest.Turn{agenttest.Say("hello")}, kind: event.KindRunCompleted,
			events: "TurnStarted AssistantMessageCompleted"},
		{name: "a tool", turns: []agenttest.Turn{agenttest.Call("c1", "clocked", `{ "city" : "Oslo" }`), agenttest.Say("done")}, kind: event.KindRunCompleted,
			events: "TurnStarted AssistantMessageCompleted ToolCallScheduled SideEffectRecorded SideEffectRecorded SideEffectRecorded ToolCallCompleted TurnStarted AssistantMessageCompleted"},
		{name: "a tool that fails", turns: []agenttest.Turn{agenttest.Call("c1", "failing", `{}`), told("c1", "Error executing tool: no such order. Please fix your arguments.")}, kind: event.KindRunCompleted,
			events: "TurnStarted AssistantMessageCompleted ToolCallScheduled ToolCallFailed TurnStarted AssistantMessageCompleted"},
		{name: "a tool that panics", turns: []agenttest.Turn{agenttest.Call("c1", "panicking", ``), told("c1", "Error executing tool: tool: panicked: kaboom. Please fix your arguments.")}, kind: event.KindRunCompleted,
			events: "TurnStarted AssistantMessageCompleted ToolCallScheduled ToolCallFailed TurnStarted AssistantMessageCompleted"},
		{name: "a tool that is not there", turns: []agenttest.Turn{agenttest.Call("c1", "weather", `{}`), told("c1", `Error executing tool: step: tool not found: "weather". Please fix your arguments.`)}, kind: event.KindRunCompleted,
			events: "TurnStarted AssistantMessageCompleted ToolCallScheduled ToolCallFailed TurnStarted AssistantMessageCompleted"},
		{name: "broken arguments", turns: []agenttest.Turn{agenttest.Call("c1", "clocked", `{"city":"Os`), told("c1", "Error executing tool: input is not JSON: line 1, column 12 at \"/city\": the document ends inside a string. Please fix your arguments.")}, kind: event.KindRunCompleted,
			events: "TurnStarted AssistantMessageCompleted ToolCallScheduled ToolCallFailed TurnStarted AssistantMessageCompleted"},
		{name: "call ids that repeat", turns: []agenttest.Turn{agenttest.Call("c1", "failing", `{}`), agenttest.Call("c1", "failing", `{}`), agenttest.Call("", "failing", `{}`), agenttest.Say("enough")}, kind: event.KindRunCompleted},
		{name: "too many turns", turns: []agenttest.Turn{agenttest.Call("c1", "failing", `{}`), agenttest.Say("never")}, adjust: func(a *agent.Agent) { a.Config.MaxTurns = 1 },
			kind: event.KindRunFailed, errType: event.ErrorMaxTurns, err: agent.ErrMaxTurns, events: "TurnStarted AssistantMessageCompleted ToolCallScheduled ToolCallFailed"},
		{name: "a prompt beyond the budget", turns: []agenttest.Turn{agenttest.Say("never")}, adjust: func(a *agent.Agent) { a.Budget.MaxInputTokens = 1 },
			kind: event.KindRunFailed, errType: event.ErrorBudget, err: step.ErrBudgetExceeded, events: "BudgetExceeded"},
		{name: "an answer beyond the budget", turns: []agenttest.Turn{agenttest.Say("zzzz")}, adjust: func(a *agent.Agent) { a.Budget.MaxOutputTokens = 10 },
			kind: event.KindRunFailed, errType: event.ErrorBudget, err: step.ErrBudgetExceeded, events: "TurnStarted BudgetExceeded"},
		{name: "dollars", turns: []agenttest.Turn{agenttest.Say("zzzz")}, adjust: func(a *agent.Agent) { a.Budget.MaxUSD = 1e-9 },
			kind: event.KindRunFailed, errType: event.ErrorBudget, err: step.ErrBudgetExceeded, events: "TurnStarted BudgetExceeded"},
		{name: "effects", turns: []agenttest.Turn{agenttest.Call("c1", "clocked", `{"city":"Oslo"}`), agenttest.Say("never")}, adjust: func(a *agent.Agent) { a.Budget.MaxEffects = 2 },
			kind: event.KindRunFailed, errType: event.ErrorBudget, err: step.ErrBudgetExceeded},
		{name: "the wall clock", turns: []agenttest.Turn{spin}, adjust: func(a *agent.Agent) { a.Budget.MaxWallClock = time.Minute },
			kind: event.KindRunFailed, errType: event.ErrorBudget, err: step.ErrBudgetExceeded, events: "TurnStarted BudgetExceeded"},
		{name: "output tokens of answers that broke", turns: []agenttest.Turn{broken}, adjust: func(a *agent.Agent) { a.Budget.MaxOutputTokens = 100 },
			kind: event.KindRunFailed, errType: event.ErrorBudget, err: step.ErrBudgetExceeded, events: "TurnStarted SideEffectRecorded BudgetExceeded"},
		{name: "input tokens of answers that broke", turns: []agenttest.Turn{broken}, adjust: func(a *agent.Agent) { a.Budget.MaxInputTokens = 901 },
			kind: event.KindRunFailed, errType: event.ErrorBudget, err: step.ErrBudgetExceeded, events: "TurnStarted SideEffectRecorded BudgetExceeded"},
		{name: "dollars of answers that broke", turns: []agenttest.Turn{broken}, adjust: func(a *agent.Agent) { a.Budget.MaxUSD = 4e-4 },
			kind: event.KindRunFailed, errType: event.ErrorBudget, err: step.ErrBudgetExceeded, events: "TurnStarted SideEffectRecorded SideEffectRecorded BudgetExceeded"},
		{name: "no access", turns: []agenttest.Turn{{Refuse: provider.ErrAuth}}, kind: event.KindRunFailed, errType: event.ErrorProvider, err: provider.ErrAuth,
			events: "TurnStarted SideEffectRecorded"},
		{name: "a server that is down", turns: []agenttest.Turn{{Refuse: down}}, kind: event.KindRunFailed, errType: event.ErrorProvider, err: provider.ErrServer,
			events: "TurnStarted SideEffectRecorded SideEffectRecorded SideEffectRecorded"},
		{name: "a stream that breaks", turns: []agenttest.Turn{{Chunks: spin.Chunks, Breaks: provider.ErrNetwork}}, kind: event.KindRunFailed, errType: event.ErrorProvider, err: provider.ErrNetwork},
		{name: "a stream without an end", turns: []agenttest.Turn{{Chunks: spin.Chunks}}, kind: event.KindRunFailed, errType: event.ErrorProvider, err: step.ErrInvalidStream},
		{name: "an answer with nothing in it", turns: []agenttest.Turn{{Chunks: []provider.StreamChunk{agenttest.Tokens(10, 7), agenttest.End("stop")}}},
			kind: event.KindRunFailed, errType: event.ErrorProvider, err: provider.ErrServer, events: "TurnStarted SideEffectRecorded SideEffectRecorded SideEffectRecorded"},
		{name: "a call that is announced and not made", turns: []agenttest.Turn{stopped("Let me see.", "", "tool_calls")},
			kind: event.KindRunFailed, errType: event.ErrorProvider, err: provider.ErrServer, events: "TurnStarted SideEffectRecorded SideEffectRecorded SideEffectRecorded"},
		{name: "reasoning", turns: []agenttest.Turn{thoughtful()}, kind: event.KindRunCompleted,
			events: "TurnStarted ReasoningEmitted ReasoningEmitted ReasoningEmitted AssistantMessageCompleted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAgent(tt.turns, clocked, failing, panicking)
				if tt.adjust != nil {
					tt.adjust(a)
				}
				r, err := a.Run(context.Background(), "what is the weather?")
				if r == nil {
					t.Fatal(err)
				}
				if r.TerminalKind != tt.kind || r.ErrorType != tt.errType || !errors.Is(err, tt.err) {
					t.Errorf("ended with %s, %q, %v", r.TerminalKind, r.ErrorType, err)
				}
				events := eventsOf(t, a, r.RunID, false)
				if got := kinds(events[1 : len(events)-1]); tt.events != "" && got != tt.events {
					t.Errorf("recorded %s", got)
				}
				mustReplay(t, a, r, events)
			})
		})
	}
}

// retried is a model whose answers break off, but for the last that is allowed.
type retried struct {
	agenttest.ScriptedProvider
	asked *int
}

func (r retried) Stream(ctx context.Context, req *provider.Request) (provider.EventStream, error) {
	*r.asked++
	if *r.asked%3 == 0 {
		return r.ScriptedProvider.Stream(ctx, req)
	}
	return (&agenttest.ScriptedProvider{Turns: []agenttest.Turn{{Chunks: []provider.StreamChunk{agenttest.Tokens(10, 7)}, Breaks: provider.ErrNetwork}}}).Stream(
		ctx, &provider.Request{})
}

// TestBrokenAnswersAreSpent adds up a run whose answers break off: in the result, the
// terminal event, the summary of the log, and in the run that another process goes
// on with.
func TestBrokenAnswersAreSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent([]agenttest.Turn{agenttest.Call("c1", "failing", `{}`), agenttest.Say("done")}, failing)
		a.Provider = retried{a.Provider.(agenttest.ScriptedProvider), new(int)}
		r, err := a.Run(context.Background(), "go")
		if err != nil {
			t.Fatal(err)
		}
		const input, output = 2 * (120 + 2*10), 2 * (45 + 2*7)
		events := eventsOf(t, a, r.RunID, false)
		mustReplay(t, a, r, events)
		end, err := events[len(events)-1].AsRunCompleted()
		if err != nil {
			t.Fatal(err)
		}
		_, _, in, out, cost, _ := eventlog.AggregateRun(events)
		meter, err := budget.Resume(budget.Limits{}, events)
		if err != nil {
			t.Fatal(err)
		}
		spent := meter.Spent()
		for what, got := range map[string]budget.Spent{
			"result":  {InputTokens: r.InputTokens, OutputTokens: r.OutputTokens, USD: r.TotalCostUSD},
			"end":     {InputTokens: end.TotalInputTokens, OutputTokens: end.TotalOutputTokens, USD: end.TotalCostUSD},
			"summary": {InputTokens: in, OutputTokens: out, USD: cost},
			"resumed": {InputTokens: spent.InputTokens, OutputTokens: spent.OutputTokens, USD: spent.USD},
		} {
			if got.InputTokens != input || got.OutputTokens != output || math.Abs(got.USD-r.TotalCostUSD) > 1e-12 || got.USD == 0 {
				t.Errorf("%s: %+v, want %d and %d tokens", what, got, input, output)
			}
		}
	})
}

// TestTimeIsSpentDuringAnAnswer looks at what a trip of the wall clock leaves of the
// answer that it cuts off, and replays it also as earlier versions recorded it: the
// answer as a failure of the model, and a trip that names no turn.
func TestTimeIsSpentDuringAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent([]agenttest.Turn{{Blocks: true, Chunks: []provider.StreamChunk{{Kind: provider.ChunkText, Text: "let me"}, agenttest.Tokens(5, 3)}}})
		a.Budget.MaxWallClock = time.Minute
		r, err := a.Run(context.Background(), "go")
		if !errors.Is(err, step.ErrBudgetExceeded) {
			t.Fatal(err)
		}
		events := eventsOf(t, a, r.RunID, false)
		turn, _ := events[1].AsTurnStarted()
		trip, err := events[2].AsBudgetExceeded()
		want := event.BudgetExceeded{Limit: "wall_clock", Cap: 60000, Actual: 60000, Where: "mid_stream", TurnID: turn.TurnID, PartialText: "let me", PartialTokens: 3}
		if err != nil || trip != want || turn.TurnID == "" {
			t.Errorf("recorded %+v, %v", trip, err)
		}
		failure, err := canon.Marshal(event.ModelFailure{TurnID: turn.TurnID, Attempt: 1, Class: "timeout", Error: "deadline", PartialText: "let me", Final: true})
		if err != nil {
			t.Fatal(err)
		}
		trip.TurnID, trip.PartialText, trip.PartialTokens = "", "", 0
		end, err := events[3].AsRunFailed()
		if err != nil {
			t.Fatal(err)
		}
		next := logtest.Resume(events[:2])
		old := append(events[:2:2], next.Next(event.SideEffectRecorded{Name: event.EffectModel, Value: failure}), next.Next(trip))
		var leaves canon.Tree
		for _, ev := range old {
			leaves.Add(ev.Hash())
		}
		root := leaves.Root()
		end.MerkleRoot = root[:]
		old = append(old, next.Next(end))
		mustReplay(t, a, nil, old)
	})
}

// told is a turn in which the model has been told the outcome of a call.
func told(callID, text string) agenttest.Turn {
	turn := agenttest.Say("I see")
	turn.Expects = func(req *provider.Request) error {
		last := req.Messages[len(req.Messages)-1]
		if last.ToolResult == nil || last.ToolResult.CallID != callID || last.ToolResult.Content != text {
			return fmt.Errorf("the model was told %+v", last.ToolResult)
		}
		return nil
	}
	return turn
}

// thoughtful is a turn with reasoning of all kinds.
func thoughtful() agenttest.Turn {
	turn := agenttest.Say("so be it")
	turn.Chunks = append([]provider.StreamChunk{
		{Kind: provider.ChunkReasoning, Text: "let me "}, {Kind: provider.ChunkReasoning, Text: "think", Signature: []byte("sig")},
		{Kind: provider.ChunkRedactedThinking, Text: "b64"},
		{Kind: provider.ChunkReasoning, Text: "again"},
	}, turn.Chunks...)
	return turn
}

// TestReasoningIsSensitive: a reader that hides what is sensitive hides all reasoning, as
// the Starling runtime has it. Runs from before then have blocks that are not, and replay as
// they are.
func TestReasoningIsSensitive(t *testing.T) {
	a := newAgent([]agenttest.Turn{thoughtful()})
	r, err := a.Run(context.Background(), "go")
	if err != nil {
		t.Fatal(err)
	}
	events := eventsOf(t, a, r.RunID, false)
	older, blocks, turnID := slices.Clone(events), 0, ""
	var tree canon.Tree
	for i := range older {
		ev := &older[i]
		if i > 0 {
			head := older[i-1].Hash()
			ev.PrevHash = head[:]
		}
		switch ev.Kind {
		case event.KindTurnStarted:
			p, err := ev.AsTurnStarted()
			if turnID = p.TurnID; err != nil || turnID == "" {
				t.Errorf("event %d: %+v, %v", ev.Seq, p, err)
			}
		case event.KindReasoningEmitted:
			p, err := ev.AsReasoningEmitted()
			if err != nil || !p.Sensitive || p.TurnID != turnID {
				t.Errorf("event %d: %+v, %v", ev.Seq, p, err)
			}
			p.Sensitive = p.Redacted
			ev.Payload, err = event.EncodePayload(p)
			if blocks++; err != nil {
				t.Fatal(err)
			}
		case event.KindRunCompleted:
			p, err := ev.AsRunCompleted()
			root := tree.Root()
			p.MerkleRoot = root[:]
			if err == nil {
				ev.Payload, err = event.EncodePayload(p)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		tree.Add(ev.Hash())
	}
	if blocks != 3 {
		t.Errorf("%d blocks", blocks)
	}
	mustReplay(t, a, r, events)
	mustReplay(t, a, nil, older)
}

// TestCancellation cancels runs in the middle of an answer and of a tool.
func TestCancellation(t *testing.T) {
	for name, turn := range map[string]agenttest.Turn{
		"an answer": {Blocks: true, Chunks: []provider.StreamChunk{{Kind: provider.ChunkText, Text: "let me"}}},
		"a tool":    agenttest.Call("c1", "waits", `{}`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				waits := tool.Typed("waits", "Waits.", func(ctx context.Context, _ struct{}) (int, error) {
					<-ctx.Done()
					return 0, ctx.Err()
				})
				a := newAgent([]agenttest.Turn{turn, agenttest.Say("never")}, waits)
				time.AfterFunc(time.Second, cancel)
				r, err := a.Run(ctx, "wait")
				if r == nil || r.TerminalKind != event.KindRunCancelled || r.Error != "cancelled" || err != context.Canceled {
					t.Fatalf("%+v, %v", r, err)
				}
				events := eventsOf(t, a, r.RunID, false)
				mustReplay(t, a, r, events)
				for _, reason := range []string{"context canceled", "by the operator"} { // as other writers have it
					end := &events[len(events)-1]
					p, err := end.AsRunCancelled()
					if p.Reason = reason; err != nil {
						t.Fatal(err)
					}
					if end.Payload, err = event.EncodePayload(p); err != nil {
						t.Fatal(err)
					}
					mustReplay(t, a, nil, events)
				}
			})
		})
	}
}

// TestRequestsAreRebuilt has a model write its arguments in every form, and
// compares what the model sees with what is rebuilt from the log.
func TestRequestsAreRebuilt(t *testing.T) {
	args := []string{
		`{"b":1,"a":2}`, `{"a": 2}`, `{"a":"<b>&"}`, `{"a":1.0}`, `{"a":1}`, `{"a":18446744073709551615}`, `{"a":9007199254740993}`,
		`{"a":1e400}`, `{"a":"\u00e9\ud83d\ude00"}`, `{"a":"é😀"}`, "{\n\t\"a\" : [ 1 , 2 ] }", `{"a":1,"a":2}`, `[1]`, `"x"`, `null`, ``, `{`,
		`{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`,
	}
	var turns []agenttest.Turn
	for i, text := range args {
		turns = append(turns, agenttest.Call(fmt.Sprint("c", i), "echo", text))
	}
	turns = append(turns, agenttest.Say("done"))
	echo := raw("echo", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil })
	a := newAgent(turns, echo)
	r, err := a.Run(context.Background(), "go")
	if err != nil {
		t.Fatal(err)
	}
	events := eventsOf(t, a, r.RunID, false)
	mustReplay(t, a, r, events)
	if r.TurnCount != len(turns) || r.ToolCallCount != len(args) {
		t.Errorf("%d turns, %d calls", r.TurnCount, r.ToolCallCount)
	}
}

// rawTool is a tool without a schema of its own.
type rawTool struct {
	name string
	fn   func(context.Context, json.RawMessage) (json.RawMessage, error)
}

func raw(name string, fn func(context.Context, json.RawMessage) (json.RawMessage, error)) tool.Tool {
	return rawTool{name, fn}
}

func (r rawTool) Name() string            { return r.name }
func (r rawTool) Description() string     { return "the tool " + r.name }
func (r rawTool) Schema() json.RawMessage { return json.RawMessage(`{"type":"object"}`) }
func (r rawTool) Execute(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
	return r.fn(ctx, in)
}

// TestAgentReplayDivergence changes an agent after a run, in every way that matters, and in
// those that must not.
func TestAgentReplayDivergence(t *testing.T) {
	turns := []agenttest.Turn{agenttest.Calls(agenttest.Use{CallID: "c1", Tool: "clocked", Args: `{"city":"Oslo"}`}, agenttest.Use{CallID: "c2", Tool: "failing", Args: `{}`}), agenttest.Say("done")}
	a := newAgent(turns, failing, clocked)
	a.Config.Prices = agent.BuiltinPrices()
	r, err := a.Run(context.Background(), "go")
	if err != nil {
		t.Fatal(err)
	}
	dear := agent.Prices{"gpt-4o-mini": {Rates: agent.Rates{Input: 100, Output: 100}}}
	other := func(name, description string) tool.Tool {
		return tool.Typed(name, description, func(context.Context, struct{}) (int, error) { return 0, errors.New("no such order") })
	}
	tests := []struct {
		name   string
		change func(*agent.Agent)
		seq    uint64 // 0: identical
	}{
		{"nothing", func(*agent.Agent) {}, 0},
		{"the order of tools", func(a *agent.Agent) { a.Tools = []tool.Tool{clocked, failing} }, 0},
		{"the version of the program", func(a *agent.Agent) { a.Config.AppVersion = "2" }, 0},
		{"the prompt", func(a *agent.Agent) { a.Config.SystemPrompt += " " }, 1},
		{"a tool's schema", func(a *agent.Agent) { a.Tools[0] = raw("failing", nil) }, 1},
		{"a tool's description", func(a *agent.Agent) { a.Tools = []tool.Tool{other("failing", "Fails!"), clocked} }, 2},
		{"the turns allowed", func(a *agent.Agent) { a.Config.MaxTurns = 9 }, 1},
		{"the budget", func(a *agent.Agent) { a.Budget.MaxUSD = 9 }, 1},
		{"the prices", func(a *agent.Agent) { a.Config.Prices = dear }, 3},
		{"a stop sequence", func(a *agent.Agent) { a.Config.StopSequences = []string{"."} }, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			changed := *a
			changed.Tools = []tool.Tool{failing, clocked}
			tt.change(&changed)
			if tt.seq == 0 {
				agenttest.AssertReplayMatches(t, a.Log, r.RunID, &changed)
				return
			}
			if d := agenttest.AssertReplayDiverges(t, a.Log, r.RunID, &changed); d != nil && d.Seq != tt.seq {
				t.Errorf("differs at %d: %v", d.Seq, d)
			}
		})
	}
	changed := *a
	changed.Config.Model = "gpt-9"
	if err := agent.Verify(context.Background(), a.Log, r.RunID, &changed); !errors.Is(err, agent.ErrProviderModelMismatch) {
		t.Errorf("another model: %v", err)
	}
	if err := agent.Verify(context.Background(), a.Log, r.RunID, &changed, agent.WithForceProvider()); err != nil {
		t.Errorf("another model, forced: %v", err)
	}
}

// TestInvalidAgents has the errors that the Starling runtime's documents quote.
func TestInvalidAgents(t *testing.T) {
	tests := []struct {
		want   string
		change func(*agent.Agent)
	}{
		{"starling: Agent.Provider is nil", func(a *agent.Agent) { a.Provider = nil }},
		{"starling: Agent.Log is nil", func(a *agent.Agent) { a.Log = nil }},
		{"starling: Agent.Config.Model is empty", func(a *agent.Agent) { a.Config.Model = "" }},
		{`starling: Agent.Namespace "a/b" contains a slash`, func(a *agent.Agent) { a.Namespace = "a/b" }},
		{`starling: two of Agent.Tools are called "failing"`, func(a *agent.Agent) { a.Tools = []tool.Tool{failing, failing} }},
		{"starling: one of Agent.Tools is nil", func(a *agent.Agent) { a.Tools = []tool.Tool{nil} }},
		{"budget: MaxInputTokens is -1, want 0 or more", func(a *agent.Agent) { a.Budget.MaxInputTokens = -1 }},
	}
	for _, tt := range tests {
		a := newAgent(nil)
		tt.change(a)
		if _, err := a.Run(context.Background(), "go"); err == nil || err.Error() != tt.want {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}
