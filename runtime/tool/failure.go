package tool

import (
	"cmp"
	"errors"
	"fmt"
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

// Error returns the text of Err, which a model reads.
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

// What zero means in the fields of a [RetryConfig].
const (
	DefaultMaxAttempts   = 2
	DefaultMaxSnoozes    = 100
	DefaultMaxSnoozeTime = time.Hour
)

// RetryConfig is the policy for a tool whose failed calls may be made again. The
// zero value makes two attempts, one right after the other.
//
// What the tool says of its error comes first, see [KindOf]: cancel and discard
// end the call, and a snooze does not count as an attempt.
type RetryConfig struct {
	// MaxAttempts bounds the attempts, the first one included. Zero means
	// [DefaultMaxAttempts], one means that nothing is repeated.
	MaxAttempts int `yaml:"max_attempts"`

	// Jitter is the share, 0 to 1, by which a delay is made longer or shorter at
	// random, so that calls that failed together do not come back together. Zero
	// means no delay at all.
	Jitter float64 `yaml:"jitter"`

	// MaxSnoozes bounds how often a call may snooze, and MaxSnoozeTime how long in
	// all. A snooze beyond either is the failure of the call. Zero means
	// [DefaultMaxSnoozes] and [DefaultMaxSnoozeTime].
	MaxSnoozes    int           `yaml:"max_snoozes"`
	MaxSnoozeTime time.Duration `yaml:"max_snooze_time"`
}

// Check returns what is wrong with the policy, or nil.
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

// Attempts returns how many attempts the policy allows.
func (r RetryConfig) Attempts() int {
	return cmp.Or(r.MaxAttempts, DefaultMaxAttempts)
}

// Snooze reports whether a call may snooze for the given time after so many snoozes
// that took so long together.
func (r RetryConfig) Snooze(snoozes int, waited, next time.Duration) bool {
	most, longest := cmp.Or(r.MaxSnoozes, DefaultMaxSnoozes), cmp.Or(r.MaxSnoozeTime, DefaultMaxSnoozeTime)
	return snoozes < most && next <= longest-waited
}

// maxPower is the attempt from which delays do not grow. Its own is 136 years,
// and twice that is the most that a Duration holds.
const maxPower = 256

// Delay returns how long to wait after the given failed attempt, from 1: nothing
// without Jitter, and otherwise the fourth power of the attempt in seconds (1,
// 16, 81, 256, 625 and so on), up to the share Jitter less or more, as bits are
// small or large. It is a function of its arguments alone.
func (r RetryConfig) Delay(attempt int, bits uint64) time.Duration {
	if r.Jitter == 0 {
		return 0
	}
	n := int64(min(max(attempt, 1), maxPower))
	delay := time.Duration(n*n*n*n) * time.Second
	share := float64(bits>>11)/(1<<52) - 1 // in [-1, 1)
	return delay + time.Duration(share*r.Jitter*float64(delay))
}
