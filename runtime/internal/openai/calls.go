package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

const (
	maxCalls = 1024     // in a response
	maxHeld  = 16 << 20 // bytes of arguments of a call that has no id yet
)

// callDelta is a piece of a tool call.
type callDelta struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string    `json:"name"`
		Arguments arguments `json:"arguments"`
	} `json:"function"`
}

// arguments are a text that should be JSON, or the JSON itself, which some
// servers send in its place.
type arguments string

// UnmarshalJSON implements [json.Unmarshaler].
func (a *arguments) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return json.Unmarshal(b, (*string)(a))
	}
	if string(b) != "null" {
		*a = arguments(b)
	}
	return nil
}

// call is a tool call in progress.
type call struct {
	index  *int
	id     string // the server's, "" until it comes
	name   string
	args   []byte // not yet sent on
	callID string // as it was sent on, "" before that
}

// calls finds the call that a piece belongs to:
//
//   - The protocol names it by its index. A piece with a name and an id of its own
//     begins a call even if the index is that of another: Ollama gives every call
//     index 0. So does a piece with a name when the other call has no id and is
//     complete.
//   - Without an index it is the call with the piece's id. Any other piece with a
//     name begins a call, and a piece without a name continues the last.
//
// A call is sent on once its name and its id are known. At the end, a call without
// an id gets one, and so does a call with another call's id.
type calls struct {
	list []*call
	ids  *converse.IDs
}

// take takes a piece into account.
func (c *calls) take(m *converse.Message, d callDelta) error {
	current := c.find(d)
	if current == nil {
		if len(c.list) == maxCalls {
			return fmt.Errorf("the response has more than %d tool calls", maxCalls)
		}
		current = &call{index: d.Index}
		c.list = append(c.list, current)
	}
	if d.Function.Name != "" && current.name != "" && d.Function.Name != current.name {
		return fmt.Errorf("the tool call %q changes its name from %q to %q", current.id, current.name, d.Function.Name)
	}
	current.name, current.id = cmp.Or(current.name, d.Function.Name), cmp.Or(current.id, d.ID)
	current.args = append(current.args, d.Function.Arguments...)
	if current.id != "" && current.name != "" {
		c.send(m, current)
	}
	if len(current.args) > maxHeld {
		return fmt.Errorf("a tool call without an id or a name has more than %d bytes of arguments", maxHeld)
	}
	return nil
}

// find returns the call that a piece continues, or nil if it begins one.
func (c *calls) find(d callDelta) *call {
	if d.Index == nil {
		return c.findWithoutIndex(d)
	}
	for _, k := range slices.Backward(c.list) {
		if k.index == nil || *k.index != *d.Index {
			continue
		}
		if k.isOver(d) {
			return nil
		}
		return k
	}
	return nil
}

func (c *calls) findWithoutIndex(d callDelta) *call {
	known := slices.IndexFunc(c.list, func(k *call) bool { return d.ID != "" && k.id == d.ID })
	if known >= 0 {
		return c.list[known]
	}
	if len(c.list) == 0 || d.Function.Name != "" {
		return nil
	}
	last := c.list[len(c.list)-1]
	if d.ID != "" && last.id != "" {
		return nil
	}
	return last
}

// isOver reports whether a piece with the index of a call belongs to another call.
func (k *call) isOver(d callDelta) bool {
	switch {
	case d.Function.Name == "" || k.name == "":
		return false
	case d.ID != "" && k.id != "":
		return d.ID != k.id
	}
	return k.id == "" && d.Function.Arguments != "" && json.Valid(k.args)
}

// close ends all calls, in the order in which they began.
func (c *calls) close(m *converse.Message) error {
	for i, k := range c.list {
		if k.name == "" {
			return fmt.Errorf("tool call %d of the response has no name", i+1)
		}
		c.send(m, k)
		push(m, provider.ChunkToolUseEnd, provider.ToolUseChunk{CallID: k.callID})
	}
	return nil
}

// send sends the pieces so far of a call.
func (c *calls) send(m *converse.Message, k *call) {
	if k.callID == "" {
		k.callID = c.ids.Unique(k.id)
		push(m, provider.ChunkToolUseStart, provider.ToolUseChunk{CallID: k.callID, Name: k.name})
	}
	if len(k.args) > 0 {
		push(m, provider.ChunkToolUseDelta, provider.ToolUseChunk{CallID: k.callID, ArgsDelta: string(k.args)})
		k.args = nil
	}
}

func push(m *converse.Message, kind provider.ChunkKind, use provider.ToolUseChunk) {
	m.Push(provider.StreamChunk{Kind: kind, ToolUse: &use})
}
