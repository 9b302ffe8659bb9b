package tool

import (
	"encoding/json"
	"fmt"

	"github.com/starling-host/starling/internal/display"
)

// exported is a tool in the shape of OpenAI's API. An empty description is left out, because some
// servers refuse it.
type exported struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// ExportOpenAI describes tools as the member "tools" of a request for a chat completion has them, in
// the given order. The result is always a JSON array, possibly empty, because some servers refuse
// null. The bytes depend only on the arguments. It fails for two tools of one name, or a schema that
// is not a JSON object.
func ExportOpenAI(tools []Tool) (json.RawMessage, error) {
	list := make([]exported, 0, len(tools))
	seen := make(map[string]bool, len(tools))
	for _, t := range tools {
		if seen[t.Name()] {
			return nil, fmt.Errorf("tool: export: two tools are named %q", t.Name())
		}
		seen[t.Name()] = true
		var object map[string]json.RawMessage
		if json.Unmarshal(t.Schema(), &object) != nil || object == nil {
			return nil, fmt.Errorf("tool: export: the schema of %q is not a JSON object", t.Name())
		}
		e := exported{Type: "function"}
		e.Function.Name, e.Function.Description, e.Function.Parameters = t.Name(), t.Description(), t.Schema()
		list = append(list, e)
	}
	return display.JSON(list, "")
}
