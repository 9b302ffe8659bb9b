package step

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/provider"
)

// The bounds on one answer of a model. What is left of an event holds the rest.
const (
	maxAnswerBytes = maxValueBytes / 4 // of text, reasoning and arguments together; the log writes them twice at most
	maxToolUses    = 1000
	maxToolName    = 256
)

// answer collects the chunks of a response and holds them to the rules: a tool use
// begins once and ends, and nothing follows the end.
type answer struct {
	text      strings.Builder
	reasoning []event.ReasoningEmitted
	open      bool // the last block of reasoning goes on
	uses      []*use
	bytes     int
	usage     provider.Usage
	end       *provider.StreamChunk // nil before the end
}

// use is a tool use that comes in.
type use struct {
	id, name string
	args     strings.Builder
	ended    bool
}

// add takes a chunk. The error wraps [ErrInvalidStream], or says that the answer
// is too large.
func (a *answer) add(chunk provider.StreamChunk) error {
	if a.end != nil {
		return invalid("%s after the end", chunk.Kind)
	}
	if chunk.Kind != provider.ChunkReasoning {
		a.open = false
	}
	switch chunk.Kind {
	case provider.ChunkText:
		a.text.WriteString(chunk.Text)
		return a.grow(len(chunk.Text))
	case provider.ChunkReasoning, provider.ChunkRedactedThinking:
		return a.think(chunk)
	case provider.ChunkToolUseStart, provider.ChunkToolUseDelta, provider.ChunkToolUseEnd:
		return a.use(chunk)
	case provider.ChunkUsage:
		return a.count(chunk.Usage)
	case provider.ChunkEnd:
		return a.finish(chunk)
	}
	return invalid("a chunk of kind %d", chunk.Kind)
}

// invalid is an error of a stream that breaks the rules.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidStream, fmt.Sprintf(format, args...))
}

func (a *answer) grow(n int) error {
	if a.bytes += n; a.bytes > maxAnswerBytes {
		return fmt.Errorf("%w: an answer of more than %d bytes", errAnswerTooLarge, maxAnswerBytes)
	}
	return nil
}

// think takes a piece of reasoning. A block ends with its signature, or with the
// next chunk of another kind.
func (a *answer) think(chunk provider.StreamChunk) error {
	redacted := chunk.Kind == provider.ChunkRedactedThinking
	if !a.open || redacted {
		a.reasoning = append(a.reasoning, event.ReasoningEmitted{Sensitive: true, Redacted: redacted})
	}
	last := &a.reasoning[len(a.reasoning)-1]
	last.Content += chunk.Text
	last.Signature = append(last.Signature, chunk.Signature...)
	a.open = !redacted && len(chunk.Signature) == 0
	return a.grow(len(chunk.Text) + len(chunk.Signature))
}

func (a *answer) use(chunk provider.StreamChunk) error {
	if chunk.ToolUse == nil {
		return invalid("%s without a tool use", chunk.Kind)
	}
	if chunk.Kind == provider.ChunkToolUseStart {
		return a.begin(chunk.ToolUse)
	}
	u := a.find(chunk.ToolUse.CallID)
	if u == nil || u.ended {
		return invalid("%s of %q, which is not open", chunk.Kind, chunk.ToolUse.CallID)
	}
	u.ended = chunk.Kind == provider.ChunkToolUseEnd
	u.args.WriteString(chunk.ToolUse.ArgsDelta)
	return a.grow(len(chunk.ToolUse.ArgsDelta))
}

func (a *answer) begin(piece *provider.ToolUseChunk) error {
	switch {
	case a.find(piece.CallID) != nil:
		return invalid("the tool use %q begins twice", piece.CallID)
	case len(a.uses) == maxToolUses:
		return fmt.Errorf("%w: more than %d tool uses", errAnswerTooLarge, maxToolUses)
	case len(piece.Name) > maxToolName:
		return fmt.Errorf("%w: a tool's name of %d bytes", errAnswerTooLarge, len(piece.Name))
	}
	u := &use{id: piece.CallID, name: strings.ToValidUTF8(piece.Name, string(utf8.RuneError))}
	u.args.WriteString(piece.ArgsDelta)
	a.uses = append(a.uses, u)
	return a.grow(len(piece.CallID) + len(piece.Name) + len(piece.ArgsDelta))
}

func (a *answer) find(id string) *use {
	for _, u := range a.uses {
		if u.id == id {
			return u
		}
	}
	return nil
}

func (a *answer) count(u *provider.Usage) error {
	if u == nil {
		return invalid("usage without counts")
	}
	if u.InputTokens < 0 || u.OutputTokens < 0 || u.CacheReadTokens < 0 || u.CacheCreateTokens < 0 {
		return invalid("usage below zero: %+v", *u)
	}
	a.usage = *u
	return nil
}

func (a *answer) finish(chunk provider.StreamChunk) error {
	for _, u := range a.uses {
		if !u.ended {
			return invalid("the tool use %q has no end", u.id)
		}
	}
	a.end = &chunk
	return nil
}

// planned returns the tool uses as they are recorded. Free says whether a call id
// is still to be had in this run; a use whose id is not gets another.
func (a *answer) planned(free func(id string) bool) []event.PlannedToolUse {
	var all []event.PlannedToolUse
	for _, u := range a.uses {
		id := u.id
		if !plainID(id) || !free(id) {
			id = NewCallID()
		}
		all = append(all, event.PlannedToolUse{CallID: id, ToolName: u.name, Args: argsOf(u.args.String())})
	}
	return all
}

// plainID reports whether every provider takes an id back.
func plainID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for _, c := range []byte(id) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// argsOf returns the arguments that a model wrote, in canonical form. No text
// stands for none. What is not JSON is recorded as a text: it can be shown to the
// model again, and no tool takes it for an object.
func argsOf(text string) canon.Raw {
	if strings.TrimSpace(text) == "" {
		return canon.AppendMap(nil, 0)
	}
	if raw, _, err := canonical(json.RawMessage(text)); err == nil {
		return raw
	}
	return canon.AppendText(nil, strings.ToValidUTF8(text, string(utf8.RuneError)))
}
