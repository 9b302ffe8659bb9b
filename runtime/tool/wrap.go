package tool

import (
	"context"
	"encoding/json"
)

// Middleware returns a function that does something around inner, or instead
// of it.
type Middleware func(inner func(context.Context, json.RawMessage) (json.RawMessage, error)) func(context.Context, json.RawMessage) (json.RawMessage, error)

// Wrap returns t with middleware around its Execute. Each one wraps what the
// ones before it made, so the last one passed runs first, and one that does not
// call inner keeps all others from running. Name, description and schema stay.
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
