package tool

import (
	"errors"
	"time"

	"github.com/starling-host/starling/abi"
)

// Failure is an error together with what is to be done about it. Make one with
// [ToolCancel], [ToolDiscard] or [ToolSnooze]. Its text is that of Err, and
// errors.Is and errors.As see through it.
type Failure struct {
	Kind  abi.ErrorKind
	After time.Duration // of a snooze; zero leaves it to the host
	Err   error         // never nil
}

// Error returns the text of Err, which is what a model reads.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// FailureKind is what [KindOf] asks.
func (f *Failure) FailureKind() (abi.ErrorKind, time.Duration) { return f.Kind, f.After }

// ToolCancel marks err as final although nothing is wrong with the input: a
// permission that is missing, credentials that have expired. The call is not
// made again. Nil stays nil.
func ToolCancel(err error) error { return mark(abi.ErrorCancel, 0, err) }

// ToolDiscard marks err as final because of the input, which can never succeed.
// The call is not made again; the model may make another one. Nil stays nil.
func ToolDiscard(err error) error { return mark(abi.ErrorDiscard, 0, err) }

// ToolSnooze marks err as over after some time, such as a rate limit. The call
// is made again after that, as long as its [RetryConfig] allows snoozes, and no
// attempt is consumed. Zero or less leaves the time to the host. Nil stays nil.
func ToolSnooze(after time.Duration, err error) error {
	return mark(abi.ErrorSnooze, max(after, 0), err)
}

func mark(kind abi.ErrorKind, after time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &Failure{kind, after, err}
}

// KindOf returns what is to be done about err, and for a snooze after what time:
// what the outermost error in its tree says that has a method FailureKind, which
// a [Failure] has, the error that a guest reports and a recorded effect. Other
// than that, what wraps [ErrTransient] is transient, and any other error is
// [abi.ErrorTool]: the call may be made again if the caller's policy allows it.
func KindOf(err error) (kind abi.ErrorKind, after time.Duration) {
	var marked interface {
		FailureKind() (abi.ErrorKind, time.Duration)
	}
	if errors.As(err, &marked) {
		kind, after = marked.FailureKind()
	}
	switch {
	case kind != "" && kind != abi.ErrorTool:
		return kind, after
	case errors.Is(err, ErrTransient):
		return abi.ErrorTransient, 0
	}
	return abi.ErrorTool, 0
}
