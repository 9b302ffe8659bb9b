//go:build !linux

package worker

import "time"

// Elsewhere all workers are equal.
func lowerPriority(int) {}

func processorTime(int) time.Duration { return 0 }
