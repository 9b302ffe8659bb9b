package policy

import "github.com/starling-host/starling/runtime/config"

// lines are where in its file the parts of a policy begin; of a part that is not there,
// where the one begins that it would be in.
type lines struct {
	network int // permissions.network.allow
	tools   int // permissions.tools
	secrets int
	limits  map[string]int // by the keys of resources.limits
}

func linesOf(root *config.Node) lines {
	l := lines{
		network: lineOf(root, "permissions", "network", "allow"), tools: lineOf(root, "permissions", "tools"),
		secrets: lineOf(root, "secrets"), limits: map[string]int{},
	}
	for _, key := range []string{"fuel", "memory", "deadline", "input", "output", "log", "effects", "effect_bytes"} {
		l.limits[key] = lineOf(root, "resources", "limits", key)
	}
	return l
}

// lineOf returns the line of the last key on a path that is there; without the first
// one it is 1.
func lineOf(n *config.Node, path ...string) int {
	line := 1
	for _, want := range path {
		for _, key := range n.Keys() {
			if key.Value() == want {
				line = key.Line()
			}
		}
		if n = n.Get(want); n == nil {
			break
		}
	}
	return line
}
