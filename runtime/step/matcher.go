package step

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// matcher passes the events of a recording to the code that replays it.
//
// Tools that ran at the same time interleaved their events in an order that another run would not
// repeat. The order within each stream does repeat: the events of one call, and the events of the
// run itself. So the matcher splits the recording into streams and matches each strictly in order.
// Between streams it requires only causality: a call's events come after the call was scheduled,
// and the caller's next event comes after all events of the call.
//
// The Context's mu guards a matcher.
type matcher struct {
	events  []event.Event
	decoded []any  // the payloads of events that may belong to a call
	before  uint64 // events of the run before the first of them
	open    bool   // there is no terminal event
	streams map[string]*stream
}

// stream is the part of a recording that belongs to one call, or to the run.
type stream struct {
	events []int  // indexes of its events in the recording, ascending
	next   int    // the first of them that is not matched yet
	floor  uint64 // the next event must have a greater seq than this
}

// never is the floor of a stream in which nothing more can follow, because it
// waits for a call that has no outcome.
const never = math.MaxUint64

func newMatcher(runID string, before uint64, events []event.Event) (*matcher, error) {
	m := &matcher{
		events:  events,
		before:  before,
		open:    !events[len(events)-1].Kind.Terminal(),
		streams: make(map[string]*stream),
	}
	for i, ev := range events {
		if ev.RunID != runID || ev.Seq != before+uint64(i)+1 {
			return nil, fmt.Errorf("recorded event %d is seq %d of run %q, want seq %d of run %q", i, ev.Seq, ev.RunID, before+uint64(i)+1, runID)
		}
		payload, err := event.OfCall(ev)
		if err != nil {
			return nil, err
		}
		m.decoded = append(m.decoded, payload)
		s := m.stream(streamOf(payload))
		s.events = append(s.events, i)
	}
	return m, nil
}

// streamOf returns the stream of a payload: its call, except that the first scheduling of a call
// belongs to its parent. Payloads without a call belong to the run.
func streamOf(payload any) string {
	switch p := payload.(type) {
	case event.ToolCallScheduled:
		if p.Attempt <= 1 {
			return p.ParentID
		}
		return p.CallID
	case event.ToolCallCompleted:
		return p.CallID
	case event.ToolCallFailed:
		return p.CallID
	case event.SideEffectRecorded:
		return p.CallID
	case event.BudgetExceeded:
		return p.CallID
	}
	return ""
}

// stream returns the stream of a call, which is empty if nothing was recorded for it.
func (m *matcher) stream(id string) *stream {
	s := m.streams[id]
	if s == nil {
		s = &stream{}
		m.streams[id] = s
	}
	return s
}

// peek returns the next event of a stream, or nil at its end.
func (m *matcher) peek(id string) *event.Event {
	s := m.stream(id)
	if s.next == len(s.events) {
		return nil
	}
	return &m.events[s.events[s.next]]
}

// claim takes the next event of a stream, which must be of the given kind. did describes the action
// of the replay, for readers.
func (m *matcher) claim(id string, kind event.Kind, did string) (*event.Event, error) {
	s, next := m.stream(id), m.peek(id)
	switch {
	case next == nil && m.open:
		return nil, ErrRecordingEnded
	case next == nil:
		of := "the run"
		if id != "" {
			of = "call " + id
		}
		return nil, &MismatchError{
			Seq: m.before + uint64(len(m.events)) + 1, Kind: kind, Class: MismatchExhausted,
			Reason: fmt.Sprintf("nothing more is recorded for %s, but the replay did %s", of, did),
		}
	case next.Kind != kind:
		return nil, &MismatchError{
			Seq: next.Seq, Kind: kind, ExpectedKind: next.Kind, Class: MismatchKind,
			Reason: fmt.Sprintf("%s is recorded, but the replay did %s", next.Kind, did),
		}
	case next.Seq <= s.floor: // it is recorded before one that must precede it
		err := unreadable(next, fmt.Errorf("%s is recorded before what it depends on", next.Kind))
		err.Field, err.Expected, err.Got = "seq", fmt.Sprint(next.Seq), fmt.Sprintf("more than %d", s.floor)
		if s.floor == never {
			err.Got = "nothing, because a call that it waits for has no outcome"
		}
		return nil, err
	}
	s.next++
	return next, nil
}

// fork starts the stream of a call that the parent has scheduled. The call's events come after
// everything that the parent scheduled together with it.
func (m *matcher) fork(parent, call string) {
	s := m.stream(call)
	s.floor = max(s.floor, m.last(parent))
}

// join ends the parent's wait for a call. The parent's next event comes after all events of the
// call. A call without an outcome never ends.
func (m *matcher) join(parent, call string, ended bool) {
	s, child := m.stream(parent), m.stream(call)
	s.floor = max(s.floor, m.last(call), child.floor)
	if !ended {
		s.floor = never
	}
}

// last returns the seq of the last event taken from a stream.
func (m *matcher) last(id string) uint64 {
	s := m.stream(id)
	if s.next == 0 {
		return 0
	}
	return m.events[s.events[s.next-1]].Seq
}

// leftover returns the mismatch of the first event that the replay did not reach, or nil.
func (m *matcher) leftover() error {
	var first *event.Event
	for id := range m.streams {
		if next := m.peek(id); next != nil && (first == nil || next.Seq < first.Seq) {
			first = next
		}
	}
	if first == nil {
		return nil
	}
	return &MismatchError{
		Seq: first.Seq, ExpectedKind: first.Kind, Class: MismatchExhausted,
		Reason: fmt.Sprintf("%s is recorded, but the replay ended without it", first.Kind),
	}
}

// outcomeSeq returns the seq of a call's last recorded outcome, or the largest number without one.
func (m *matcher) outcomeSeq(call string) uint64 {
	s := m.stream(call)
	for k := len(s.events) - 1; k >= s.next; k-- {
		switch ev := m.events[s.events[k]]; ev.Kind {
		case event.KindToolCallCompleted, event.KindToolCallFailed:
			return ev.Seq
		}
	}
	return never
}

// match compares the payload of the replay with the next event of its stream, and returns that
// event. take copies recorded values into the payload.
func match[T event.Payload](m *matcher, payload *T, take func(p *T, recorded T) error) (*event.Event, error) {
	ev, err := m.claim(streamOf(*payload), (*payload).EventKind(), describe(*payload))
	if err != nil {
		return nil, err
	}
	recorded, ok := m.decoded[ev.Seq-m.before-1].(T)
	if !ok {
		if recorded, err = event.Decode[T](*ev); err != nil {
			return nil, unreadable(ev, err)
		}
	}
	unusable := take(payload, recorded)
	got, err := canon.Encode(*payload)
	if err == nil && bytes.Equal(got, ev.Payload) && unusable == nil {
		return ev, nil
	}
	got, err = event.EncodePayload(*payload)
	switch {
	case err != nil:
		return nil, unreadable(ev, err)
	case !bytes.Equal(got, ev.Payload):
		different := unreadable(ev, fmt.Errorf("%s differs", ev.Kind)) // which may be why take failed
		different.Field, different.Expected, different.Got, _ = event.Diff(ev.Payload, got)
		if different.Field == "turn_id" {
			different.Class = MismatchTurnID
		}
		return nil, different
	case unusable != nil:
		return nil, unreadable(ev, unusable)
	}
	return ev, nil
}

// unreadable returns the mismatch of a recorded event that lacks something the replay needs, or differs.
func unreadable(ev *event.Event, err error) *MismatchError {
	return &MismatchError{Seq: ev.Seq, Kind: ev.Kind, ExpectedKind: ev.Kind, Class: MismatchPayload, Reason: err.Error()}
}

// describe describes a payload of the replay in a few words.
func describe(payload any) string {
	switch p := payload.(type) {
	case event.ToolCallScheduled:
		return fmt.Sprintf("ToolCallScheduled (attempt %d of %q)", p.Attempt, p.ToolName)
	case event.ToolCallFailed:
		return fmt.Sprintf("ToolCallFailed (%s: %s)", p.ErrorType, p.Error)
	case event.SideEffectRecorded:
		return fmt.Sprintf("SideEffectRecorded (%q)", p.Name)
	case event.Payload:
		return p.EventKind().String()
	}
	return "something else"
}

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
