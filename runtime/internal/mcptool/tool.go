package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/step"
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
