//go:build !linux

package jail

import "os/exec"

// locks are the layers beside the limits.
var locks map[string]func(Config) error

func environment(Config) ([]string, error) { return nil, nil }

// Confines reports that this system cannot confine a command.
func Confines() bool { return false }

// Confine changes nothing.
func Confine(*exec.Cmd, string, Config) error { return nil }

// Probe reports which layers this system offers, and confines nothing.
func Probe() Report {
	const why = "only Linux has it"
	return Report{[]Layer{limits, {Name: layerPrivileges, Why: why}, {Name: layerLandlock, Why: why}, {Name: layerSeccomp, Why: why}}}
}
