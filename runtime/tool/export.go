package tool

import (
	"encoding/json"
	"fmt"

	"github.com/starling-host/starling/internal/display"
)

// Format is the shape in which [Export] describes tools.
type Format string

// The formats of [Export]. Its result is the member "tools" of the document named here.
const (
	FormatOpenAI    Format = "openai"    // a request for a chat completion
	FormatAnthropic Format = "anthropic" // a request to messages
	FormatGemini    Format = "gemini"    // a request to generateContent
	FormatBedrock   Format = "bedrock"   // toolConfig of a request to Converse
	FormatMCP       Format = "mcp"       // a result of tools/list
)

// Export describes tools in a format, in the given order. The result is always a JSON
// array, possibly empty, because some vendors refuse null. The bytes depend only on the
// arguments. It fails for an unknown format, two tools of one name, or a schema that is not
// a JSON object.
func Export(format Format, tools []Tool) (json.RawMessage, error) {
	list := make([]any, 0, len(tools))
	seen := make(map[string]bool, len(tools))
	for _, t := range tools {
		if seen[t.Name()] {
			return nil, fmt.Errorf("tool: export: two tools are named %q", t.Name())
		}
		seen[t.Name()] = true
		if !isObject(t.Schema()) {
			return nil, fmt.Errorf("tool: export: the schema of %q is not a JSON object", t.Name())
		}
		list = append(list, format.entry(t))
	}
	switch format {
	case FormatOpenAI, FormatAnthropic, FormatBedrock, FormatMCP:
	case FormatGemini:
		if len(list) > 0 {
			list = []any{map[string]any{"functionDeclarations": list}}
		}
	default:
		return nil, fmt.Errorf("tool: export: unknown format %q", format)
	}
	return display.JSON(list, "")
}

func isObject(doc json.RawMessage) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(doc, &object) == nil && object != nil
}

// exported is a tool in the shape of a vendor, which has the schema under one of these
// names. An empty description is left out, because some vendors refuse it.
type exported struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	OpenAI      json.RawMessage `json:"parameters,omitempty"`
	Anthropic   json.RawMessage `json:"input_schema,omitempty"`
	Gemini      json.RawMessage `json:"parametersJsonSchema,omitempty"`
	MCP         any             `json:"inputSchema,omitempty"` // and Bedrock
}

// entry describes one tool.
func (f Format) entry(t Tool) any {
	e, schema := exported{Name: t.Name(), Description: t.Description()}, t.Schema()
	switch f {
	case FormatOpenAI:
		e.OpenAI = schema
		return struct {
			Type     string   `json:"type"`
			Function exported `json:"function"`
		}{"function", e}
	case FormatAnthropic:
		e.Anthropic = schema
	case FormatGemini:
		e.Gemini = schema
	case FormatBedrock:
		e.MCP = map[string]any{"json": schema}
		return map[string]any{"toolSpec": e}
	case FormatMCP:
		e.MCP = schema
	}
	return e
}
