package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Format is the shape in which [Export] describes tools.
type Format string

// The formats of [Export]. What it returns is the member "tools" of the document
// that is named here.
const (
	FormatOpenAI    Format = "openai"    // a request for a chat completion
	FormatAnthropic Format = "anthropic" // a request to messages
	FormatGemini    Format = "gemini"    // a request to generateContent
	FormatBedrock   Format = "bedrock"   // toolConfig of a request to Converse
	FormatMCP       Format = "mcp"       // a result of tools/list
)

// Export describes tools in a format, in the given order. The result is always a JSON
// array, without tools an empty one, because some vendors refuse null. The bytes depend
// only on the arguments. It fails for an unknown format, two tools of one name, or a schema
// that is no JSON object.
func Export(format Format, tools []Tool) (json.RawMessage, error) {
	list := make([]any, 0, len(tools))
	seen := make(map[string]bool, len(tools))
	for _, t := range tools {
		if seen[t.Name()] {
			return nil, fmt.Errorf("tool: export: two tools are named %q", t.Name())
		}
		seen[t.Name()] = true
		if !isObject(t.Schema()) {
			return nil, fmt.Errorf("tool: export: the schema of %q is no JSON object", t.Name())
		}
		list = append(list, format.entry(t))
	}
	switch format {
	case FormatOpenAI, FormatAnthropic, FormatBedrock, FormatMCP:
	case FormatGemini:
		if len(list) > 0 {
			list = []any{geminiTool{list}}
		}
	default:
		return nil, fmt.Errorf("tool: export: unknown format %q", format)
	}
	return marshal(list)
}

func isObject(doc json.RawMessage) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(doc, &object) == nil && object != nil
}

// The entries of the formats. An empty description is left out, because some vendors
// refuse it.
type (
	openAITool struct {
		Type     string         `json:"type"`
		Function openAIFunction `json:"function"`
	}
	openAIFunction struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	anthropicTool struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		InputSchema json.RawMessage `json:"input_schema"`
	}
	geminiTool struct {
		FunctionDeclarations []any `json:"functionDeclarations"`
	}
	geminiFunction struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parametersJsonSchema"`
	}
	bedrockTool struct {
		ToolSpec bedrockSpec `json:"toolSpec"`
	}
	bedrockSpec struct {
		Name        string        `json:"name"`
		Description string        `json:"description,omitempty"`
		InputSchema bedrockSchema `json:"inputSchema"`
	}
	bedrockSchema struct {
		JSON json.RawMessage `json:"json"`
	}
	mcpTool struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		InputSchema json.RawMessage `json:"inputSchema"`
	}
)

// entry describes one tool, nil for a format that is not known.
func (f Format) entry(t Tool) any {
	name, text, schema := t.Name(), t.Description(), t.Schema()
	switch f {
	case FormatOpenAI:
		return openAITool{"function", openAIFunction{name, text, schema}}
	case FormatAnthropic:
		return anthropicTool{name, text, schema}
	case FormatGemini:
		return geminiFunction{name, text, schema}
	case FormatBedrock:
		return bedrockTool{bedrockSpec{name, text, bedrockSchema{schema}}}
	case FormatMCP:
		return mcpTool{name, text, schema}
	}
	return nil
}

// marshal is json.Marshal that leaves <, > and & as they are, which a model
// reads.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("tool: export: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
