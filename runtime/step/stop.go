package step

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog/event"
)

// isInterruption reports whether an error type means an interruption: by a deadline, the caller, or
// the death of a process. The code does not determine it, so a replay takes it from the recording
// (spec/replay.md, section 6).
func isInterruption(errorType string) bool {
	return errorType == event.ErrorTimeout || errorType == event.ErrorCancelled || errorType == event.ErrorLost
}

// interruptionType returns the error type of a context that ended with err.
func interruptionType(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return event.ErrorTimeout
	}
	return event.ErrorCancelled
}

// interruptionError returns the error of package context for the type of an interruption.
func interruptionError(errorType string) error {
	if errorType == event.ErrorTimeout {
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// stop returns the recorded outcome of an attempt that was interrupted while it
// was computing. See RecordedStop.
func (m *matcher) stop(call string, attempt uint32) (event.ToolCallFailed, bool) {
	s := m.stream(call)
	for k := s.next; k < len(s.events); k++ {
		failed, ok := m.decoded[s.events[k]].(event.ToolCallFailed)
		if !ok || failed.Attempt != attempt {
			continue
		}
		inEffect := k > 0 && (isInterruption(effectErrorType(m.decoded[s.events[k-1]])) || endsWith(m.decoded[s.events[k-1]], failed))
		return failed, isInterruption(failed.ErrorType) && !inEffect
	}
	return event.ToolCallFailed{}, false
}

// endsWith reports whether an outcome has the same count of fuel as the effect before it. Any later
// check would have a higher count. So the work of the tool after the effect is unknown, and the
// tool ends as the effect returns.
func endsWith(payload any, failed event.ToolCallFailed) bool {
	effect, ok := payload.(event.SideEffectRecorded)
	return ok && effect.Error == nil && effect.Fuel > 0 && effect.Fuel == failed.Fuel
}

// end returns the recorded outcome of an attempt that was interrupted as the last matched effect
// returned. See RecordedEnd.
func (m *matcher) end(call string, attempt uint32) (event.ToolCallFailed, bool) {
	failed, ok := m.nextFailure(call, attempt)
	if !ok || !isInterruption(failed.ErrorType) {
		return event.ToolCallFailed{}, false
	}
	s := m.stream(call)
	return failed, s.next > 0 && endsWith(m.decoded[s.events[s.next-1]], failed)
}

// interruption returns the error type of an interrupted attempt that has done everything recorded
// of it, or "" if it has not, or ended otherwise. Its last event may itself be an interrupted
// effect.
func (m *matcher) interruption(call string, attempt uint32) string {
	s := m.stream(call)
	if s.next > 0 {
		if t := effectErrorType(m.decoded[s.events[s.next-1]]); isInterruption(t) {
			return t
		}
	}
	failed, ok := m.nextFailure(call, attempt)
	if ok && isInterruption(failed.ErrorType) {
		return failed.ErrorType
	}
	return ""
}

// nextFailure returns the failure of the attempt if it is the next event of its stream.
func (m *matcher) nextFailure(call string, attempt uint32) (event.ToolCallFailed, bool) {
	s := m.stream(call)
	if s.next == len(s.events) {
		return event.ToolCallFailed{}, false
	}
	failed, ok := m.decoded[s.events[s.next]].(event.ToolCallFailed)
	return failed, ok && failed.Attempt == attempt
}

// effectErrorType returns the type of a failed effect, or "".
func effectErrorType(payload any) string {
	effect, ok := payload.(event.SideEffectRecorded)
	if !ok || effect.Error == nil {
		return ""
	}
	return effect.Error.Type
}

// recordedContext is the context of a tool in a replay. The caller's deadline and cancellation do
// not reach it, because a replay has another speed. It ends where the recording shows an
// interruption, or when the replay is abandoned.
type recordedContext struct {
	context.Context // values
	done            chan struct{}

	mu  sync.Mutex
	err error // guarded by mu
}

func (r *recordedContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (r *recordedContext) Done() <-chan struct{}       { return r.done }

func (r *recordedContext) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// end ends the context, once.
func (r *recordedContext) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
		close(r.done)
	}
}
