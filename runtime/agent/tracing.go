package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// traced is a provider whose responses have spans.
type traced struct {
	provider.Provider
	tracer *observe.Tracer
}

// Stream implements [provider.Provider].
func (t traced) Stream(ctx context.Context, req *provider.Request) (provider.EventStream, error) {
	ctx, end := t.tracer.StartProvider(ctx, observe.Call{Provider: t.Info().ID, Model: req.Model, MaxOutputTokens: req.MaxOutputTokens})
	stream, err := t.Provider.Stream(ctx, req)
	if err != nil {
		end(observe.CallEnd{Err: err})
		return nil, err
	}
	return &tracedStream{EventStream: stream, end: end}, nil
}

// tracedStream ends the span when the response ends. A single goroutine reads it, and calls
// Close after its last read.
type tracedStream struct {
	provider.EventStream
	call observe.CallEnd
	end  func(observe.CallEnd)
}

// Next implements [provider.EventStream].
func (s *tracedStream) Next(ctx context.Context) (provider.StreamChunk, error) {
	chunk, err := s.EventStream.Next(ctx)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		s.call.Err = err
	case chunk.Kind == provider.ChunkUsage && chunk.Usage != nil:
		s.call.Usage = *chunk.Usage
	case chunk.Kind == provider.ChunkEnd:
		s.call.StopReason, s.call.RequestID = chunk.StopReason, chunk.RequestID
	}
	return chunk, err
}

// Close implements [provider.EventStream].
func (s *tracedStream) Close() error {
	if s.end != nil {
		s.end(s.call)
		s.end = nil
	}
	return s.EventStream.Close()
}

// tracedTools returns the tools, each with a span for its attempts, or unchanged without a
// Tracer. Guards stay outermost; a call that they refuse is not an attempt.
func tracedTools(tracer *observe.Tracer, tools []tool.Tool) []tool.Tool {
	if tracer == nil {
		return tools
	}
	all := make([]tool.Tool, len(tools))
	for i, t := range tools {
		inner, guards := tool.Unguard(t)
		all[i] = tool.Wrap(inner, traceTool(tracer, t.Name()))
		for _, g := range guards {
			all[i] = tool.Guarded(all[i], g)
		}
	}
	return all
}

func traceTool(tracer *observe.Tracer, name string) tool.Middleware {
	return func(inner func(context.Context, json.RawMessage) (json.RawMessage, error)) func(context.Context, json.RawMessage) (json.RawMessage, error) {
		return func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
			info, _ := step.CallInfo(ctx)
			ctx, end := tracer.StartTool(ctx, observe.ToolCall{CallID: info.CallID, Tool: name, Attempt: info.Attempt})
			out, err := inner(ctx, input)
			errorType := ""
			if err != nil {
				errorType = step.ErrorType(ctx, err)
			}
			used := step.Consumed(ctx)
			end(observe.ToolEnd{ErrorType: errorType, Fuel: used.Fuel, PeakMemory: used.PeakMemory})
			return out, err
		}
	}
}
