package budget_test

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"

	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
)

const vectors = "../../../../shared/vectors/starling/"

// recorded is the part of an event in the Starling runtime's logs that the test needs.
type recorded struct {
	RunID   string `json:"run_id"`
	Kind    string
	Payload struct {
		Goal         string
		ModelID      string  `json:"model_id"`
		SystemPrompt string  `json:"system_prompt"`
		InputTokens  int64   `json:"input_tokens"`
		OutputTokens int64   `json:"output_tokens"`
		CostUSD      float64 `json:"cost_usd"`
	}
}

func tools(t *testing.T) (list []provider.ToolDefinition) {
	t.Helper()
	text, err := os.ReadFile(vectors + "ref.tools.json")
	if err != nil {
		t.Skipf("SKIPPED: the logs of the Starling runtime are not here: %v", err)
	}
	var byName map[string]struct{ Schema string }
	if err := json.Unmarshal(text, &byName); err != nil {
		t.Fatal(err)
	}
	for name, tool := range byName {
		list = append(list, provider.ToolDefinition{Name: name, Schema: json.RawMessage(tool.Schema)})
	}
	return list
}

// TestFiguresOfTheSeeds compares with the Starling runtime's records: the
// estimate of each first prompt, and the cost of each answer.
func TestFiguresOfTheSeeds(t *testing.T) {
	req := provider.Request{Tools: tools(t)}
	f, err := os.Open(vectors + "ref.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	first, prompts, answers := false, 0, 0
	for lines.Scan() {
		var ev recorded
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			t.Fatal(err)
		}
		p := ev.Payload
		switch {
		case ev.Kind == "RunStarted":
			req.Model, req.SystemPrompt, first = p.ModelID, p.SystemPrompt, true
			req.Messages = []provider.Message{{Role: provider.RoleUser, Content: p.Goal}}
		case ev.Kind == "TurnStarted" && first:
			first, prompts = false, prompts+1
			if got := budget.EstimateInput(&req); got != p.InputTokens {
				t.Errorf("run %s: an estimate of %d, want %d", ev.RunID, got, p.InputTokens)
			}
		case ev.Kind == "AssistantMessageCompleted":
			answers++
			got, _ := budget.Builtin().Cost(req.Model, provider.Usage{InputTokens: p.InputTokens, OutputTokens: p.OutputTokens})
			if got != p.CostUSD {
				t.Errorf("run %s: a cost of %v, want %v", ev.RunID, got, p.CostUSD)
			}
		}
	}
	if prompts != 8 || answers != 11 {
		t.Errorf("compared %d prompts and %d answers", prompts, answers)
	}
}
