package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// moody does what its random numbers say, which are recorded: it succeeds, fails in
// every way, has effects that fail, calls other tools, returns what is no JSON.
func moody(name string, others ...string) tool.Tool {
	return raw(name, func(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
		mood := step.Random(ctx)
		switch mood % 12 {
		case 0:
			return nil, errors.New("a mistake\xff with bad text")
		case 1:
			panic(fmt.Sprint("mood ", mood%7))
		case 2:
			return nil, tool.ErrTransient
		case 3:
			return nil, tool.ToolDiscard(errors.New("never"))
		case 4:
			return json.RawMessage(`{"not": json`), nil
		case 5:
			_, err := step.SideEffect(ctx, "refused", func() (int, error) { return 0, errors.New("refused") })
			return nil, err
		case 6:
			if len(others) > 0 {
				return step.CallTool(ctx, step.ToolCall{Name: others[mood/12%uint64(len(others))], Args: in})
			}
		case 7:
			return nil, tool.ErrFuel
		case 8:
			return nil, nil
		}
		at := step.Now(ctx)
		v, err := step.SideEffect(ctx, "value", func() (map[string]any, error) { return map[string]any{"f": 1.0, "u": uint64(1) << 63, "at": at}, nil })
		if err != nil {
			return nil, err
		}
		return json.Marshal(map[string]any{"v": v, "in": in})
	})
}

// hostileArgs are what models write.
var hostileArgs = []string{
	`{}`, ``, ` `, `{"a":1}`, `{ "b":2, "a":1.0 }`, `{"a":18446744073709551616}`, `{"a":-0.0}`, `{"a":1e999}`, `{"a":"\ud800"}`, "{\"a\":\"\xff\"}",
	`{"a":1,"a":1}`, `[]`, `null`, `"text"`, `{"a":`, `}`, `{"deep":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
	`{"big":"` + strings.Repeat("x", 100_000) + `"}`, `{"é":"😀","` + "\u202e" + `":0}`,
}

// script draws what a model does in one run.
func script(t *rapid.T, tools []string) []agenttest.Turn {
	names := append([]string{"nobody", "", "mö\xff"}, tools...)
	var turns []agenttest.Turn
	for range rapid.IntRange(0, 4).Draw(t, "turns") {
		var uses []agenttest.Use
		for i := range rapid.IntRange(1, 4).Draw(t, "uses") {
			id := rapid.SampledFrom([]string{"c", "d", "", "a b", strings.Repeat("i", 100)}).Draw(t, "id")
			if rapid.Bool().Draw(t, "unique") {
				id = fmt.Sprint(id, len(turns), "-", i)
			}
			uses = append(uses, agenttest.Use{CallID: id, Tool: rapid.SampledFrom(names).Draw(t, "tool"), Args: rapid.SampledFrom(hostileArgs).Draw(t, "args")})
		}
		turns = append(turns, agenttest.Calls(uses...))
	}
	return append(turns, lastTurn(t))
}

// lastTurn draws how a model ends.
func lastTurn(t *rapid.T) agenttest.Turn {
	text := provider.StreamChunk{Kind: provider.ChunkText, Text: "so\xff be it"}
	return rapid.SampledFrom([]agenttest.Turn{
		agenttest.Say("done"), agenttest.Say(""), thoughtful(),
		{Refuse: provider.ErrAuth}, {Refuse: errors.New("bad request \xff")}, {Chunks: []provider.StreamChunk{text}, Breaks: errors.New("broken")},
		{Chunks: []provider.StreamChunk{text}}, {Chunks: []provider.StreamChunk{{Kind: 99}}}, {Chunks: []provider.StreamChunk{{Kind: provider.ChunkUsage}}},
		{Chunks: []provider.StreamChunk{{Kind: provider.ChunkToolUseEnd, ToolUse: &provider.ToolUseChunk{CallID: "x"}}}},
		{Chunks: []provider.StreamChunk{agenttest.End("stop"), text}}, {Chunks: []provider.StreamChunk{agenttest.Tokens(-1, 0)}},
	}).Draw(t, "end")
}

// TestAnythingReplays runs random models with random tools, cuts some of the runs
// off and resumes them: the log is always valid, and the replay always identical.
func TestAnythingReplays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tools := []tool.Tool{moody("leaf"), moody("tree", "leaf", "nobody"), moody("top", "tree", "leaf")}
		a := newAgent(script(t, []string{"leaf", "tree", "top"}), tools...)
		a.Config.MaxTurns = rapid.IntRange(0, 5).Draw(t, "max turns")
		a.Config.ModelAttempts = 1
		a.Budget.MaxEffects = uint64(rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "effects"))
		a.Config.Retries = map[string]tool.RetryConfig{"leaf": {MaxAttempts: rapid.IntRange(1, 3).Draw(t, "attempts")}}
		r, _ := a.Run(context.Background(), "go")
		if r == nil {
			t.Fatal("the run has no end")
		}
		events := eventsOf(t, a, r.RunID, false)
		mustReplay(t, a, r, events)
		if n := rapid.IntRange(0, len(events)-1).Draw(t, "cut"); n > 0 {
			again := *a
			again.Log = cut(t, events, n)
			r, err := again.Resume(context.Background(), r.RunID, rapid.SampledFrom([]string{"", "and?"}).Draw(t, "message"))
			if r == nil {
				t.Fatal(err)
			}
			mustReplay(t, &again, r, eventsOf(t, &again, r.RunID, false))
		}
	})
}
