package component

import (
	"strings"

	"github.com/starling-host/starling/abi"
)

// Action is one of the tools that the manifest of a tool for IronClaw lists. The component has
// one function for all of them.
type Action struct {
	ID          string // such as slack.search_messages
	Description string
	Schema      abi.JSON // of the input
	Hosts       []string // that it asks for
}

func (a Action) name() string { return toolName(a.ID) }

// agentInterface is what a tool for IronClaw exports.
const agentInterface = "near:agent/tool@"

// agentFunctions are its functions, in the order in which the guest side calls them.
var agentFunctions = []string{"execute", "schema", "description"}

// chooseAgent makes the functions of a tool for IronClaw the only ones that are called.
func (k *linker) chooseAgent() {
	var found []*tool
	for _, name := range k.exports.names {
		i, ok := k.exports.items[name].v.(*instance)
		if !ok || !strings.HasPrefix(name, agentInterface) {
			continue
		}
		for _, fn := range agentFunctions {
			if f, ok := i.items[fn].v.(*function); ok && f.lift != nil {
				found = append(found, &tool{name: fn, f: f})
			}
		}
	}
	switch {
	case len(found) == len(agentFunctions):
		k.tools, k.command, k.agent, k.prefix = found, false, true, "agent_"
	case len(k.actions) > 0:
		failf("", "it does not export near:agent/tool, and has a manifest of IronClaw")
	}
	taken := map[string]bool{}
	for _, a := range k.actions {
		if taken[a.name()] {
			failf("", "two tools of the manifest are named %s", a.name())
		}
		taken[a.name()] = true
	}
}
