package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

const seedLogs = "../../../shared/vectors/starling/"

// seedRuns reads the logs of the Starling runtime.
func seedRuns(t *testing.T) map[string][]event.Event {
	t.Helper()
	db, err := os.ReadFile(seedLogs + "ref.db")
	if err != nil {
		t.Skipf("SKIPPED: the logs of the Starling runtime are not here: %v", err)
	}
	path := filepath.Join(t.TempDir(), "ref.db")
	if err := os.WriteFile(path, db, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := store.OpenFile(t.Context(), path, store.FileOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	runs, err := log.ListRuns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]event.Event{}
	for _, run := range runs {
		if all[run.RunID], err = log.Read(t.Context(), run.RunID); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// seedTool is a tool with the name, description and schema that the Starling runtime's
// runs had.
type seedTool struct {
	name, description, schema string
	fn                        func(context.Context, json.RawMessage) (json.RawMessage, error)
}

func (s seedTool) Name() string            { return s.name }
func (s seedTool) Description() string     { return s.description }
func (s seedTool) Schema() json.RawMessage { return json.RawMessage(s.schema) }
func (s seedTool) Execute(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
	return s.fn(ctx, in)
}

// seedTools does what those tools did, in the order in which they were registered.
func seedTools(t *testing.T) []tool.Tool {
	t.Helper()
	text, err := os.ReadFile(seedLogs + "ref.tools.json")
	if err != nil {
		t.Fatal(err)
	}
	var texts map[string]struct{ Description, Schema string }
	if err := json.Unmarshal(text, &texts); err != nil {
		t.Fatal(err)
	}
	does := map[string]func(context.Context, json.RawMessage) (json.RawMessage, error){
		"weather": func(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
			var asked struct{ City string }
			if err := json.Unmarshal(in, &asked); err != nil {
				return nil, err
			}
			sky, err := step.SideEffect(ctx, "weather/"+asked.City, func() (map[string]any, error) {
				return map[string]any{"raw": []byte{1, 2, 3}, "temp": 21.5, "wind": 7}, nil
			})
			if err != nil {
				return nil, err
			}
			at := step.Now(ctx).UTC().Format(time.RFC3339Nano)
			return json.Marshal(map[string]any{"at": at, "n": step.Random(ctx), "city": asked.City, "temp": sky["temp"]})
		},
		"boom": func(context.Context, json.RawMessage) (json.RawMessage, error) { panic("kaboom") },
		"fail": func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, errors.New("bad input") },
		"echo": func(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
			step.Now(ctx)
			step.Random(ctx)
			return in, nil
		},
	}
	var tools []tool.Tool
	for _, name := range []string{"weather", "boom", "fail", "echo"} {
		tools = append(tools, seedTool{name, texts[name].Description, texts[name].Schema, does[name]})
	}
	return tools
}

// seedTurns are what the model said in a run.
func seedTurns(t *testing.T, events []event.Event) []agenttest.Turn {
	t.Helper()
	var turns []agenttest.Turn
	for _, ev := range events {
		if trip, err := ev.AsBudgetExceeded(); err == nil {
			turns = append(turns, agenttest.Turn{Chunks: []provider.StreamChunk{{Kind: provider.ChunkText, Text: trip.PartialText}, agenttest.Tokens(120, trip.PartialTokens)}})
		}
		p, err := ev.AsAssistantMessageCompleted()
		if err != nil {
			continue
		}
		var uses []agenttest.Use
		for _, u := range p.ToolUses {
			args, err := canon.ToJSON(u.Args)
			if err != nil {
				t.Fatal(err)
			}
			uses = append(uses, agenttest.Use{CallID: u.CallID, Tool: u.ToolName, Args: string(args)})
		}
		turn := agenttest.Turn{Chunks: []provider.StreamChunk{{Kind: provider.ChunkText, Text: p.Text}}}
		calls := agenttest.Calls(uses...).Chunks
		turn.Chunks = append(turn.Chunks, calls[:len(calls)-2]...)
		usage := &provider.Usage{InputTokens: p.InputTokens, OutputTokens: p.OutputTokens, CacheReadTokens: p.CacheReadTokens, CacheCreateTokens: p.CacheCreateTokens}
		turn.Chunks = append(turn.Chunks, provider.StreamChunk{Kind: provider.ChunkUsage, Usage: usage},
			provider.StreamChunk{Kind: provider.ChunkEnd, StopReason: p.StopReason, RawResponseHash: p.RawResponseHash, RequestID: p.ProviderRequestID})
		turns = append(turns, turn)
	}
	return turns
}

// TestRunsOfTheSeedRuntime makes the runs of the Starling runtime's logs again, and
// compares every event, field by field, with what that runtime wrote: the same
// kinds, the same fields in each, and the same values where no clock, no random
// number and no minted id is in them, prompts' hashes included. Where a tool fails
// the Starling runtime ended the run and this one tells the model, so those runs are
// compared up to there.
func TestRunsOfTheSeedRuntime(t *testing.T) {
	budget.RegisterPricing("gpt-4o-mini", 0.15, 0.6) // the Starling runtime knows no price of a cache
	for id, want := range seedRuns(t) {
		started, err := want[0].AsRunStarted()
		if err != nil {
			t.Fatal(err)
		}
		t.Run(started.Goal, func(t *testing.T) {
			a := newAgent(seedTurns(t, want), seedTools(t)...)
			a.Config.Model, a.Config.SystemPrompt, a.Config.AppVersion = started.ModelID, started.SystemPrompt, started.AppVersion
			a.Budget = budget.FromEvent(started.Budget)
			a.Config.MaxParallelTools = 1
			a.Namespace, _, _ = strings.Cut(id, "/")
			if a.Namespace == id {
				a.Namespace = ""
			}
			if started.Goal == "maxturns" {
				a.Config.MaxTurns = 1
			}
			r, err := a.Run(context.Background(), started.Goal)
			if r == nil {
				t.Fatal(err)
			}
			got := eventsOf(t, a, r.RunID, false)
			if diff := cmp.Diff(shapes(t, want), shapes(t, got)); diff != "" {
				t.Errorf("(-seed +ours):\n%s", diff)
			}
			mustReplay(t, a, r, got)
		})
	}
}

// TestReplayOfTheSeedRuntime replays the Starling runtime's own records, whose lists of tools are sorted and have no
// positions. docs/seed-names.md describes which of them replay: those of agents whose tools record no effects and do
// not fail.
func TestReplayOfTheSeedRuntime(t *testing.T) {
	budget.RegisterPricing("gpt-4o-mini", 0.15, 0.6)
	for id, want := range seedRuns(t) {
		started, err := want[0].AsRunStarted()
		if err != nil {
			t.Fatal(err)
		}
		t.Run(started.Goal, func(t *testing.T) {
			a := newAgent(nil, seedTools(t)...)
			a.Config.Model, a.Config.SystemPrompt = started.ModelID, started.SystemPrompt
			a.Budget = budget.FromEvent(started.Budget)
			a.Namespace, _, _ = strings.Cut(id, "/")
			if a.Namespace == id {
				a.Namespace = ""
			}
			_, err := a.Replay(t.Context(), want, agent.ReplayOptions{Force: true})
			differs := ""
			for _, ev := range want {
				if effect, err := ev.AsSideEffectRecorded(); err == nil && effect.CallID == "" {
					differs = "SideEffectRecorded"
				} else if ev.Kind == event.KindToolCallFailed {
					differs = "RunFailed is recorded, but the replay did TurnStarted"
				}
			}
			if differs == "" && err != nil || differs != "" && (!errors.Is(err, step.ErrReplayMismatch) || !strings.Contains(err.Error(), differs)) {
				t.Errorf("%v, want %q\n%s", err, differs, kinds(want))
			}
		})
	}
}

// volatile are the fields that no two runs have in common.
var volatile = map[string]bool{"turn_id": true, "merkle_root": true, "duration_ms": true, "starling_version": true}

// shapes are the events up to the first failure of a tool, without what no two runs
// have in common. What parallel calls did is in one order: effects before outcomes.
func shapes(t *testing.T, events []event.Event) []map[string]any {
	t.Helper()
	var all []map[string]any
	seen := false // a time or a number that the model was told
	for _, ev := range events {
		var payload map[string]any
		if err := canon.Unmarshal(ev.Payload, &payload); err != nil {
			t.Fatal(err)
		}
		seen = mask(payload, ev.Kind, seen) || seen
		added(payload)
		payload["kind"] = ev.Kind.String()
		all = append(all, payload)
		if ev.Kind == event.KindToolCallFailed {
			break
		}
	}
	for i := range all {
		for j := i; j > 0 && all[j]["kind"] == "SideEffectRecorded" && all[j-1]["kind"] == "ToolCallCompleted"; j-- {
			all[j], all[j-1] = all[j-1], all[j]
		}
	}
	return all
}

// mask hides what no two runs have in common, and reports whether a result had some
// of it.
func mask(payload map[string]any, kind event.Kind, seen bool) bool {
	for field := range payload {
		if volatile[field] {
			payload[field] = "(volatile)"
		}
	}
	switch result, _ := payload["result"].(map[string]any); {
	case payload["name"] == "now" || payload["name"] == "rand":
		payload["value"] = "(volatile)"
	case result["n"] != nil:
		result["n"], result["at"] = "(volatile)", "(volatile)"
		return true
	case kind == event.KindTurnStarted && seen:
		payload["prompt_hash"], payload["input_tokens"] = "(volatile)", "(volatile)"
	}
	return false
}

// added drops the fields that this project adds to the format, as far as the runs
// have them: which call an effect belongs to and how long it took, the order of tools, the bound
// on turns.
func added(payload map[string]any) {
	if payload["name"] != nil {
		delete(payload, "call_id")
		delete(payload, "duration_us")
	}
	delete(payload, "max_turns")
	tools, _ := payload["tool_schemas"].([]any)
	for _, t := range tools {
		delete(t.(map[string]any), "position")
	}
}
