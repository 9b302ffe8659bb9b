package step

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/tool"
)

var (
	// ErrInvalidConfig is returned by [NewContext] for a Config that lacks a field required in its
	// mode.
	ErrInvalidConfig = errors.New("step: invalid Config")

	// ErrToolNotFound is wrapped by the failure of a call to a tool that the
	// [Registry] does not have. The failure is in the log like any other.
	ErrToolNotFound = errors.New("step: tool not found")

	// ErrReplayMismatch matches every [*MismatchError].
	ErrReplayMismatch = errors.New("step: replay mismatch")

	// ErrRecordingEnded ends the replay of a run whose recording was cut off, by a crash or because
	// the run continues, when the code reaches an event that was never recorded. It is not a
	// divergence.
	ErrRecordingEnded = errors.New("step: the recording ends here")

	// ErrEnded is returned, or thrown by functions without an error result, when a call or a run
	// acts after its outcome.
	ErrEnded = errors.New("step: already ended")

	// ErrInvalidCall is returned by [CallTool] and [CallTools] for a call that cannot be recorded:
	// without a turn, with a call id used before, or with arguments that are not JSON or too large.
	// Nothing is recorded.
	ErrInvalidCall = errors.New("step: invalid call")

	// ErrInvalidEffect is returned by [SideEffect] and [Do] for an effect that cannot be recorded:
	// with an empty, reserved or overlong name, or a request that is too large. Nothing is recorded
	// or done.
	ErrInvalidEffect = errors.New("step: invalid effect")
)

// MismatchClass is the kind of difference between a replay and the recording.
type MismatchClass string

const (
	// MismatchExhausted: the code did more than was recorded, or less.
	MismatchExhausted MismatchClass = "exhausted"
	// MismatchKind: an event of one kind was recorded, another one happened.
	MismatchKind MismatchClass = "kind"
	// MismatchPayload: the kinds agree, the bytes or the order of events do not.
	MismatchPayload MismatchClass = "payload"
	// MismatchTurnID: the payloads differ first in their turn id.
	MismatchTurnID MismatchClass = "turn_id"
)

// MismatchError is the first difference between a replay and its recording.
type MismatchError struct {
	Seq          uint64     // of the recorded event; past the end, one more than the last
	Kind         event.Kind // of the replay's event; zero if it had no more
	ExpectedKind event.Kind // of the recorded event; zero if there were no more
	Class        MismatchClass
	Reason       string // one sentence
	Field        string // dotted path of the first payload field that differs, or empty
	Expected     string // the recorded value of Field
	Got          string // the replayed value of Field
}

// Error describes the position of the difference and its reason.
func (e *MismatchError) Error() string {
	text := fmt.Sprintf("%v at seq %d (%s): %s", ErrReplayMismatch, e.Seq, e.Class, e.Reason)
	if e.Field != "" {
		text += fmt.Sprintf(": %s: recorded %s, got %s", e.Field, e.Expected, e.Got)
	}
	return text
}

// Is reports whether target is [ErrReplayMismatch].
func (e *MismatchError) Is(target error) bool { return target == ErrReplayMismatch }

// EffectTransient is the type of a failed effect whose error wrapped
// [tool.ErrTransient].
const EffectTransient = string(abi.ErrorTransient)

// EffectError is a failed effect as recorded in the log. The recorded run and every replay of it
// get the same error, so it has the text and the class of the original, but not the original
// itself.
type EffectError struct {
	Name    string        // of the effect
	Type    string        // an Error constant of package event, or an abi.ErrorKind that requests an action
	Message string        // the text of the original error
	After   time.Duration // of a snooze
}

// Error returns the text of the original error.
func (e *EffectError) Error() string { return e.Message }

// FailureKind passes the action that the effect's error requested to [tool.KindOf], so that it also
// applies to a tool that returns e.
func (e *EffectError) FailureKind() (abi.ErrorKind, time.Duration) {
	switch kind := abi.ErrorKind(e.Type); kind {
	case abi.ErrorTransient, abi.ErrorCancel, abi.ErrorDiscard, abi.ErrorSnooze:
		return kind, e.After
	}
	return abi.ErrorTool, 0
}

// Is reports whether target is the sentinel of e's class. Timeouts and cancellations also match the
// errors of package context.
func (e *EffectError) Is(target error) bool {
	return slices.Contains(recordedClasses, class{e.Type, target})
}

// CallError is a failed call of a tool as recorded in the log. It unwraps to the error of the tool.
type CallError struct {
	Tool   string
	Failed event.ToolCallFailed // the last attempt
	Err    error
}

// Error returns the recorded text.
func (e *CallError) Error() string { return e.Failed.Error }

// Unwrap returns the tool's own error.
func (e *CallError) Unwrap() error { return e.Err }

// Is reports whether target is the sentinel of the failure's class.
func (e *CallError) Is(target error) bool {
	return slices.Contains(recordedClasses, class{e.Failed.ErrorType, target})
}

// class is a class of failure: its name in the log, and a sentinel.
type class struct {
	name     string
	sentinel error
}

// callClasses are the classes of failed attempts. The first whose sentinel an error wraps
// is recorded.
var callClasses = []class{
	{event.ErrorPanic, tool.ErrPanicked},
	{event.ErrorTimeout, tool.ErrTimeout},
	{event.ErrorCancelled, tool.ErrCancelled},
	{event.ErrorFuel, tool.ErrFuel},
	{event.ErrorLimit, tool.ErrLimit},
	{event.ErrorLost, tool.ErrLost},
}

// recordedClasses are the classes that define the sentinels of a recorded failure.
var recordedClasses = append(slices.Clone(callClasses),
	class{event.ErrorCancelled, context.Canceled}, class{event.ErrorTimeout, context.DeadlineExceeded}, class{EffectTransient, tool.ErrTransient})
