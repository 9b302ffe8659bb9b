package agent_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/provider"
)

// stopped is an answer with a text, a use of the tool clocked if its arguments are not empty,
// and a stop reason.
func stopped(text, args, reason string) agenttest.Turn {
	turn := agenttest.Turn{Chunks: []provider.StreamChunk{{Kind: provider.ChunkText, Text: text}}}
	if args != "" {
		turn.Chunks = append(turn.Chunks, slices.DeleteFunc(agenttest.Call("c-"+reason, "clocked", args).Chunks,
			func(c provider.StreamChunk) bool { return c.Kind == provider.ChunkEnd })...)
	}
	turn.Chunks = append(turn.Chunks, agenttest.End(reason))
	return turn
}

// TestStopReasonsDecideHowARunEnds has models stop for every reason that their providers know.
func TestStopReasonsDecideHowARunEnds(t *testing.T) {
	for reason, want := range map[string]string{
		"": "", "stop": "", "end_turn": "", "stop_sequence": "", "STOP": "", "COMPLETE": "", "eos": "", "unheard of": "",
		"max_tokens": event.ErrorCut, "length": event.ErrorCut, "MAX_TOKENS": event.ErrorCut, "model_context_window_exceeded": event.ErrorCut,
		"refusal": event.ErrorRefused, "content_filter": event.ErrorRefused, "content_filtered": event.ErrorRefused, "guardrail_intervened": event.ErrorRefused,
		"SAFETY": event.ErrorRefused, "RECITATION": event.ErrorRefused, "PROHIBITED_CONTENT": event.ErrorRefused, "A_NEW_WORD": event.ErrorRefused,
		"MALFORMED_FUNCTION_CALL": event.ErrorProvider, "malformed_tool_use": event.ErrorProvider, "error": event.ErrorProvider,
	} {
		for _, args := range []string{"", `{"city":"Oslo"}`} {
			a := newAgent([]agenttest.Turn{stopped("part", args, reason), agenttest.Say("done")}, clocked)
			a.Config.ModelAttempts = 1
			r, err := a.Run(t.Context(), "go")
			if r == nil {
				t.Fatal(err)
			}
			events := eventsOf(t, a, r.RunID, false)
			mustReplay(t, a, r, events)
			if r.ErrorType != want || (want == "") != (err == nil) {
				t.Errorf("%q: ends as %q (%v), want %q", reason, r.ErrorType, err, want)
			}
			var part *agent.AnswerError
			if ends := want == event.ErrorCut || want == event.ErrorRefused; ends &&
				(r.FinalText != "part" || r.StopReason != reason || r.ToolCallCount != 0 || !errors.As(err, &part) || !strings.Contains(r.Error, reason)) {
				t.Errorf("%q: %+v, %v", reason, r, err)
			}
		}
	}
}

// TestPausedAnswersContinueInTheNextTurn continues an answer in the next turns, also in another process.
func TestPausedAnswersContinueInTheNextTurn(t *testing.T) {
	a := newAgent([]agenttest.Turn{stopped("one, ", "", "pause_turn"), stopped("two, ", "", "pause_turn"), stopped("three", "", "end_turn")})
	r, err := a.Run(t.Context(), "go")
	if err != nil || r.FinalText != "one, two, three" || r.TurnCount != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	events := eventsOf(t, a, r.RunID, false)
	mustReplay(t, a, r, events)
	for n := 1; n < len(events); n++ {
		again := *a
		again.Log = cut(t, events, n)
		resumed, err := again.Resume(t.Context(), r.RunID, "")
		if err != nil || resumed.FinalText != "one, two, three" {
			t.Errorf("cut behind %d events: %+v, %v", n, resumed, err)
		}
	}
}

// TestCutAnswersAreRememberedWhenARunIsResumed has the process die between the answer and the
// end of the run. A message takes the conversation on.
func TestCutAnswersAreRememberedWhenARunIsResumed(t *testing.T) {
	a := newAgent([]agenttest.Turn{stopped("half", `{"city":"Os`, "max_tokens"), agenttest.Say("whole")}, clocked)
	r, _ := a.Run(t.Context(), "go")
	events := eventsOf(t, a, r.RunID, false)
	for message, want := range map[string]event.Kind{"": event.KindRunFailed, "Shorter.": event.KindRunCompleted} {
		again := *a
		again.Log = cut(t, events, len(events)-1)
		resumed, err := again.Resume(t.Context(), r.RunID, message)
		if resumed == nil || resumed.TerminalKind != want {
			t.Fatalf("%q: %+v, %v", message, resumed, err)
		}
		mustReplay(t, &again, resumed, eventsOf(t, &again, r.RunID, false))
	}
}

// seeing is a tool whose result has an image, as that of a server has.
var seeing = raw("see", func(context.Context, json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(`{"content":[{"type":"image","mimeType":"image/png","data":"aGk="}]}`), nil
})

// TestOlderRunsWithStopReasonsReplay replays a run of the version that did not look at stop
// reasons, said less of broken arguments, and had images in the text. It replays as it was,
// and goes on as it is now.
func TestOlderRunsWithStopReasonsReplay(t *testing.T) {
	events := recordedEarlier(t, "whole-answers.events")
	a := newAgent([]agenttest.Turn{agenttest.Say("never"), agenttest.Say("never"), agenttest.Say("whole")}, seeing)
	r, err := a.Replay(t.Context(), events, agent.ReplayOptions{})
	if err != nil || r.TerminalKind != event.KindRunCompleted || r.FinalText != "half" {
		t.Fatalf("%+v, %v", r, err)
	}
	a.Log = cut(t, events, len(events)-3) // before the last turn
	r, err = a.Resume(t.Context(), events[0].RunID, "")
	if err != nil || r.FinalText != "whole" {
		t.Fatalf("%+v, %v", r, err)
	}
	mustReplay(t, a, r, eventsOf(t, a, r.RunID, false))
}

// recordedEarlier reads a run that an earlier version has recorded.
func recordedEarlier(t *testing.T, name string) (events []event.Event) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		envelope, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		ev, err := event.Unmarshal(envelope)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, ev)
	}
	return events
}

// TestOlderRunsWithImagesBeyondTheirBudgetReplay: the budget had counted the images as text.
func TestOlderRunsWithImagesBeyondTheirBudgetReplay(t *testing.T) {
	large := raw("see", func(context.Context, json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(`{"content":[{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("aGkh", 1000) + `"}]}`), nil
	})
	a := newAgent(nil, large)
	a.Budget.MaxInputTokens = 600
	r, err := a.Replay(t.Context(), recordedEarlier(t, "images-beyond-budget.events"), agent.ReplayOptions{})
	if err != nil || r.ErrorType != event.ErrorBudget {
		t.Fatalf("%+v, %v", r, err)
	}
}

// TestImagesReachTheModelApart has a tool return an image: the model gets it as one, and a
// replay builds the same prompt.
func TestImagesReachTheModelApart(t *testing.T) {
	var seen []provider.Message
	turns := []agenttest.Turn{agenttest.Call("c1", "see", `{}`), agenttest.Say("a cat")}
	turns[1].Expects = func(r *provider.Request) error { seen = r.Messages; return nil }
	a := newAgent(turns, seeing)
	r, err := a.Run(t.Context(), "look")
	if err != nil {
		t.Fatal(err)
	}
	result := seen[len(seen)-1].ToolResult
	want := provider.ToolResult{CallID: "c1", Content: `{"content":[{"type":"image","mimeType":"image/png","bytes":2,"number":1}]}`,
		Images: []provider.Image{{Type: "image/png", Data: []byte("hi")}}}
	if diff := cmp.Diff(&want, result); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	mustReplay(t, a, r, eventsOf(t, a, r.RunID, false))
}

// TestToolNamesThatVendorsRefuse: the model is shown another name, and the log has the tool's.
func TestToolNamesThatVendorsRefuse(t *testing.T) {
	dotted := raw("a.b/c", func(context.Context, json.RawMessage) (json.RawMessage, error) { return json.RawMessage(`1`), nil })
	plain, _ := (&provider.Request{Tools: []provider.ToolDefinition{{Name: dotted.Name()}}}).PlainNames()
	turns := []agenttest.Turn{agenttest.Call("c1", plain.Tools[0].Name, `{}`), agenttest.Say("done")}
	for i := range turns {
		turns[i].Expects = func(r *provider.Request) error {
			if strings.ContainsAny(r.Tools[0].Name, "./") || i == 1 && strings.ContainsAny(r.Messages[1].ToolUses[0].Name, "./") {
				return errors.New("a name that is refused")
			}
			return nil
		}
	}
	a := newAgent(turns, dotted)
	r, err := a.Run(t.Context(), "go")
	if err != nil {
		t.Fatal(err)
	}
	events := eventsOf(t, a, r.RunID, false)
	call, err := events[3].AsToolCallScheduled()
	if err != nil || call.ToolName != "a.b/c" {
		t.Errorf("%+v, %v", call, err)
	}
	mustReplay(t, a, r, events)
}
