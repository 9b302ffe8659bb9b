//go:build !unix

package jail

// Probe says what this system offers, and confines nothing.
func Probe() Report {
	return Report{[]Layer{{Name: layerLimits, Why: "this system has none that a process can set itself"}}}
}

func limit(Config) error { return nil }
