package starling

// Kind selects the host's reaction to a failed call.
type Kind string

const (
	// KindTool: the tool failed. Every other error becomes this kind.
	KindTool Kind = "tool"
	// KindTransient: worth another attempt, if the tool is idempotent.
	KindTransient Kind = "transient"
	// KindCancel: do not retry; nothing is wrong with the input.
	KindCancel Kind = "cancel"
	// KindDiscard: do not retry; this input can never succeed.
	KindDiscard Kind = "discard"
	// KindSnooze: try again after a delay, which consumes no attempt.
	KindSnooze Kind = "snooze"
)

// Error is a failure with the host's reaction to it. Of nested Errors the
// outermost decides.
type Error struct {
	Kind         Kind
	RetryAfterMs int64 // for KindSnooze, in milliseconds; zero: the host decides
	Err          error // never nil; the model reads its text
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the failure itself.
func (e *Error) Unwrap() error { return e.Err }

// Transient marks err as worth another attempt: a service that answers 503, a
// connection that broke. Bad input and refused permission are not transient.
// Nil stays nil.
func Transient(err error) error { return mark(KindTransient, 0, err) }

// Cancel marks err as final although nothing is wrong with the input, such as
// a missing permission. Nil stays nil.
func Cancel(err error) error { return mark(KindCancel, 0, err) }

// Discard marks err as final because of the input, which the model should
// change. Nil stays nil.
func Discard(err error) error { return mark(KindDiscard, 0, err) }

// Snooze marks err as temporary, such as a rate limit, to be retried after a
// delay. The attempt does not count. Zero or less leaves the delay to the host. Nil stays nil.
func Snooze(afterMs int64, err error) error { return mark(KindSnooze, afterMs, err) }

func mark(kind Kind, afterMs int64, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: kind, RetryAfterMs: max(afterMs, 0), Err: err}
}

// classify returns the kind of err and its delay, in milliseconds: from the
// first error in its tree, depth first, that has a kind. This is errors.As,
// which would link reflection into every module.
func classify(err error) (Kind, int64) {
	if kind, afterMs := findKind(err); kind != "" {
		return kind, afterMs
	}
	return KindTool, 0
}

func findKind(err error) (Kind, int64) {
	switch e := err.(type) {
	case *Error:
		return e.Kind, e.RetryAfterMs
	case interface{ errorKind() Kind }: // an *HTTPError, where HTTP is linked at all
		return e.errorKind(), 0
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return findKind(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, wrapped := range e.Unwrap() {
			if kind, afterMs := findKind(wrapped); kind != "" {
				return kind, afterMs
			}
		}
	}
	return "", 0
}
