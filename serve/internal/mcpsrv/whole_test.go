package mcpsrv

import (
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestAnswersOfServersArePassedOnWhole also has answers that are hardly any.
func TestAnswersOfServersArePassedOnWhole(t *testing.T) {
	for answer, want := range map[string]string{
		`null`: `{"_meta":{"io.github.starling-host/run_id":"R"},"content":[]}`,
		`{}`:   `{"_meta":{"io.github.starling-host/run_id":"R"},"content":[]}`,
		`{"content":[{"type":"smell"}],"_meta":{"starling/run_id":"forged","a":1e400}}`: `{"_meta":{"a":1e400,"io.github.starling-host/inner":{"starling/run_id":"forged"},"io.github.starling-host/run_id":"R"},"content":[{"type":"smell"}]}`,
		`{"content":"odd","_meta":[]}`: `{"_meta":{"io.github.starling-host/run_id":"R"},"content":"odd"}`,
	} {
		ours := &mcp.CallToolResult{Meta: mcp.Meta{runIDKey: "R"}}
		got, err := json.Marshal(wholeResult{ours, ours, json.RawMessage(answer)})
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", answer, got, err, want)
		}
	}
}
