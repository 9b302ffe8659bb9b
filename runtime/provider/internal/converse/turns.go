package converse

import (
	"fmt"

	"github.com/starling-host/starling/runtime/provider"
)

// Turn is what one side says before the other side speaks again.
type Turn struct {
	Assistant bool // else it is the user's, and that of the results of tools
	Messages  []provider.Message
}

// Turns merges the messages of a side that follow each other: the results of
// parallel tool uses have to come back together, and a question after them in the
// same turn. Messages that say nothing are left out.
func Turns(messages []provider.Message) ([]Turn, error) {
	var turns []Turn
	for i, m := range messages {
		if err := check(m); err != nil {
			return nil, fmt.Errorf("message %d: %w", i+1, err)
		}
		if silent(m) {
			continue
		}
		assistant := m.Role == provider.RoleAssistant
		if n := len(turns); n == 0 || turns[n-1].Assistant != assistant {
			turns = append(turns, Turn{Assistant: assistant})
		}
		last := &turns[len(turns)-1]
		last.Messages = append(last.Messages, m)
	}
	return turns, nil
}

func silent(m provider.Message) bool {
	return m.Content == "" && len(m.ToolUses) == 0 && len(m.Reasoning) == 0 && m.ToolResult == nil
}

// check refuses what no turn could carry.
func check(m provider.Message) error {
	assistant := m.Role == provider.RoleAssistant
	switch {
	case m.Role == provider.RoleTool && m.ToolResult == nil:
		return fmt.Errorf("the role %q needs a ToolResult", m.Role)
	case m.Role == provider.RoleTool && m.Content != "":
		return fmt.Errorf("the content of the role %q belongs into its ToolResult", m.Role)
	case m.Role != provider.RoleTool && m.ToolResult != nil:
		return fmt.Errorf("the role %q cannot have a ToolResult", m.Role)
	case !assistant && (len(m.ToolUses) > 0 || len(m.Reasoning) > 0):
		return fmt.Errorf("the role %q cannot have tool uses or reasoning", m.Role)
	case m.Role != provider.RoleTool && m.Role != provider.RoleUser && !assistant:
		return fmt.Errorf("unknown role %q", m.Role)
	}
	return nil
}
