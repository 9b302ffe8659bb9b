package agent

import "runtime/debug"

// modulePath is the module that this package belongs to.
const modulePath = "github.com/starling-host/starling"

// version returns the version of this module as the program was linked with
// it, or "(devel)".
func version() string {
	const unknown = "(devel)"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	if info.Main.Path == modulePath && info.Main.Version != "" {
		return info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == modulePath {
			return dep.Version
		}
	}
	return unknown
}
