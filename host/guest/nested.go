package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/schema"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// Calling returns the tool with the right to call the other tools of its run, by requests
// to [abi.NestedTarget]. Such requests of other tools are denied.
func (t *Tool) Calling() *Tool {
	calling := *t
	calling.imports.calls = true
	return &calling
}

var (
	errNoCalls = errors.New("this tool may not call other tools")
	errSelf    = errors.New("a tool does not call itself")
)

// nestedRequest is the first line of a request to call another tool.
var nestedRequest = []byte("POST " + abi.NestedTarget + " HTTP/1.1\r\n")

// call answers a request for a nested call; rest is the request after its first line. A
// malformed request is answered without a record, like any other.
func (i imports) call(ctx context.Context, rest []byte) ([]byte, abi.Status, time.Duration) {
	// Otherwise the request has the form of a request to a server.
	req, err := egress.ParseRequest(append([]byte("POST http://tool/ HTTP/1.1\r\n"), rest...))
	if err != nil {
		ex, _ := record(nil, err)
		return answer(ex, 0)
	}
	var asked struct {
		Tool  string          `json:"tool"`
		Input json.RawMessage `json:"input"`
	}
	if err := schema.Decode(req.Body, &asked); err != nil || asked.Input == nil {
		return []byte(`the body must be {"tool": NAME, "input": VALUE}`), abi.StatusMalformed, 0
	}
	var refuse error
	switch {
	case !i.calls:
		refuse = errNoCalls
	case asked.Tool == i.tool:
		refuse = errSelf
	}
	result, err := step.CallFrom(ctx, asked.Tool, asked.Input, refuse)
	var refused *step.EffectError
	switch {
	case errors.Is(err, step.ErrInvalidCall):
		return []byte(err.Error()), abi.StatusMalformed, 0
	case errors.As(err, &refused) && !errors.Is(err, tool.ErrTimeout) && !errors.Is(err, tool.ErrCancelled):
		i.endAsRecorded()
		return []byte(refused.Message), abi.StatusDenied, i.attempt.Took()
	case err != nil:
		panic(err)
	}
	i.endAsRecorded()
	return response(result), 0, i.attempt.Took()
}

// response returns the answer to a nested call with an outcome: the document of the called
// tool, except that a failure has the type in the log.
func response(r step.ToolResult) []byte {
	document := map[string]any{"output": r.Result}
	if r.Err != nil {
		failure := map[string]string{"type": "tool", "message": r.Err.Error()}
		if failed, ok := errors.AsType[*step.CallError](r.Err); ok {
			failure["type"] = failed.Failed.ErrorType
		}
		document = map[string]any{"error": failure}
	}
	body, err := display.JSON(document, "")
	if err != nil {
		panic(err) // the result is canonical JSON
	}
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Type: application/json\r\n\r\n%s", len(body), body)
}
