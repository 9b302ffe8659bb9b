package debug

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
)

// Target is one attempt of a call, and the place in it where a session begins.
type Target struct {
	Call span.Span

	seq  uint64  // of the effect to begin at; zero for none
	fuel *uint64 // to begin at; nil for none
	head bool    // begin at the first instruction, instead of the last
}

// NoCallError is returned if a run has no call to execute again.
type NoCallError struct {
	Reason string
	Calls  []span.Span // that can be executed
}

// Error returns the reason.
func (e *NoCallError) Error() string { return e.Reason }

// Find returns the call that at names: CALL or CALL/FUEL. CALL is the number of an event of the
// call, or the id of the call, which means its last attempt. The session begins at that event: at
// the first instruction for the event that scheduled the call, at the effect, or at the end. FUEL,
// such as 1M, begins where the call has spent that much. The empty text means the end of the call
// whose failure ended the run, or else of the one that failed last, or of the last call, of those that
// are modules.
func Find(events []event.Event, at string) (Target, error) {
	run, err := span.Of(events)
	if err != nil {
		return Target{}, err
	}
	var calls []span.Span
	for _, s := range run.Spans {
		if s.Kind == span.Call {
			calls = append(calls, s)
		}
	}
	if run.Encrypted {
		return Target{}, event.ErrEncrypted
	}
	if len(calls) == 0 {
		return Target{}, &NoCallError{Reason: "the run has no call"}
	}
	started, err := events[0].AsRunStarted()
	if err != nil {
		return Target{}, err
	}
	module := func(c span.Span) bool {
		return slices.ContainsFunc(started.ToolSchemas, func(ref event.ToolSchemaRef) bool { return ref.Name == c.Name && ref.Sandbox != nil })
	}
	modules := slices.DeleteFunc(slices.Clone(calls), func(c span.Span) bool { return !module(c) })
	switch {
	case len(modules) == 0:
		return Target{}, &NoCallError{Reason: "no tool that the run has called is a module, so there is nothing to execute"}
	case at == "":
		return Target{Call: latest(run, modules)}, nil
	}
	name, t := at, Target{}
	if cut := strings.LastIndexByte(at, '/'); cut >= 0 {
		if fuel, err := display.ParseCount(at[cut+1:], display.FuelUnits()); err == nil {
			name, t.fuel = at[:cut], &fuel
		}
	}
	seq, err := strconv.ParseUint(name, 10, 64)
	if err != nil {
		seq = 0
	}
	callID := ""
	if 0 < seq && seq <= uint64(len(events)) && events[seq-1].Kind == event.KindSideEffectRecorded {
		effect, _ := events[seq-1].AsSideEffectRecorded() // or it is an effect of no call
		callID, t.seq = effect.CallID, seq
	}
	found := false
	for _, s := range calls {
		begins, ends := s.First == seq, s.Last == seq && seq > 0
		within := callID != "" && s.CallID == callID && s.First < seq && (s.Last == 0 || seq < s.Last)
		if begins || ends || within || s.CallID == name {
			t.Call, t.head, found = s, begins, true
		}
	}
	switch {
	case !found:
		return t, &NoCallError{fmt.Sprintf("%q is neither an event of a call nor the id of one", name), modules}
	case !module(t.Call):
		return t, &NoCallError{fmt.Sprintf("tool %q is not a module, so there is nothing to execute", t.Call.Name), modules}
	}
	return t, nil
}

// latest returns the call whose failure ended the run, the call that failed last, or the last one.
func latest(run *span.Run, calls []span.Span) span.Span {
	if run.Cause != span.None && slices.Contains(calls, run.Spans[run.Cause]) {
		return run.Spans[run.Cause]
	}
	last := calls[len(calls)-1]
	for _, s := range calls {
		if s.State != span.OK && s.Last >= last.Last || last.State == span.OK && s.State != span.OK {
			last = s
		}
	}
	return last
}
