package jail

import (
	"fmt"
	"time"
)

// Config lists what the process keeps. Zero means unlimited.
type Config struct {
	Memory   uint64        // bytes of writable private memory (RLIMIT_DATA)
	CPU      time.Duration // of the processor, rounded up to seconds (RLIMIT_CPU)
	FileSize uint64        // bytes of the largest file that it can write (RLIMIT_FSIZE)
	Files    uint64        // open files (RLIMIT_NOFILE)
	Read     []string      // folders and files that stay readable
	Write    []string      // folders and files that stay writable
	Load     []string      // folders and files that stay readable and executable
	Program  string        // what the process becomes, see [Confine]
}

// Layer is one way in which a process is confined.
type Layer struct {
	Name string
	On   bool
	Why  string // it is not on
}

// Report lists the layers.
type Report struct{ Layers []Layer }

// The layers, in the order in which they are put on.
const (
	layerLimits     = "rlimits"
	layerPrivileges = "no_new_privs"
	layerLandlock   = "landlock"
	layerSeccomp    = "seccomp"
)

// Environment returns the variables that a program which imports this package has to
// be started with, for [Enter] to succeed.
func (c Config) Environment() ([]string, error) { return environment(c) }

// Enter confines this process, which was started with [Config.Environment]. It cannot
// be undone.
func Enter(c Config) (Report, error) {
	if err := limit(c); err != nil {
		return Report{}, fmt.Errorf("jail: resource limits: %w", err)
	}
	r := Probe()
	for _, l := range r.Layers {
		put, ok := locks[l.Name]
		if !ok || !l.On {
			continue
		}
		if err := put(c); err != nil {
			return Report{}, fmt.Errorf("jail: %s: %w", l.Name, err)
		}
	}
	return r, nil
}
