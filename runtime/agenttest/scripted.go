package agenttest

import (
	"context"
	"fmt"
	"io"

	"github.com/starling-host/starling/runtime/provider"
)

// Turn is what the model does when it is asked: an error before there is a
// response, or chunks, and after them an error or the end.
type Turn struct {
	Chunks  []provider.StreamChunk
	Refuse  error // instead of a response
	Breaks  error // after the chunks; nil means io.EOF
	Blocks  bool  // after the chunks, until the context ends
	Expects func(req *provider.Request) error
}

// ScriptedProvider is a model that follows a script. Which turn is due follows from
// the conversation, the first one with no answer in it: so one provider serves any
// number of runs at a time, and one that is resumed goes on at the right place.
// Asked for more than the script has, it fails. It is safe for concurrent use.
type ScriptedProvider struct {
	Turns []Turn
	// ID and APIVersion are "scripted" and "v0" by default.
	ID, APIVersion string
}

// Info implements [provider.Provider].
func (p ScriptedProvider) Info() provider.Info {
	info := provider.Info{ID: p.ID, APIVersion: p.APIVersion}
	if info.ID == "" {
		info.ID = "scripted"
	}
	if info.APIVersion == "" {
		info.APIVersion = "v0"
	}
	return info
}

// Stream implements [provider.Provider].
func (p ScriptedProvider) Stream(_ context.Context, req *provider.Request) (provider.EventStream, error) {
	n := 0
	for _, m := range req.Messages {
		if m.Role == provider.RoleAssistant {
			n++
		}
	}
	if n >= len(p.Turns) {
		return nil, fmt.Errorf("agenttest: the script has %d turns, and turn %d was asked for", len(p.Turns), n+1)
	}
	turn := p.Turns[n]
	if turn.Expects != nil {
		if err := turn.Expects(req); err != nil {
			return nil, err
		}
	}
	if turn.Refuse != nil {
		return nil, turn.Refuse
	}
	return &stream{turn: turn}, nil
}

// stream plays a turn.
type stream struct {
	turn Turn
	next int
}

// NewStream returns a stream of the given chunks.
func NewStream(chunks ...provider.StreamChunk) provider.EventStream {
	return &stream{turn: Turn{Chunks: chunks}}
}

// Next implements [provider.EventStream].
func (s *stream) Next(ctx context.Context) (provider.StreamChunk, error) {
	if err := ctx.Err(); err != nil {
		return provider.StreamChunk{}, err
	}
	if s.next < len(s.turn.Chunks) {
		s.next++
		return s.turn.Chunks[s.next-1], nil
	}
	if s.turn.Blocks {
		<-ctx.Done()
		return provider.StreamChunk{}, ctx.Err()
	}
	if s.turn.Breaks != nil {
		return provider.StreamChunk{}, s.turn.Breaks
	}
	return provider.StreamChunk{}, io.EOF
}

// Close implements [provider.EventStream].
func (s *stream) Close() error { return nil }

// zeroHash stands for what came over a wire that is not there.
var zeroHash = make([]byte, 32)

// Say is a turn in which the model answers with a text.
func Say(text string) Turn {
	return Turn{Chunks: []provider.StreamChunk{
		{Kind: provider.ChunkText, Text: text}, Tokens(120, 45), End("stop"),
	}}
}

// Call is a turn in which the model calls one tool.
func Call(callID, tool, args string) Turn { return Calls(Use{callID, tool, args}) }

// Use is one call of a turn.
type Use struct {
	CallID, Tool string
	Args         string // as the model writes them
}

// Calls is a turn in which the model calls several tools at once.
func Calls(uses ...Use) Turn {
	var t Turn
	for _, u := range uses {
		t.Chunks = append(t.Chunks,
			provider.StreamChunk{Kind: provider.ChunkToolUseStart, ToolUse: &provider.ToolUseChunk{CallID: u.CallID, Name: u.Tool}},
			provider.StreamChunk{Kind: provider.ChunkToolUseDelta, ToolUse: &provider.ToolUseChunk{CallID: u.CallID, ArgsDelta: u.Args}},
			provider.StreamChunk{Kind: provider.ChunkToolUseEnd, ToolUse: &provider.ToolUseChunk{CallID: u.CallID}})
	}
	t.Chunks = append(t.Chunks, Tokens(120, 45), End("tool_use"))
	return t
}

// Tokens is a chunk of usage.
func Tokens(input, output int64) provider.StreamChunk {
	return provider.StreamChunk{Kind: provider.ChunkUsage, Usage: &provider.Usage{InputTokens: input, OutputTokens: output}}
}

// End is the last chunk of a turn.
func End(reason string) provider.StreamChunk {
	return provider.StreamChunk{Kind: provider.ChunkEnd, StopReason: reason, RawResponseHash: zeroHash, RequestID: "req-1"}
}
