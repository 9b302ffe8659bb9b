package mcpsrv_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// confirmed are one user's tools under a policy that wants each call confirmed, twice.
type confirmed struct{ local }

// asked is a tool for a guard.
type asked struct{ tool.Tool }

func (confirmed) List(context.Context) ([]mcpsrv.Tool, error) {
	return []mcpsrv.Tool{toolNamed("remove")}, nil
}

func (confirmed) Call(ctx context.Context, c mcpsrv.Call) (mcpsrv.Result, error) {
	p, err := policy.Parse("p.yaml", []byte(`{version: "1.0", permissions: {tools: {remove: {ask: true}}}}`))
	if err != nil {
		return mcpsrv.Result{}, err
	}
	_, guards := tool.Unguard(policy.NewRun(p, nil, nil).Guard(asked{}))
	var all []event.Verdicts
	for range 2 {
		all = append(all, guards[0](ctx, c.Name, c.Arguments))
	}
	if ctx.Err() != nil {
		return mcpsrv.Result{}, ctx.Err()
	}
	output, err := json.Marshal(all)
	return mcpsrv.Result{RunID: "R", Output: output}, err
}

// TestTheUserIsAsked asks the users of clients of both forms of the protocol, and of a
// client that cannot ask.
func TestTheUserIsAsked(t *testing.T) {
	for _, version := range []string{stateful, stateless} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			url, stop := servedLocally(t, confirmed{local{waiting: newWaiting(), change: make(chan struct{}), more: make(chan struct{})}})
			defer func() { _ = stop() }()
			call := func(path string, o *mcp.ClientOptions) string {
				t.Helper()
				session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o).
					Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: version})
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close()
				result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "remove", Arguments: map[string]any{"path": path}})
				if err != nil {
					t.Fatal(err)
				}
				return result.Content[0].(*mcp.TextContent).Text
			}
			answers := []string{"accept", "decline"}
			said := call("/a\u202eb", &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				if r.Params.Message != "Do you allow the tool remove to be called with these arguments?\n  \"path\": \"/a"+`\u202e`+"b\"" || len(answers) == 0 {
					t.Errorf("the question is %q", r.Params.Message)
				}
				answer := answers[0]
				answers = answers[1:]
				return &mcp.ElicitResult{Action: answer}, nil
			}})
			if strings.Count(said, `"Answer":"accept"`) != 1 || strings.Count(said, `"Answer":"decline"`) != 1 || !strings.Contains(said, "the user was asked and declined") {
				t.Errorf("the verdicts are %s", said)
			}
			// If the text is cut, the user must tick a box to allow the call.
			content := []map[string]any{{}, {"allow": true}}
			said = call(strings.Repeat("/a", 4000), &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				given := content[0]
				content = content[1:]
				return &mcp.ElicitResult{Action: "accept", Content: given}, nil
			}})
			if strings.Count(said, `"Answer":"accept"`) != 1 || strings.Count(said, `"Answer":"decline"`) != 1 || len(content) != 0 {
				t.Errorf("of a question that is cut the verdicts are %s", said)
			}
			if said := call("", nil); strings.Count(said, "cannot be asked: this client does not support elicitation") != 2 {
				t.Errorf("without elicitation the verdicts are %s", said)
			}
		})
	}
}
