package step_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// action is one thing that a scripted tool does.
type action struct {
	Do     string // now, random, seed, effect, failing effect, unsafe effect, call, calls, panic, fail
	Name   string // of the effect
	Result int    // of the effect
	Calls  []script
}

// script is what a scripted tool does, in order; it is the tool's input.
type script struct {
	Actions []action
	Result  int
	Flaky   int // how many attempts fail transiently first
}

// scriptGen draws scripts of at most the given depth.
func scriptGen(depth int) *rapid.Generator[script] {
	kinds := []string{"now", "random", "seed", "effect", "failing effect", "unsafe effect", "panic", "fail"}
	if depth > 0 {
		kinds = append(kinds, "call", "calls", "call", "calls")
	}
	return rapid.Custom(func(t *rapid.T) script {
		s := script{Result: rapid.IntRange(0, 9).Draw(t, "result")}
		if rapid.IntRange(0, 4).Draw(t, "flaky") == 0 {
			s.Flaky = rapid.IntRange(1, 2).Draw(t, "attempts")
		}
		for range rapid.IntRange(0, 4).Draw(t, "actions") {
			a := action{
				Do:     rapid.SampledFrom(kinds).Draw(t, "do"),
				Name:   rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name"),
				Result: rapid.IntRange(0, 9).Draw(t, "value"),
			}
			switch a.Do {
			case "call":
				a.Calls = []script{scriptGen(depth-1).Draw(t, "call")}
			case "calls":
				a.Calls = rapid.SliceOfN(scriptGen(depth-1), 0, 4).Draw(t, "calls")
			}
			s.Actions = append(s.Actions, a)
		}
		return s
	})
}

// scripted is a tool whose input is the script that it follows.
func scripted() tool.Tool {
	return newTool("scripted", func(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
		var s script
		if err := json.Unmarshal(in, &s); err != nil {
			return nil, err
		}
		return s.follow(ctx)
	})
}

func (s script) follow(ctx context.Context) (json.RawMessage, error) {
	seen := []any{s.Result}
	for _, a := range s.Actions {
		v, err := a.perform(ctx)
		if err != nil {
			v = err.Error()
		}
		if a.Do == "fail" {
			return nil, err
		}
		seen = append(seen, v)
		runtime.Gosched()
	}
	if call, _ := step.CallInfo(ctx); int(call.Attempt) <= s.Flaky {
		return nil, fmt.Errorf("attempt %d: %w", call.Attempt, tool.ErrTransient)
	}
	return json.Marshal(seen)
}

func (a action) perform(ctx context.Context) (any, error) {
	switch a.Do {
	case "now":
		return step.Now(ctx), nil
	case "random":
		return step.Random(ctx), nil
	case "seed":
		return step.Seed(ctx), nil
	case "effect":
		return step.SideEffect(ctx, a.Name, func() (int, error) { return a.Result, nil })
	case "failing effect":
		return step.SideEffect(ctx, a.Name, func() (int, error) { return 0, fmt.Errorf("no %d", a.Result) })
	case "unsafe effect":
		e := step.Effect{Name: a.Name, Request: []byte{byte(a.Result)}, Unsafe: true}
		return step.Do(ctx, e, func(_ context.Context, key string) (string, error) { return key, nil })
	case "panic":
		panic(fmt.Sprintf("panic %d", a.Result))
	case "fail":
		return nil, fmt.Errorf("fail %d", a.Result)
	}
	results, err := step.CallTools(ctx, toolCalls(a.Calls))
	var seen []any
	for _, r := range results {
		seen = append(seen, r.Result, fmt.Sprint(r.Err))
	}
	return seen, err
}

func toolCalls(scripts []script) []step.ToolCall {
	calls := make([]step.ToolCall, len(scripts))
	for i, s := range scripts {
		args, err := json.Marshal(s)
		if err != nil {
			panic(err)
		}
		calls[i] = step.ToolCall{
			TurnID: "t", Name: "scripted", Args: args, Idempotent: true, MaxAttempts: 3,
			Backoff: func(int) time.Duration { return 0 },
		}
	}
	return calls
}

// follow is the run of a script.
func follow(s script) body {
	return func(ctx context.Context) error {
		results, err := step.CallTools(ctx, toolCalls([]script{s, {Result: 1}}))
		if err != nil {
			return err
		}
		return results[0].Err
	}
}

func TestAnyRunIsValidAndReplays(t *testing.T) {
	cfg := step.Config{Tools: step.NewRegistry(scripted())}
	rapid.Check(t, func(rt *rapid.T) {
		s := scriptGen(2).Draw(rt, "script")
		events := recordRun(rt, cfg, follow(s))
		mustReplay(rt, events, cfg, follow(s))
	})
}

// TestEveryPrefixIsAnOpenRun cuts runs off everywhere, as a crash does.
func TestEveryPrefixIsAnOpenRun(t *testing.T) {
	cfg := step.Config{Tools: step.NewRegistry(scripted())}
	rapid.Check(t, func(rt *rapid.T) {
		s := scriptGen(1).Draw(rt, "script")
		events := recordRun(rt, cfg, follow(s))
		for n := 1; n < len(events); n++ {
			mustReplayOpen(rt, events[:n], cfg, follow(s))
		}
	})
}

// TestAnyChangeIsADivergence records one script and replays another that
// differs from it in one action. The tool takes its script from outside, so
// that the arguments stay as they were.
func TestAnyChangeIsADivergence(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := scriptGen(0).Draw(rt, "script")
		s.Flaky = 0
		s.Actions = append([]action{{Do: "effect", Name: "first", Result: 1}}, s.Actions...)
		other, want := mutate(rt, s)
		run := func(s script) (step.Config, body) {
			t := newTool("fixed", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) { return s.follow(ctx) })
			return step.Config{Tools: step.NewRegistry(t)}, callOnce("fixed", `{}`)
		}
		cfg, do := run(s)
		events := recordRun(rt, cfg, do)
		cfg, do = run(other)
		mustDiffer(rt, events, cfg, do, want.seq, want.class)
	})
}

type difference struct {
	seq   uint64
	class step.MismatchClass
}

// mutate changes one thing in a script of effects, and tells where that shows:
// the first effect of the script is event 3, after RunStarted and
// ToolCallScheduled.
func mutate(t *rapid.T, s script) (script, difference) {
	const first = 3
	actions := s.Actions
	changed := append([]action(nil), actions...)
	switch rapid.SampledFrom([]string{"name", "missing", "extra", "extra at the end", "kind of effect"}).Draw(t, "change") {
	case "name":
		changed[0].Name = "another"
		s.Actions = changed
		return s, difference{first, step.MismatchPayload}
	case "missing":
		s.Actions = nil
		return s, difference{first, step.MismatchKind}
	case "extra":
		s.Actions = append([]action{{Do: "now"}}, changed...)
		return s, difference{first, step.MismatchPayload}
	case "extra at the end":
		s.Actions = append([]action{changed[0]}, action{Do: "effect", Name: "extra"})
		if len(actions) == 1 || actions[1].Do == "panic" || actions[1].Do == "fail" {
			return s, difference{first + 1, step.MismatchKind}
		}
		return s, difference{first + 1, step.MismatchPayload}
	default:
		changed[0] = action{Do: "random"}
		s.Actions = changed
		return s, difference{first, step.MismatchPayload}
	}
}
