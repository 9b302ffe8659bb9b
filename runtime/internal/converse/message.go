package converse

import (
	"cmp"

	"github.com/starling-host/starling/runtime/provider"
)

// Message makes chunks of the blocks of a response. The kind of a block is its
// chunks' kind, [provider.ChunkToolUseStart] for a tool use.
type Message struct {
	// StopReason and RequestID are for the last chunk.
	StopReason, RequestID string

	queue []provider.StreamChunk
	open  map[int64]*block
}

// block is a block that has not been closed.
type block struct {
	kind   provider.ChunkKind
	callID string
	args   bool // some have been sent

	// held waits for the end of the block: a signature, opaque data, or arguments
	// in case none are sent.
	held []byte
}

// IsOpen reports whether the block with this number is open.
func (m *Message) IsOpen(index int64) bool { return m.open[index] != nil }

// Open opens a block other than a tool use.
func (m *Message) Open(index int64, kind provider.ChunkKind) error {
	if m.IsOpen(index) {
		return Malformed("block %d is opened twice", index)
	}
	m.put(index, &block{kind: kind})
	return nil
}

func (m *Message) put(index int64, b *block) {
	if m.open == nil {
		m.open = map[int64]*block{}
	}
	m.open[index] = b
}

// OpenToolUse opens a tool use. The input counts if no delta follows; without
// either the arguments are an empty object, because models write none for a tool
// that takes none.
func (m *Message) OpenToolUse(index int64, callID, name, input string) error {
	if callID == "" || name == "" {
		return Malformed("the tool use in block %d has the id %q and the name %q", index, callID, name)
	}
	if err := m.Open(index, provider.ChunkToolUseStart); err != nil {
		return err
	}
	b := m.open[index]
	b.callID, b.held = callID, []byte(cmp.Or(input, "{}"))
	m.Push(provider.StreamChunk{Kind: provider.ChunkToolUseStart, ToolUse: &provider.ToolUseChunk{CallID: callID, Name: name}})
	return nil
}

// Delta adds text to a block of the kind.
func (m *Message) Delta(index int64, kind provider.ChunkKind, text string) error {
	b, err := m.block(index, kind)
	if err != nil || text == "" {
		return err
	}
	switch kind {
	case provider.ChunkRedactedThinking:
		b.held = append(b.held, text...)
	case provider.ChunkToolUseStart:
		b.args = true
		m.arguments(b, text)
	default:
		m.Push(provider.StreamChunk{Kind: kind, Text: text})
	}
	return nil
}

// Extend is Delta for a protocol in which the first delta opens a block.
func (m *Message) Extend(index int64, kind provider.ChunkKind, text string) error {
	if !m.IsOpen(index) {
		m.put(index, &block{kind: kind})
	}
	return m.Delta(index, kind, text)
}

// Sign adds to the signature of a block of reasoning.
func (m *Message) Sign(index int64, signature string) error {
	b, err := m.block(index, provider.ChunkReasoning)
	if err == nil {
		b.held = append(b.held, signature...)
	}
	return err
}

func (m *Message) block(index int64, kind provider.ChunkKind) (*block, error) {
	switch b := m.open[index]; {
	case b == nil:
		return nil, Malformed("block %d is not open", index)
	case b.kind != kind:
		return nil, Malformed("block %d is a %v, and a piece of it a %v", index, b.kind, kind)
	default:
		return b, nil
	}
}

// Close closes a block.
func (m *Message) Close(index int64) error {
	b := m.open[index]
	if b == nil {
		return Malformed("block %d is closed and not open", index)
	}
	delete(m.open, index)
	switch {
	case b.kind == provider.ChunkToolUseStart:
		if !b.args {
			m.arguments(b, string(b.held))
		}
		m.Push(provider.StreamChunk{Kind: provider.ChunkToolUseEnd, ToolUse: &provider.ToolUseChunk{CallID: b.callID}})
	case b.kind == provider.ChunkRedactedThinking:
		m.Push(provider.StreamChunk{Kind: b.kind, Text: string(b.held)})
	case len(b.held) > 0:
		m.Push(provider.StreamChunk{Kind: b.kind, Signature: b.held})
	}
	return nil
}

func (m *Message) arguments(b *block, text string) {
	m.Push(provider.StreamChunk{Kind: provider.ChunkToolUseDelta, ToolUse: &provider.ToolUseChunk{CallID: b.callID, ArgsDelta: text}})
}

// Usage adds the counts so far.
func (m *Message) Usage(u provider.Usage) {
	m.Push(provider.StreamChunk{Kind: provider.ChunkUsage, Usage: &u})
}

// end adds the last chunk.
func (m *Message) end(hash []byte) error {
	if len(m.open) > 0 {
		return Malformed("it ends with %d open blocks", len(m.open))
	}
	m.Push(provider.StreamChunk{Kind: provider.ChunkEnd, StopReason: m.StopReason, RequestID: m.RequestID, RawResponseHash: hash})
	return nil
}

// Push adds a chunk for a protocol without blocks.
func (m *Message) Push(c provider.StreamChunk) { m.queue = append(m.queue, c) }
