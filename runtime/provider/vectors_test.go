package provider_test

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/provider"
)

const vectors = "../../../shared/vectors/starling/"

// recorded is the part of an event in the Starling runtime's logs that the test needs.
type recorded struct {
	RunID   string `json:"run_id"`
	Kind    string
	Payload struct {
		Goal         string
		ModelID      string `json:"model_id"`
		SystemPrompt string `json:"system_prompt"`
		PromptHash   []byte `json:"prompt_hash"`
		Text         string
		ToolUses     []struct {
			CallID string `json:"call_id"`
			Tool   string
			Args   []byte
		} `json:"tool_uses"`
		CallID string `json:"call_id"`
		Result []byte
	}
}

func events(t *testing.T) map[string][]recorded {
	t.Helper()
	f, err := os.Open(vectors + "ref.ndjson")
	if err != nil {
		t.Skipf("SKIPPED: the logs of the Starling runtime are not here: %v", err)
	}
	defer f.Close()
	runs := map[string][]recorded{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var ev recorded
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			t.Fatal(err)
		}
		runs[ev.RunID] = append(runs[ev.RunID], ev)
	}
	return runs
}

// definitions are the tools of the recorded runs, in the order in which they
// were registered.
func definitions(t *testing.T) []provider.ToolDefinition {
	t.Helper()
	text, err := os.ReadFile(vectors + "ref.tools.json")
	if err != nil {
		t.Fatal(err)
	}
	var tools map[string]struct{ Description, Schema string }
	if err := json.Unmarshal(text, &tools); err != nil {
		t.Fatal(err)
	}
	var list []provider.ToolDefinition
	for _, name := range []string{"weather", "boom", "fail", "echo"} {
		list = append(list, provider.ToolDefinition{Name: name, Description: tools[name].Description, Schema: json.RawMessage(tools[name].Schema)})
	}
	return list
}

// TestPromptHashOfTheSeeds rebuilds every prompt of the Starling runtime's logs from
// the events before it, and compares the hash that the Starling runtime recorded.
func TestPromptHashOfTheSeeds(t *testing.T) {
	// A tool's random number became a float in these logs, so the text that the
	// model saw is lost.
	lost := map[string]bool{"tool": true, "parallel": true}
	prompts := 0
	for id, run := range events(t) {
		req := provider.Request{Model: run[0].Payload.ModelID, SystemPrompt: run[0].Payload.SystemPrompt, Tools: definitions(t)}
		req.Messages = []provider.Message{{Role: provider.RoleUser, Content: run[0].Payload.Goal}}
		for i, ev := range run {
			switch ev.Kind {
			case "TurnStarted":
				if lost[run[0].Payload.Goal] && i > 1 {
					continue
				}
				prompts++
				got, err := req.Hash()
				if err != nil || !slices.Equal(got[:], ev.Payload.PromptHash) {
					t.Errorf("%s, event %d: %v, %v", id, i+1, got, err)
				}
			case "AssistantMessageCompleted":
				m := provider.Message{Role: provider.RoleAssistant, Content: ev.Payload.Text}
				for _, use := range ev.Payload.ToolUses {
					m.ToolUses = append(m.ToolUses, provider.ToolUse{CallID: use.CallID, Name: use.Tool, Args: jsonOf(t, use.Args)})
				}
				req.Messages = append(req.Messages, m)
			case "ToolCallCompleted":
				req.Messages = append(req.Messages, provider.Message{
					Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: ev.Payload.CallID, Content: string(jsonOf(t, ev.Payload.Result))},
				})
			}
		}
	}
	if prompts != 10 {
		t.Errorf("%d prompts were compared", prompts)
	}
}

func jsonOf(t *testing.T, raw canon.Raw) []byte {
	t.Helper()
	text, err := canon.ToJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
