package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/schema"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// Calling returns the tool with the right to call the other tools of the run that it is
// called in, by requests to [abi.NestedTarget]. A tool without that right is refused.
func (t *Tool) Calling() *Tool {
	calling := *t
	calling.imports.calls = true
	return &calling
}

var (
	errNoCalls = errors.New("this tool may not call other tools")
	errSelf    = errors.New("a tool does not call itself")
)

// nestedRequest begins a request that is no exchange but a call of another tool.
var nestedRequest = []byte("POST " + abi.NestedTarget + " HTTP/1.1\r\n")

// call answers a request for a nested call; rest is the request behind its first line. A
// request that is not in the form is answered without a record, as any other is.
func (i imports) call(ctx context.Context, rest []byte) ([]byte, abi.Status) {
	// Everything else about the request is as in one to a server.
	req, err := egress.ParseRequest(append([]byte("POST http://tool/ HTTP/1.1\r\n"), rest...))
	if err != nil {
		ex, _ := record(nil, err)
		return answer(ex)
	}
	var asked struct {
		Tool  string          `json:"tool"`
		Input json.RawMessage `json:"input"`
	}
	if err := schema.Decode(req.Body, &asked); err != nil || asked.Input == nil {
		return []byte(`the body must be {"tool": NAME, "input": VALUE}`), abi.StatusMalformed
	}
	var refuse error
	switch self, _ := step.CallInfo(ctx); {
	case !i.calls:
		refuse = errNoCalls
	case asked.Tool == self.Tool:
		refuse = errSelf
	}
	result, err := step.CallFrom(context.WithValue(ctx, beginKey{}, nil), asked.Tool, asked.Input, refuse)
	var refused *step.EffectError
	switch {
	case errors.Is(err, step.ErrInvalidCall):
		return []byte(err.Error()), abi.StatusMalformed
	case errors.As(err, &refused) && !errors.Is(err, tool.ErrTimeout) && !errors.Is(err, tool.ErrCancelled):
		endAsRecorded(ctx)
		return []byte(refused.Message), abi.StatusDenied
	case err != nil:
		panic(err)
	}
	endAsRecorded(ctx)
	return response(result), 0
}

// response is the answer to a nested call that has an outcome: the document that the
// called tool would have returned, but for the type of a failure, which is that of the log.
func response(r step.ToolResult) []byte {
	document := map[string]any{"output": r.Result}
	if r.Err != nil {
		failure := map[string]string{"type": "tool", "message": r.Err.Error()}
		if failed, ok := errors.AsType[*step.CallError](r.Err); ok {
			failure["type"] = failed.Failed.ErrorType
		}
		document = map[string]any{"error": failure}
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		panic(err) // the result is canonical JSON
	}
	body.Truncate(body.Len() - 1)
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Type: application/json\r\n\r\n%s", body.Len(), body.Bytes())
}
