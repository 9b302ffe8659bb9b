package mcpsrv

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/logview"
)

// logTools are the tools over a log. What they look at comes with the context, so
// that they are made once.
var logTools = sync.OnceValue(func() []tool.Tool {
	return []tool.Tool{
		tool.Typed("list_runs", "List recorded runs, the newest first, with their state, size, tool calls, tokens and cost.", onView(listRuns)),
		tool.Typed("get_run", "One run: its state and totals, and its events from one number on, each with its payload if that is short.", onView(getRun)),
		tool.Typed("get_event", "One event of a run, with its hash and its whole payload.", onView(getEvent)),
		tool.Typed("summarize_run", "What a run was to do, how it ended, what it used, which tools it called how often, and where it failed.", onView(summarizeRun)),
		tool.Typed("validate_run", "Check the hash chain, the Merkle root and the invariants of a run. Nothing is executed.", onView(validateRun)),
		tool.Typed("diff_runs", "Align two runs by the numbers of their events and say where they first differ.", onView(diffRuns)),
		tool.Typed("search_runs", "Find events by a text in their payload or by kind. Query or kind is required.", onView(searchRuns)),
	}
})

// reserved are the names of the tools over a log.
func reserved() []string {
	var names []string
	for _, t := range logTools() {
		names = append(names, t.Name())
	}
	return names
}

// viewKey is where the view of a call is.
type viewKey struct{}

// onView gives a function of a view the form of a tool's function.
func onView[In, Out any](fn func(context.Context, logview.View, In) (Out, error)) func(context.Context, In) (Out, error) {
	return func(ctx context.Context, in In) (Out, error) {
		v, _ := ctx.Value(viewKey{}).(logview.View)
		return fn(ctx, v, in)
	}
}

// maxTime bounds one call of a tool over a log.
const maxTime = 30 * time.Second

// addLogTools presents the tools over a log.
func addLogTools(server *mcp.Server, v logview.View, log *slog.Logger) {
	open := false
	for _, t := range logTools() {
		presented := &mcp.Tool{
			Name: t.Name(), Description: t.Description(), InputSchema: t.Schema(),
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: &open},
		}
		server.AddTool(presented, func(asked context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			ctx, cancel := context.WithTimeout(asked, maxTime)
			defer cancel()
			output, err := t.Execute(context.WithValue(ctx, viewKey{}, v), arguments(r))
			if asked.Err() != nil {
				return nil, asked.Err() // there is no response
			} else if err != nil {
				return failed(explain(ctx, log, t.Name(), err)), nil
			}
			output = starling.PrintableJSON(output)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(output)}}, StructuredContent: output}, nil
		})
	}
}

// explain is what the client is told of an error. What is absent and what belongs to
// others reads the same.
func explain(ctx context.Context, log *slog.Logger, name string, err error) string {
	var mistake *mistake
	kind, _ := tool.KindOf(err)
	unreadable := logview.Unreadable(err)
	switch {
	case unreadable != "":
		return unreadable
	case kind == abi.ErrorDiscard, errors.As(err, &mistake), errors.Is(err, eventlog.ErrLogCorrupt):
		return starling.PrintableError(err)
	case errors.Is(err, eventlog.ErrRunNotFound):
		return "there is no such run"
	case errors.Is(err, logview.ErrEventNotFound):
		return "the run has no event of that number"
	case errors.Is(err, context.DeadlineExceeded):
		return "it takes too long: ask for less"
	}
	log.ErrorContext(ctx, "mcpsrv: tool failed", "tool", name, "error", err)
	return "the log could not be read"
}

// mistake is one in what was asked for, beyond what a schema says.
type mistake struct{ text string }

func (m *mistake) Error() string { return m.text }
