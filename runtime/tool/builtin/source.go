package builtin

import (
	"strings"

	"github.com/starling-host/starling/runtime/tool"
)

// sourcePrefix begins the recorded source of these tools, see [tool.Sourced].
const sourcePrefix = "builtin:"

// Offline returns the tool of a recorded source for a replay, which neither
// fetches nor reads, and false if no tool here has that source.
func Offline(source string) (tool.Tool, bool) {
	switch name, _ := strings.CutPrefix(source, sourcePrefix); name {
	case "fetch":
		return Fetch(), true
	case "read_file":
		return readFile(nil), true
	}
	return nil, false
}
