package agent

import (
	"context"
	"encoding/json"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/step"
)

// AgentEvent reports the progress of a run: a [TextDelta], [ReasoningDelta], [Restarted],
// [ToolCallStarted], [ToolCallEnded] or [Done].
type AgentEvent interface{ agentEvent() }

// TextDelta is a piece of the model's answer.
type TextDelta struct {
	TurnID string
	Text   string
}

// ReasoningDelta is a piece of the model's reasoning.
type ReasoningDelta struct {
	TurnID string
	Text   string
}

// Restarted reports that a turn is repeated: discard the pieces of its answer so far.
type Restarted struct{ TurnID string }

// ToolCallStarted is an attempt at a call that is about to begin.
type ToolCallStarted struct {
	TurnID, CallID, Tool string
	Attempt              int             // from 1
	Args                 json.RawMessage // canonical
}

// ToolCallEnded is the outcome of an attempt.
type ToolCallEnded struct {
	TurnID, CallID, Tool string
	Attempt              int
	Result               json.RawMessage // canonical; nil on failure
	Err                  error           // a *step.CallError, or nil
}

// Done is the last event of every stream.
type Done struct {
	Result *Result // nil if the run stays open
	Err    error   // as [Agent.RunWithID] returns it
}

func (TextDelta) agentEvent()       {}
func (ReasoningDelta) agentEvent()  {}
func (Restarted) agentEvent()       {}
func (ToolCallStarted) agentEvent() {}
func (ToolCallEnded) agentEvent()   {}
func (Done) agentEvent()            {}

// RunStream begins a run and returns its id and its events. The channel is closed after one
// [Done]. The run proceeds at the reader's pace. When ctx ends, unread events are dropped,
// except for Done.
func (a *Agent) RunStream(ctx context.Context, goal string) (string, <-chan AgentEvent, error) {
	if err := a.Validate(); err != nil {
		return "", nil, err
	}
	runID := a.newRunID()
	return runID, watch(ctx, func(o step.Observer) (*Result, error) { return a.run(ctx, runID, goal, o) }), nil
}

// ResumeStream is [Agent.ResumeWith] with a stream of events.
func (a *Agent) ResumeStream(ctx context.Context, runID, message string, opts ...ResumeOption) (<-chan AgentEvent, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	r := resumption{message: message, reissue: true, seam: true}
	for _, o := range opts {
		o(&r)
	}
	return watch(ctx, func(o step.Observer) (*Result, error) { return a.resume(ctx, runID, r, o) }), nil
}

// watch makes a run that reports its events.
func watch(ctx context.Context, run func(step.Observer) (*Result, error)) <-chan AgentEvent {
	w := &watcher{ctx: ctx, events: make(chan AgentEvent)}
	out := make(chan AgentEvent, 1) // so that Done needs no reader
	done := make(chan Done, 1)
	go func() {
		result, err := run(w)
		done <- Done{result, err}
	}()
	go w.forward(out, done)
	return out
}

// watcher is the observer of a run. Its events go through a separate channel, which is
// never closed.
type watcher struct {
	ctx    context.Context
	events chan AgentEvent
}

// forward passes on the events of the run until it is done.
func (w *watcher) forward(out chan AgentEvent, done <-chan Done) {
	defer close(out)
	for {
		select {
		case ev := <-w.events:
			select {
			case out <- ev:
			case <-w.ctx.Done():
			}
		case d := <-done:
			w.last(out, d)
			return
		}
	}
}

// last passes on Done. It does not wait for a reader that is gone: Done replaces the
// buffered event.
func (w *watcher) last(out chan AgentEvent, d Done) {
	select {
	case out <- d:
		return
	case <-w.ctx.Done():
	}
	select {
	case <-out:
	default:
	}
	out <- d // this goroutine is the only writer
}

func (w *watcher) send(ev AgentEvent) {
	select {
	case w.events <- ev:
	case <-w.ctx.Done():
	}
}

// Chunk implements [step.Observer].
func (w *watcher) Chunk(turnID string, attempt int, chunk provider.StreamChunk) {
	switch chunk.Kind {
	case provider.ChunkText:
		w.send(TextDelta{turnID, chunk.Text})
	case provider.ChunkReasoning:
		w.send(ReasoningDelta{turnID, chunk.Text})
	}
}

// Again implements [step.Observer].
func (w *watcher) Again(turnID string) { w.send(Restarted{turnID}) }

// ToolStarted implements [step.Observer].
func (w *watcher) ToolStarted(call event.ToolCallScheduled) {
	args, _ := canon.ToJSON(call.Args) // they were made from JSON
	w.send(ToolCallStarted{call.TurnID, call.CallID, call.ToolName, int(call.Attempt), args})
}

// ToolEnded implements [step.Observer].
func (w *watcher) ToolEnded(call event.ToolCallScheduled, result json.RawMessage, err *step.CallError) {
	ended := ToolCallEnded{call.TurnID, call.CallID, call.ToolName, int(call.Attempt), result, nil}
	if err != nil {
		ended.Err = err
	}
	w.send(ended)
}

// Stream begins a run and returns its id and its recorded events, from the first to the
// terminal one. The channel is closed after that, when ctx ends, and when the run stays
// open.
func (a *Agent) Stream(ctx context.Context, goal string) (string, <-chan event.Event, error) {
	if err := a.Validate(); err != nil {
		return "", nil, err
	}
	runID := a.newRunID()
	follow, stop := context.WithCancel(ctx)
	events, err := a.Log.Stream(follow, runID)
	if err != nil {
		stop()
		return "", nil, err
	}
	out := make(chan event.Event)
	go func() {
		if result, _ := a.RunWithID(ctx, runID, goal); result == nil {
			stop()
		}
	}()
	go func() {
		defer stop()
		defer close(out)
		for ev := range events {
			select {
			case out <- ev:
			case <-ctx.Done():
				return
			}
			if ev.Kind.Terminal() {
				return
			}
		}
	}()
	return runID, out, nil
}
