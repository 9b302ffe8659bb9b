package script

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/runtime/provider"
)

// content returns the chunks of what the turn says.
func (t *Turn) content(step int) []provider.StreamChunk {
	var list []provider.StreamChunk
	for _, r := range t.Reasoning {
		list = append(list, t.reasoning(r)...)
	}
	for _, piece := range t.pieces(t.Text) {
		list = append(list, provider.StreamChunk{Kind: provider.ChunkText, Text: piece})
	}
	for i, c := range t.ToolCalls {
		id := c.id(step, i)
		list = append(list, use(provider.ChunkToolUseStart, provider.ToolUseChunk{CallID: id, Name: c.Name}))
		for _, piece := range t.pieces(c.args()) {
			list = append(list, use(provider.ChunkToolUseDelta, provider.ToolUseChunk{CallID: id, ArgsDelta: piece}))
		}
		list = append(list, use(provider.ChunkToolUseEnd, provider.ToolUseChunk{CallID: id}))
	}
	return list
}

func (c *ToolCall) args() string { return cmp.Or(c.Args, "{}") }

func use(kind provider.ChunkKind, u provider.ToolUseChunk) provider.StreamChunk {
	return provider.StreamChunk{Kind: kind, ToolUse: &u}
}

// reasoning returns the chunks of one block. The signature is on the last one.
func (t *Turn) reasoning(r Reasoning) []provider.StreamChunk {
	if r.Redacted {
		return []provider.StreamChunk{{Kind: provider.ChunkRedactedThinking, Text: r.Text}}
	}
	var list []provider.StreamChunk
	for _, piece := range t.pieces(r.Text) {
		list = append(list, provider.StreamChunk{Kind: provider.ChunkReasoning, Text: piece})
	}
	if r.Signature != "" {
		list[len(list)-1].Signature = []byte(r.Signature)
	}
	return list
}

// pieces divides text into what a chunk has of it.
func (t *Turn) pieces(text string) []string {
	var list []string
	for text != "" {
		n := word(text)
		if t.Chunk > 0 {
			n = characters(text, t.Chunk)
		}
		list, text = append(list, text[:n]), text[n:]
	}
	return list
}

// word returns the length of the first word with the white space around it.
func word(text string) int {
	const space = " \t\r\n"
	rest := strings.TrimLeft(text, space)
	end := strings.IndexAny(rest, space)
	if end < 0 {
		return len(text)
	}
	return len(text) - len(strings.TrimLeft(rest[end:], space))
}

// characters returns the length of the first n characters.
func characters(text string, n int) int {
	for i := range text {
		if n == 0 {
			return i
		}
		n--
	}
	return len(text)
}

// outputTokens guesses the tokens of what the turn says.
func (t *Turn) outputTokens() int64 {
	runes := utf8.RuneCountInString(t.Text)
	for _, r := range t.Reasoning {
		runes += utf8.RuneCountInString(r.Text)
	}
	for _, c := range t.ToolCalls {
		runes += utf8.RuneCountInString(c.args())
	}
	return int64(runes+2) / 3
}

// stopReason is the turn's own or the one that models give.
func (t *Turn) stopReason() string {
	usual := "end_turn"
	if len(t.ToolCalls) > 0 {
		usual = "tool_use"
	}
	return cmp.Or(t.StopReason, usual)
}
