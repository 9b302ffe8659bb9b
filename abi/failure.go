package abi

import "errors"

// The classes of failure of a call. Their texts are recorded, and compared at replay.
var (
	// ErrPanicked: the tool panicked, or its module trapped.
	ErrPanicked = errors.New("tool: panicked")

	// ErrTransient: the same call may succeed when it is repeated. Only a call that the
	// caller has marked as repeatable is ever repeated.
	ErrTransient = errors.New("tool: transient failure")

	// ErrTimeout: a deadline of the host ended the call.
	ErrTimeout = errors.New("tool: deadline exceeded")

	// ErrCancelled: the caller ended the call.
	ErrCancelled = errors.New("tool: cancelled")

	// ErrFuel: the call spent its fuel.
	ErrFuel = errors.New("tool: out of fuel")

	// ErrLimit: the call reached another of its limits.
	ErrLimit = errors.New("tool: limit reached")

	// ErrMemory and ErrEffects are an [ErrLimit] for the two limits that callers raise
	// most often: linear memory, and the number of effects.
	ErrMemory, ErrEffects error = &limitError{}, &limitError{}

	// ErrLost: the call ran in another process, and that process died or was killed.
	ErrLost = errors.New("tool: lost")

	// ErrHost: the host could not start or finish the call, so its outcome is unknown.
	// It is the one class that is never recorded: the run stops where it is.
	ErrHost = errors.New("tool: host failure")
)

// limitError matches ErrLimit, and reads the same. It has a size, so that two of them
// have different addresses.
type limitError struct{ _ byte }

func (*limitError) Error() string        { return ErrLimit.Error() }
func (*limitError) Is(target error) bool { return target == ErrLimit }
