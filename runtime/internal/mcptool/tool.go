package mcptool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

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
	output      json.RawMessage // of structured content; nil if the server has no such schema
}

// Name implements [tool.Tool].
func (t *remoteTool) Name() string { return t.name }

// Description implements [tool.Tool].
func (t *remoteTool) Description() string { return t.description }

// Schema implements [tool.Tool].
func (t *remoteTool) Schema() json.RawMessage { return t.schema }

// blocks is the schema of an output that is no structured content.
const blocks = `{"type":"object","properties":{"content":{"type":"array","items":{"type":"object","properties":` +
	`{"type":{"type":"string"},"text":{"type":"string"}},"required":["type"]}}},"required":["content"]}`

// OutputSchema returns the JSON Schema of the output, as far as the server says it.
func (t *remoteTool) OutputSchema() json.RawMessage {
	switch {
	case t.client.options.TextOnly:
		return json.RawMessage(`{"type":"string"}`)
	case t.output != nil:
		return t.output
	}
	return json.RawMessage(blocks)
}

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
	var got answer
	if err == nil {
		got, err = t.client.options.answer(result)
	}
	if err != nil {
		return answer{}, fmt.Errorf("mcptool: tool %q: %w", t.name, err)
	}
	return got, nil
}

// call makes one request to the server.
func (c *Client) call(ctx context.Context, name string, arguments json.RawMessage) (*mcp.CallToolResult, error) {
	ctx, release := c.within(ctx)
	defer release()
	conn, err := c.connected(ctx)
	if err == nil && conn.changed[name] {
		err = errors.New("the server was started again and describes the tool differently now")
	}
	var result *mcp.CallToolResult
	if err == nil {
		params := &mcp.CallToolParams{Name: name, Arguments: arguments}
		result, err = await(ctx, func() (*mcp.CallToolResult, error) { return conn.session.CallTool(ctx, params) })
		conn.lost.CompareAndSwap(false, isLost(err))
	}
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

// isLost reports whether a call failed since its session has ended.
func isLost(err error) bool {
	return errors.Is(err, mcp.ErrConnectionClosed) || errors.Is(err, mcp.ErrSessionMissing) || errors.Is(err, io.EOF)
}

// ToolError is the failure of a tool that ran: the server answered and said that
// it is an error.
type ToolError struct {
	Tool   string          // the agent's name of it
	Result json.RawMessage // {"content":[...]}, as the server sent it, in canonical JSON
}

// Error returns the texts of the result, or the result if it has none.
func (e *ToolError) Error() string {
	var result content
	said := ""
	if err := json.Unmarshal(e.Result, &result); err == nil {
		said = result.text()
	}
	if said == "" {
		said = string(e.Result)
	}
	return fmt.Sprintf("mcptool: tool %q failed: %s", e.Tool, said)
}

// content is what this package reads of the blocks of a result.
type content struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
}

// text joins the texts.
func (c content) text() string {
	var texts []string
	for _, block := range c.Content {
		if block.Type == "text" {
			texts = append(texts, block.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// answer turns a result into what is recorded, or refuses it.
func (o *Options) answer(result *mcp.CallToolResult) (answer, error) {
	if result.NeedsInput() {
		return answer{}, errors.New("the server asks for input, which this client does not give")
	}
	output, err := o.output(result)
	if err != nil {
		return answer{}, err
	}
	if most := cmp.Or(o.MaxOutputBytes, defaultMaxOutputBytes); len(output) > most {
		return answer{}, fmt.Errorf("%w: the result has %d bytes, at most %d are allowed", tool.ErrLimit, len(output), most)
	}
	raw, err := canon.FromJSON(output)
	if err != nil {
		return answer{}, fmt.Errorf("the result cannot be recorded: %w", err)
	}
	return answer{Output: raw, IsError: result.IsError}, nil
}

// output chooses the shape of a result.
func (o *Options) output(result *mcp.CallToolResult) (json.RawMessage, error) {
	if result.Content == nil {
		result.Content = []mcp.Content{} // and not null
	}
	blocks, err := json.Marshal(map[string]any{"content": result.Content})
	if err != nil {
		return nil, err
	}
	var read content
	if err := json.Unmarshal(blocks, &read); err != nil {
		return nil, err
	}
	switch {
	case result.IsError:
		return blocks, nil
	case o.TextOnly:
		return onlyText(read, result.StructuredContent != nil)
	case result.StructuredContent != nil:
		return structured(result.StructuredContent, read)
	}
	return blocks, nil
}

// onlyText refuses what would be lost.
func onlyText(read content, alsoStructured bool) (json.RawMessage, error) {
	for _, block := range read.Content {
		if block.Type != "text" {
			return nil, fmt.Errorf("the result has content of type %q, and only text is wanted", block.Type)
		}
	}
	if alsoStructured && len(read.Content) == 0 {
		return nil, errors.New("the result has structured content and no text, and only text is wanted")
	}
	return json.Marshal(read.text())
}

// structured returns the structured content, in the words of a text that is the
// same document if there is one, see the comment of the package.
func structured(value any, read content) (json.RawMessage, error) {
	for _, block := range read.Content {
		var same any
		if json.Unmarshal([]byte(block.Text), &same) != nil || !reflect.DeepEqual(same, value) {
			continue
		}
		if exact, err := canon.JSON([]byte(block.Text)); err == nil {
			return exact, nil
		}
	}
	return json.Marshal(value)
}
