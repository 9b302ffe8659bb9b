//go:build !linux

package jail

// locks are the layers beside the limits.
var locks map[string]func(Config) error

func environment(Config) ([]string, error) { return nil, nil }

// Probe reports which layers this system offers, and confines nothing.
func Probe() Report {
	const why = "only Linux has it"
	return Report{[]Layer{limits, {Name: layerPrivileges, Why: why}, {Name: layerLandlock, Why: why}, {Name: layerSeccomp, Why: why}}}
}
