package tool

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/starling-host/starling/eventlog/event"
)

// Guard decides whether a call may be made, by the tool's name in the run and the arguments
// in canonical form, which it must not modify. It returns no verdicts if no policy applies. It
// must be safe for concurrent use, and fast.
type Guard func(ctx context.Context, name string, input json.RawMessage) event.Verdicts

// Guarded returns t with a guard that must allow its calls. Package step asks the guard
// before the tool begins, and records its verdicts; a replay does not ask. Inside
// a wrapper that changes Execute, such as one of [Wrap], the tool cannot be called.
func Guarded(t Tool, g Guard) Tool { return &guarded{t, g} }

// Unguard returns the tool that carries out the calls of t, and the guards of t, the innermost first.
// It looks into guards, other names and sources, which do not change what a call does.
func Unguard(t Tool) (inner Tool, guards []Guard) {
	switch w := t.(type) {
	case *guarded:
		inner, guards = Unguard(w.Tool)
		return inner, append(guards, w.guard)
	case sourced:
		return Unguard(w.Tool)
	case renamed:
		return Unguard(w.Tool)
	}
	return t, nil
}

type guarded struct {
	Tool
	guard Guard
}

var errUnguarded = errors.New("tool: a guarded tool was called without its guard being asked")

// Execute fails, because its caller has not asked the guard.
func (g *guarded) Execute(context.Context, json.RawMessage) (json.RawMessage, error) {
	return nil, ToolCancel(errUnguarded)
}

// Unwrap returns the tool inside.
func (g *guarded) Unwrap() Tool { return g.Tool }

// Middleware returns a function that wraps or replaces inner.
type Middleware func(inner func(context.Context, json.RawMessage) (json.RawMessage, error)) func(context.Context, json.RawMessage) (json.RawMessage, error)

// Wrap returns t with middleware around its Execute. Each wraps the result of those before
// it, so the last one passed runs first, and can keep the others from running. Name,
// description and schema stay.
func Wrap(t Tool, mw ...Middleware) Tool {
	execute := t.Execute
	for _, m := range mw {
		execute = m(execute)
	}
	return &wrapped{t, execute}
}

type wrapped struct {
	Tool
	execute func(context.Context, json.RawMessage) (json.RawMessage, error)
}

func (w *wrapped) Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	return w.execute(ctx, input)
}

// Unwrap returns the tool inside.
func (w *wrapped) Unwrap() Tool { return w.Tool }
