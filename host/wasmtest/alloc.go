package wasmtest

import "runtime"

// Allocated returns how many bytes f allocates. The counter is the whole
// process's, and the runtime and its collector allocate now and then: what f
// itself needs is the least of several calls.
func Allocated(f func()) uint64 {
	least := ^uint64(0)
	for range 5 {
		least = min(least, allocatedOnce(f))
	}
	return least
}

func allocatedOnce(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
