// Package jail has a worker process give up what it does not need, for good and
// before it reads anything that a module had a part in.
package jail

import (
	"fmt"
	"time"
)

// Config says what the process keeps. What is zero is not limited.
type Config struct {
	Memory   uint64        // bytes of writable private memory (RLIMIT_DATA)
	CPU      time.Duration // of the processor, rounded up to seconds (RLIMIT_CPU)
	FileSize uint64        // bytes of the largest file that it can write (RLIMIT_FSIZE)
	Files    uint64        // open files (RLIMIT_NOFILE)
	Read     []string      // folders that stay readable
	Write    []string      // folders that stay writable
	Nice     int           // how far it stands back behind other processes
}

// Layer is one way in which a process is confined.
type Layer struct {
	Name string
	On   bool
	Why  string // it is not on
}

// Report says which layers there are.
type Report struct{ Layers []Layer }

// layerLimits is the layer of resource limits.
const layerLimits = "rlimits"

// Enter confines this process. There is no way back.
func Enter(c Config) (Report, error) {
	if err := limit(c); err != nil {
		return Report{}, fmt.Errorf("jail: resource limits: %w", err)
	}
	return Probe(), nil
}
