package eventlog

import (
	"fmt"

	"github.com/starling-host/starling/eventlog/event"
)

// CorruptError says where a run is not what a run has to be, and why.
type CorruptError struct {
	RunID     string
	Seq       uint64     // of the event that is wrong or missing; zero for a run without events
	Kind      event.Kind // as it is stored; zero when the event is missing
	Invariant string     // D1 to D8, S1 to S6, "sealed", "head" or "storage"; see [Check], [CheckRun]; empty for what is none of them
	Reason    string

	// Newer says that a later version of this format begins here, of which this program
	// knows nothing. Nothing says that the run is wrong, and the error is
	// [ErrSchemaTooNew] instead of [ErrLogCorrupt].
	Newer bool
}

// Error names the run, the event, the invariant if there is one, and the reason.
func (e *CorruptError) Error() string {
	where := fmt.Sprintf("event %d", e.Seq)
	if e.Kind != 0 {
		where += fmt.Sprintf(" (%v)", e.Kind)
	}
	if e.Invariant != "" {
		where += ": " + e.Invariant
	}
	return fmt.Sprintf("%v: run %q, %s: %s", e.Unwrap(), e.RunID, where, e.Reason)
}

// Unwrap returns [ErrLogCorrupt], or [ErrSchemaTooNew].
func (e *CorruptError) Unwrap() error {
	if e.Newer {
		return ErrSchemaTooNew
	}
	return ErrLogCorrupt
}
