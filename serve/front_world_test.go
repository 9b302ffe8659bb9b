package serve

import (
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/host/policy"
)

// TestAnAssistantIsToldWhichToolsReachTheWorld: what counts is what the policies let a
// tool do, since what it says of itself binds nobody.
func TestAnAssistantIsToldWhichToolsReachTheWorld(t *testing.T) {
	w := newWorld(t)
	for who, text := range map[string]string{
		"alice": "{host: api.example.com, tools: [asks]}",
		"bob":   "{host: api.example.com, tools: [others]}",
	} {
		w.upload(who, "asks", "hello")
		w.upload(who, "sums", "seven")
		if _, err := w.config.Tenants.SetPolicy(t.Context(), who, allowing(text), true); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.open("alice"); len(got) > 0 {
		t.Errorf("without a policy of the operator's %v reach the world", got)
	}
	operators, err := policy.Parse("operator", []byte(allowing("{host: .example.com}")))
	if err != nil {
		t.Fatal(err)
	}
	w.config.Policy = func() *policy.Policy { return operators }
	w = w.another()
	if got := w.open("alice"); len(got) != 1 || got[0] != "asks" {
		t.Errorf("of alice's tools %v reach the world, want asks", got)
	}
	if got := w.open("bob"); len(got) > 0 {
		t.Errorf("of bob's tools %v reach the world", got)
	}
}

func allowing(rule string) string {
	return "version: \"1.0\"\npermissions: {network: {allow: [" + rule + "]}}\n"
}

// open returns the tools of a tenant that an assistant is told to reach the world.
func (w *world) open(who string) (names []string) {
	w.t.Helper()
	for tool, err := range w.assistant(who).Tools(w.t.Context(), &mcp.ListToolsParams{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		if hint := tool.Annotations.OpenWorldHint; hint == nil || *hint {
			names = append(names, tool.Name)
		}
	}
	return names
}
