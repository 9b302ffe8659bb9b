package wasmtest

import "runtime"

// Allocated returns the bytes that f allocates. The counter covers the whole process, and
// the runtime and its collector sometimes allocate, so it takes the least of several calls.
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
