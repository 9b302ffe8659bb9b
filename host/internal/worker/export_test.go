package worker

// What the external tests of this package share with the internal ones.
var (
	Packed         = packed
	Tiny           = tiny
	Unreachable    = unreachable
	AsksForTheTime = asksForTheTime
	AsksForEver    = asksForEver
	Spins          = spins
	KillWorkers    = killWorkers
	FreezeWorkers  = freezeWorkers
	ThawWorkers    = thawWorkers
	Workers        = workers
	Inline         = inline
)

const OutputAt = outputAt

// Busy reports whether an engine has no idle process.
func Busy(e *Engine) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.idle) == 0
}
