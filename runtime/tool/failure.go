package tool

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/starling-host/starling/abi"
)

// Failure is an error with advice how to handle it. Make one with [ToolCancel],
// [ToolDiscard] or [ToolSnooze]. Its text is that of Err, and errors.Is and errors.As see
// through it.
type Failure struct {
	Kind  abi.ErrorKind
	After time.Duration // of a snooze; zero lets the host choose
	Err   error         // never nil
}

// Error returns the text of Err, for the model.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// FailureKind implements the method that [KindOf] looks for.
func (f *Failure) FailureKind() (abi.ErrorKind, time.Duration) { return f.Kind, f.After }

// ToolCancel marks err as final although the input is fine: a missing permission, expired
// credentials. The call is not repeated. Nil stays nil.
func ToolCancel(err error) error { return mark(abi.ErrorCancel, 0, err) }

// ToolDiscard marks err as final because of the input, which can never succeed. The call is
// not repeated; the model may make a different one. Nil stays nil.
func ToolDiscard(err error) error { return mark(abi.ErrorDiscard, 0, err) }

// ToolSnooze marks err as temporary, such as a rate limit. The call is repeated after the
// delay, as long as its [RetryConfig] allows snoozes, without using up an attempt. Zero or
// less lets the host choose the delay. Nil stays nil.
func ToolSnooze(after time.Duration, err error) error {
	return mark(abi.ErrorSnooze, max(after, 0), err)
}

func mark(kind abi.ErrorKind, after time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &Failure{kind, after, err}
}

// KindOf returns how to handle err, and the delay of a snooze. It asks the outermost error
// in its tree with a method FailureKind: a [Failure], the error of a guest, or a recorded
// effect. Otherwise an error that wraps [ErrTransient] is transient, and any other is
// [abi.ErrorTool]: the call may be repeated if the caller's policy allows it.
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

// The meaning of zero in the fields of a [RetryConfig].
const (
	DefaultMaxAttempts   = 2
	DefaultMaxSnoozes    = 100
	DefaultMaxSnoozeTime = time.Hour
)

// RetryConfig is the policy for repeating failed calls of a tool. The zero value makes two
// attempts, one right after the other.
//
// The tool's advice takes precedence, see [KindOf]: cancel and discard end the call, and a
// snooze does not count as an attempt.
type RetryConfig struct {
	// MaxAttempts bounds the attempts, including the first. Zero means
	// [DefaultMaxAttempts]; with one, nothing is repeated.
	MaxAttempts int `yaml:"max_attempts"`

	// Jitter is the share, 0 to 1, by which a delay is lengthened or shortened at random,
	// so that calls that failed together do not return together. Zero means no delay at
	// all.
	Jitter float64 `yaml:"jitter"`

	// MaxSnoozes bounds the number of snoozes of a call, and MaxSnoozeTime their total
	// time. A snooze beyond either fails the call. Zero means [DefaultMaxSnoozes] and
	// [DefaultMaxSnoozeTime].
	MaxSnoozes    int           `yaml:"max_snoozes"`
	MaxSnoozeTime time.Duration `yaml:"max_snooze_time"`
}

// Check validates the policy.
func (r RetryConfig) Check() error {
	switch {
	case r.MaxAttempts < 0:
		return fmt.Errorf("tool: RetryConfig.MaxAttempts is %d, want 0 or more", r.MaxAttempts)
	case !(r.Jitter >= 0 && r.Jitter <= 1): // which NaN is not
		return fmt.Errorf("tool: RetryConfig.Jitter is %v, want 0 to 1", r.Jitter)
	case r.MaxSnoozes < 0 || r.MaxSnoozeTime < 0:
		return fmt.Errorf("tool: RetryConfig.MaxSnoozes is %d and MaxSnoozeTime %v, want 0 or more", r.MaxSnoozes, r.MaxSnoozeTime)
	}
	return nil
}

// Attempts returns the number of attempts that the policy allows.
func (r RetryConfig) Attempts() int {
	return cmp.Or(r.MaxAttempts, DefaultMaxAttempts)
}

// Snooze reports whether a call may snooze for the given time after this many snoozes with
// this total time.
func (r RetryConfig) Snooze(snoozes int, waited, next time.Duration) bool {
	most, longest := cmp.Or(r.MaxSnoozes, DefaultMaxSnoozes), cmp.Or(r.MaxSnoozeTime, DefaultMaxSnoozeTime)
	return snoozes < most && next <= longest-waited
}

// maxPower is the attempt after which delays stop growing. Its delay is 136 years, and
// twice that is the maximum of a Duration.
const maxPower = 256

// Delay returns the delay after a failed attempt, counted from 1: zero without Jitter, and
// otherwise the fourth power of the attempt in seconds (1, 16, 81, 256, 625 and so on),
// plus or minus up to the share Jitter, which bits determine. It depends on its arguments
// alone.
func (r RetryConfig) Delay(attempt int, bits uint64) time.Duration {
	if r.Jitter == 0 {
		return 0
	}
	n := int64(min(max(attempt, 1), maxPower))
	delay := time.Duration(n*n*n*n) * time.Second
	share := float64(bits>>11)/(1<<52) - 1 // in [-1, 1)
	return delay + time.Duration(share*r.Jitter*float64(delay))
}
