package worker

// Shared by the external and the internal tests of this package.
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
