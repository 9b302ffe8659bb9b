//go:build !unix

package jail

var limits = Layer{Name: layerLimits, Why: "this system has none that a process can set itself"}

func limit(Config) error { return nil }
