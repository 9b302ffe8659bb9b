package agentfile

import (
	"encoding/json"
	"strings"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/internal/builtin"
	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/runtime/tool"
)

// Offline returns, for a replay, a recorded built-in tool or tool of an MCP server. All its
// answers are in the log, so it needs neither the network nor the server. It reports false
// for any other tool.
func Offline(ref event.ToolSchemaRef) (found tool.Tool, ok bool, err error) {
	if own, ok := builtin.Offline(ref.Source); ok && own.Name() != ref.Name {
		return tool.Rename(own, ref.Name), true, nil
	} else if ok {
		return own, true, nil
	}
	remote, ok := strings.CutPrefix(ref.Source, mcptool.SourcePrefix)
	if !ok {
		return nil, false, nil
	}
	tools, err := mcptool.Offline([]mcptool.Definition{{Name: remote, Description: ref.Description, Schema: json.RawMessage(ref.Schema)}},
		mcptool.Options{Rename: map[string]string{remote: ref.Name}})
	if err != nil {
		return nil, true, err
	}
	return tools[0], true, nil
}
