package jail

// locks are the layers beside the limits. The first two were put on when the process
// started, which is checked.
var locks = map[string]func(Config) error{
	layerPrivileges: checkPrivileges,
	layerLandlock:   checkFiles,
	layerSeccomp:    filterCalls,
}

// Probe reports which layers this system offers, and confines nothing.
func Probe() Report {
	return Report{[]Layer{
		limits,
		{Name: layerPrivileges, On: true},
		layer(layerLandlock, probeLandlock()),
		layer(layerSeccomp, probeSeccomp()),
	}}
}

func layer(name string, err error) Layer {
	if err != nil {
		return Layer{Name: name, Why: err.Error()}
	}
	return Layer{Name: name, On: true}
}
