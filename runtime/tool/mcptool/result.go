package mcptool

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/tool"
)

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
func (c *config) answer(result *mcp.CallToolResult) (answer, error) {
	if result.NeedsInput() {
		return answer{}, errors.New("the server asks for input, which this client does not give")
	}
	output, err := c.output(result)
	if err != nil {
		return answer{}, err
	}
	if len(output) > c.maxOutputBytes {
		return answer{}, fmt.Errorf("%w: the result has %d bytes, at most %d are allowed", tool.ErrLimit, len(output), c.maxOutputBytes)
	}
	raw, err := canon.FromJSON(output)
	if err != nil {
		return answer{}, fmt.Errorf("the result cannot be recorded: %w", err)
	}
	return answer{Output: raw, IsError: result.IsError}, nil
}

// output chooses the shape of a result.
func (c *config) output(result *mcp.CallToolResult) (json.RawMessage, error) {
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
	case c.textOnly:
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
