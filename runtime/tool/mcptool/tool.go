package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// effectPrefix begins the names of this package's effects in the log.
const effectPrefix = "mcp/"

var errOffline = errors.New("there is no server: the client is for replaying runs")

// remoteTool is one tool of a server.
type remoteTool struct {
	client      *Client
	remote      string // its name at the server
	name        string
	description string
	schema      json.RawMessage
}

// Name implements [tool.Tool].
func (t *remoteTool) Name() string { return t.name }

// Description implements [tool.Tool].
func (t *remoteTool) Description() string { return t.description }

// Schema implements [tool.Tool].
func (t *remoteTool) Schema() json.RawMessage { return t.schema }

// SourcePrefix begins the recorded source of the tools of this package, see
// [tool.Sourced]. The server's name of the tool follows.
const SourcePrefix = "mcp:"

// Source implements [tool.Sourced].
func (t *remoteTool) Source() string { return SourcePrefix + t.remote }

// answer is what the log keeps of a call that the server answered.
type answer struct {
	Output  canon.Raw `cbor:"output"`
	IsError bool      `cbor:"is_error,omitempty"`
}

// Execute implements [tool.Tool]. The input is an object, or null for none.
func (t *remoteTool) Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	if len(input) == 0 || string(input) == "null" {
		input = json.RawMessage("{}")
	}
	if input[0] != '{' {
		return nil, fmt.Errorf("mcptool: tool %q: the arguments are not a JSON object", t.name)
	}
	got, err := step.SideEffect(ctx, effectPrefix+t.remote, func() (answer, error) { return t.call(ctx, input) })
	if err != nil {
		return nil, err
	}
	output, err := canon.ToJSON(got.Output)
	if err == nil && got.IsError {
		err = &ToolError{Tool: t.name, Result: output}
	}
	if err != nil {
		return nil, err
	}
	return output, nil
}

// call asks the server. Its errors name the tool, for they reach the log as text.
func (t *remoteTool) call(ctx context.Context, arguments json.RawMessage) (answer, error) {
	result, err := t.client.call(ctx, t.remote, arguments)
	if err != nil {
		if t.client.config.transient(err) {
			err = fmt.Errorf("%w: %w", tool.ErrTransient, err)
		}
		return answer{}, fmt.Errorf("mcptool: tool %q: %w", t.name, err)
	}
	got, err := t.client.config.answer(result)
	if err != nil {
		return answer{}, fmt.Errorf("mcptool: tool %q: %w", t.name, err)
	}
	return got, nil
}

// call makes one request to the server.
func (c *Client) call(ctx context.Context, name string, arguments json.RawMessage) (*mcp.CallToolResult, error) {
	if c.session == nil {
		return nil, errOffline
	}
	ctx, release := c.within(ctx)
	defer release()
	params := &mcp.CallToolParams{Name: name, Arguments: arguments}
	result, err := await(ctx, func() (*mcp.CallToolResult, error) { return c.session.CallTool(ctx, params) })
	switch {
	case err == nil:
		return result, nil
	case c.closing.Err() != nil:
		return nil, errClosed
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, err
}
