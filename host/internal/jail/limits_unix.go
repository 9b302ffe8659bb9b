//go:build unix

package jail

import (
	"syscall"
	"time"
)

var limits = Layer{Name: layerLimits, On: true}

func limit(c Config) error {
	seconds := uint64((c.CPU + time.Second - 1) / time.Second)
	for resource, value := range map[int]uint64{
		syscall.RLIMIT_DATA: c.Memory, syscall.RLIMIT_CPU: seconds, syscall.RLIMIT_FSIZE: c.FileSize, syscall.RLIMIT_NOFILE: c.Files,
	} {
		if value == 0 {
			continue
		}
		if err := lower(resource, value); err != nil {
			return err
		}
	}
	return lower(syscall.RLIMIT_CORE, 0) // a core is a copy of a guest's memory
}

// lower sets a limit, unless there is a lower one.
func lower(resource int, value uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(resource, &now); err != nil {
		return err
	}
	value = min(value, uint64(now.Max))
	set(&now.Cur, value)
	set(&now.Max, value)
	return syscall.Setrlimit(resource, &now)
}

// set assigns to a field that is signed on FreeBSD.
func set[T int64 | uint64](to *T, value uint64) { *to = T(value) }
