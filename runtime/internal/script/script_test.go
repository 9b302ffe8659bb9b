package script_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/internal/script"
	"github.com/starling-host/starling/runtime/internal/validate"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/providertest"
	"github.com/starling-host/starling/spec"
)

const dice = `# yaml
- reasoning: {text: I should roll, signature: c2ln}
  text: Let me roll.
  tool_calls:
    - name: dice
      args: {sides: 6, rolls: 2, big: 9007199254740993, half: 1.0}
    - {id: second, name: dice, raw: '{"rolls":'}
- when: {contains: seven}
  text: Seven!
  stop_reason: stop
- when: {contains: eight}
  text: "Eight é!"
  chunk: 3
  usage: {input_tokens: 1, output_tokens: 2, cache_read_tokens: 3, cache_create_tokens: 4}
- reasoning:
    - opaque thing
    - {text: abc==, redacted: true}
  text: Neither.
- text: I am at a loss
  error: {class: server, message: the server is on fire, after_chunks: 2}
`

func parse(t testing.TB, text string) script.Script {
	t.Helper()
	s, err := script.Parse("s.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func model(t testing.TB, s script.Script) provider.Provider {
	t.Helper()
	p, err := script.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ask returns the request of a conversation in which the model has spoken some
// times, and which ends with the message of a user.
func ask(spoken int, last string) *provider.Request {
	req := &provider.Request{Model: "m", SystemPrompt: "abc"}
	for range spoken {
		req.Messages = append(req.Messages, provider.Message{Role: provider.RoleUser}, provider.Message{Role: provider.RoleAssistant})
	}
	req.Messages = append(req.Messages, provider.Message{Role: provider.RoleUser, Content: last})
	return req
}

func text(pieces ...string) []provider.StreamChunk {
	var list []provider.StreamChunk
	for _, p := range pieces {
		list = append(list, provider.StreamChunk{Kind: provider.ChunkText, Text: p})
	}
	return list
}

func call(id, name string, pieces ...string) []provider.StreamChunk {
	list := []provider.StreamChunk{{Kind: provider.ChunkToolUseStart, ToolUse: &provider.ToolUseChunk{CallID: id, Name: name}}}
	for _, p := range pieces {
		list = append(list, provider.StreamChunk{Kind: provider.ChunkToolUseDelta, ToolUse: &provider.ToolUseChunk{CallID: id, ArgsDelta: p}})
	}
	return append(list, provider.StreamChunk{Kind: provider.ChunkToolUseEnd, ToolUse: &provider.ToolUseChunk{CallID: id}})
}

// ending returns the last two chunks of a turn.
func ending(t testing.TB, turn script.Turn, step int, reason string, usage provider.Usage) []provider.StreamChunk {
	t.Helper()
	encoded, err := canon.Marshal(turn)
	if err != nil {
		t.Fatal(err)
	}
	sum := canon.Sum(encoded)
	return []provider.StreamChunk{
		{Kind: provider.ChunkUsage, Usage: &usage},
		{Kind: provider.ChunkEnd, StopReason: reason, RawResponseHash: sum[:], RequestID: fmt.Sprintf("script_%d", step)},
	}
}

func join(lists ...[]provider.StreamChunk) (all []provider.StreamChunk) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func TestAnswers(t *testing.T) {
	s := parse(t, dice)
	p := model(t, s)
	reasoning := []provider.StreamChunk{
		{Kind: provider.ChunkReasoning, Text: "I "}, {Kind: provider.ChunkReasoning, Text: "should "},
		{Kind: provider.ChunkReasoning, Text: "roll", Signature: []byte("c2ln")},
	}
	for name, c := range map[string]struct {
		req  *provider.Request
		want []provider.StreamChunk
	}{
		"the first turn": {ask(0, "roll two dice"), join(reasoning, text("Let ", "me ", "roll."),
			call("call_1_1", "dice", `{"big":9007199254740993,"half":1.0,"rolls":2,"sides":6}`),
			call("second", "dice", `{"rolls":`),
			ending(t, s[0], 1, "tool_use", provider.Usage{InputTokens: 6, OutputTokens: 30}))},
		"a guard that holds": {ask(1, "it is seven"), join(text("Seven!"), ending(t, s[1], 2, "stop", provider.Usage{InputTokens: 5, OutputTokens: 2}))},
		"another one, in pieces of three characters": {ask(1, "it is eight"), join(text("Eig", "ht ", "é!"),
			ending(t, s[2], 2, "end_turn", provider.Usage{InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheCreateTokens: 4}))},
		"no guard that holds": {ask(1, "it is nine"), join(
			[]provider.StreamChunk{{Kind: provider.ChunkReasoning, Text: "opaque "}, {Kind: provider.ChunkReasoning, Text: "thing"}, {Kind: provider.ChunkRedactedThinking, Text: "abc=="}},
			text("Neither."), ending(t, s[3], 2, "end_turn", provider.Usage{InputTokens: 5, OutputTokens: 9}))},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				got, err := providertest.Converse(t.Context(), p, c.req)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestGuardsLookAtResults(t *testing.T) {
	req := ask(1, "roll")
	req.Messages = append(req.Messages, provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "c", Content: `"seven"`}})
	got, err := providertest.Converse(t.Context(), model(t, parse(t, dice)), req)
	if err != nil || got[0].Text != "Seven!" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFailures(t *testing.T) {
	guarded := parse(t, `[{when: {contains: a}, text: b}]`)
	failing := func(class script.Class) script.Script { return script.Script{{Error: &script.Failure{Class: class}}} }
	options := ask(0, "x")
	options.Params, _ = canon.Marshal(map[string]any{"temperature": 1})
	noMap := ask(0, "x")
	noMap.Params, _ = canon.Marshal([]int{1})
	for name, c := range map[string]struct {
		script script.Script
		req    *provider.Request
		chunks int
		class  error
		want   string
	}{
		"in the middle":       {parse(t, dice), ask(2, ""), 2, provider.ErrServer, "provider: server failure: script: the server is on fire"},
		"rate limit":          {failing(script.RateLimit), ask(0, ""), 0, provider.ErrRateLimit, "provider: rate limit: script: rate limit"},
		"auth":                {failing(script.Auth), ask(0, ""), 0, provider.ErrAuth, "provider: not authorised: script: auth"},
		"network":             {failing(script.Network), ask(0, ""), 0, provider.ErrNetwork, "provider: network failure: script: network"},
		"bad request":         {failing(script.BadRequest), ask(0, ""), 0, nil, "script: bad request"},
		"no turn left":        {parse(t, dice), ask(3, ""), 0, nil, "script: the model is asked for the answer of step 4, and the script has 3"},
		"no guard holds":      {guarded, ask(0, "x"), 0, nil, `script: no turn of step 1 is for the message "x": add one without a guard`},
		"an option":           {guarded, options, 0, nil, `script: there is no option "temperature": a scripted model has none`},
		"options that are no": {guarded, noMap, 0, nil, "Request.Params is not a CBOR map of options"},
	} {
		t.Run(name, func(t *testing.T) {
			chunks, err := providertest.Converse(t.Context(), model(t, c.script), c.req)
			if err == nil || !strings.Contains(err.Error(), c.want) || len(chunks) != c.chunks {
				t.Errorf("%d chunks, %v; want %d, %s", len(chunks), err, c.chunks, c.want)
			}
			for _, class := range []error{provider.ErrRateLimit, provider.ErrAuth, provider.ErrServer, provider.ErrNetwork} {
				if errors.Is(err, class) != (class == c.class) {
					t.Errorf("%v is of class %v", err, class)
				}
			}
		})
	}
}

// judge asks another validator what the schema says.
func judge(t testing.TB, text string) error {
	t.Helper()
	compiled, err := validate.Compile(work.Trusted(t.Context()), spec.ScriptSchema())
	if err != nil {
		t.Fatal(err)
	}
	n, err := config.Parse("s.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := json.Marshal(n.Value())
	if err != nil {
		t.Fatal(err)
	}
	return compiled.Check(doc)
}

func TestSchemaAgrees(t *testing.T) {
	if err := judge(t, dice); err != nil {
		t.Error(err)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an unknown key": {"- text: a\n- txet: b", `s.yaml:2:3: unknown key "txet"
  2 | - txet ...
    |   ^
hint: did you mean "text"?`},
		"a map": {"turns:\n  - text: a", `s.yaml:1:1: a script is a list of turns, and has at least one
  1 | turns:
    | ^
hint: begin each turn with a dash, as in: - text: Hello.`},
		"no turns": {"[]", "s.yaml:1:1: a script is a list of turns, and has at least one\n  1 | []\n    | ^\nhint: begin each turn with a dash, as in: - text: Hello."},
		"a class that is none": {"- error: {class: oops}", `s.yaml:1:18: unknown class of failure "oops": want auth, bad_request, network, rate_limit, server
  1 | - error: {class: oops}
    |                  ^`},
		"more chunks than there are": {"- text: a b\n  error: {class: auth, after_chunks: 3}", `s.yaml:1:3: after_chunks is 3, but the turn has 2 chunks
  1 | - text: a b
    |   ^`},
		"an empty guard": {"- when: {contains: ''}", `s.yaml:1:20: "contains" must have text
  1 | - when: {contains: ''}
    |                    ^
hint: What the user said or a tool returned.`},
		"arguments twice": {"- tool_calls:\n  - name: a\n    args: {}\n    raw: x", `s.yaml:4:10: a tool call has "args" or "raw", not both
  4 |     raw: x
    |          ^`},
		"arguments that are a list": {"- tool_calls: [{name: a, args: [1]}]", `s.yaml:1:32: arguments must be a map
  1 | - tool_calls: [{name: a, args: [1]}]
    |                                ^
hint: for arguments that are none, write them as text under "raw"`},
		"a call without a name": {"- tool_calls: [{args: {}}]", `s.yaml:1:16: the required key "name" is missing
  1 | - tool_calls: [{args: {}}]
    |                ^
hint: The name of the tool.`},
		"an id twice": {"- tool_calls: [{name: a, id: x}, {name: b, id: x}]", `s.yaml:1:3: two tool calls have the id "x"
  1 | - tool_calls: [{name: a, id: x}, {name: b, id: x}]
    |   ^`},
		"reasoning that is signed and redacted": {"- reasoning: {text: a, signature: b, redacted: true}", `s.yaml:1:35: a block of reasoning has a signature only if it is not redacted
  1 | - reasoning: {text: a, signature: b, redacted: true}
    |                                   ^`},
		"a delay without a unit": {"- delay: 3", `s.yaml:1:10: this must be a duration
  1 | - delay: 3
    |          ^
hint: write a number and a unit, such as 90s, 1m30s or 30d`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := script.Parse("s.yaml", []byte(c.text))
			if diff := cmp.Diff(c.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			seen := !strings.Contains(c.want, "two tool calls") && !strings.Contains(c.want, "after_chunks is")
			if err := judge(t, c.text); (err != nil) != seen {
				t.Errorf("another reader of the schema says %v", err)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		turn script.Turn
		want string
	}{
		"text that is not UTF-8":    {script.Turn{Text: "\xff"}, "UTF-8"},
		"a chunk below zero":        {script.Turn{Chunk: -1}, "zero or more"},
		"a delay below zero":        {script.Turn{Delay: -1}, "zero or more"},
		"tokens below zero":         {script.Turn{Usage: &script.Usage{OutputTokens: -1}}, "zero or more"},
		"an empty guard":            {script.Turn{When: &script.Guard{}}, "must have text"},
		"a call without a name":     {script.Turn{ToolCalls: []script.ToolCall{{}}}, "needs a name"},
		"reasoning without text":    {script.Turn{Reasoning: script.Blocks{{}}}, "has text"},
		"failing before it begins":  {script.Turn{Error: &script.Failure{Class: script.Auth, AfterChunks: -1}}, "want 0 or more"},
		"failing in no known class": {script.Turn{Error: &script.Failure{}}, "unknown class"},
	} {
		if _, err := script.New(script.Script{{Text: "fine"}, c.turn}); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "script: turn 2: ") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := script.New(nil); err == nil {
		t.Error("a script without turns was taken")
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.json")
	if err := os.WriteFile(path, []byte(`[{"text":"a\u0062","tool_calls":[{"name":"t","args":{"k":[null]}}]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := script.Load(path)
	want := script.Script{{Text: "ab", ToolCalls: []script.ToolCall{{Name: "t", Args: `{"k":[null]}`}}}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := script.Load(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestConcurrent has one provider serve many conversations at once.
func TestConcurrent(t *testing.T) {
	p := model(t, parse(t, dice))
	want := map[string]string{"seven": "Seven!", "eight": "Eig", "": "opaque "}
	var all sync.WaitGroup
	for range 8 {
		for last, first := range want {
			all.Go(func() {
				for range 20 {
					got, err := providertest.Converse(t.Context(), p, ask(1, last))
					if err != nil || got[0].Text != first {
						t.Errorf("%q: %+v, %v", last, got, err)
						return
					}
				}
			})
		}
	}
	all.Wait()
}

// FuzzParse checks that accepted scripts can be played: the pieces of each turn
// add up to its text and its arguments.
func FuzzParse(f *testing.F) {
	f.Add([]byte(dice))
	f.Add([]byte(`[{"text":"a b","chunk":1,"usage":{"input_tokens":1},"delay":"1ms"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := script.Parse("s", data)
		if err != nil {
			if !errors.As(err, new(*config.Error)) {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		for i := range s {
			s[i].When, s[i].Delay = nil, 0
		}
		p, err := script.New(s)
		if err != nil {
			t.Fatal(err)
		}
		for i, turn := range s {
			chunks, err := providertest.Converse(t.Context(), p, ask(i, ""))
			if (err != nil) != (turn.Error != nil) {
				t.Fatalf("turn %d: %v", i+1, err)
			}
			if said, wrote := content(chunks); err == nil && (said != turn.Text || wrote != args(turn)) {
				t.Fatalf("turn %d: %q, %q", i+1, said, wrote)
			}
		}
	})
}

func content(chunks []provider.StreamChunk) (said, wrote string) {
	for _, c := range chunks {
		switch c.Kind {
		case provider.ChunkText:
			said += c.Text
		case provider.ChunkToolUseDelta:
			wrote += c.ToolUse.ArgsDelta
		}
	}
	return said, wrote
}

func args(turn script.Turn) (all string) {
	for _, c := range turn.ToolCalls {
		if c.Args == "" {
			c.Args = "{}"
		}
		all += c.Args
	}
	return all
}
