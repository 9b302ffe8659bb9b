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

	// Authorization is the header of requests to addresses that begin with Address, with the
	// placeholder of a secret.
	Address, Authorization string
}

func (a Action) name() string { return toolName(a.ID) }

// worlds are interfaces of tools whose functions the guest side calls itself, in this order. It
// has a function PREFIXexecute for them, and one PREFIXdescribe.
var worlds = []struct {
	iface, prefix string
	functions     []string
}{
	{"near:agent/tool@", "agent_", []string{"execute", "schema", "description"}},
	{"act:tools/tool-provider@0.1.", "act_", []string{"list-tools", "call-tool"}},
}

// chooseWorld makes the functions of one of the worlds the only ones that are called, if the
// component exports one.
func (k *linker) chooseWorld() {
	for _, name := range k.exports.names {
		i, ok := k.exports.items[name].v.(*instance)
		for _, w := range worlds {
			if !ok || !strings.HasPrefix(name, w.iface) || k.guestFunc(w.prefix+"execute") == nil {
				continue
			}
			var found []*tool
			for _, fn := range w.functions {
				if f, ok := i.items[fn].v.(*function); ok && f.lift != nil {
					found = append(found, &tool{name: fn, f: f})
				}
			}
			if len(found) == len(w.functions) {
				k.tools, k.command, k.prefix = found, false, w.prefix
			}
		}
	}
	if len(k.actions) > 0 && k.prefix != worlds[0].prefix {
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
