package providertest

import "github.com/starling-host/starling/runtime/provider"

// Text is a chunk of text.
func Text(s string) provider.StreamChunk {
	return provider.StreamChunk{Kind: provider.ChunkText, Text: s}
}

// Reasoning is a chunk of reasoning.
func Reasoning(s string) provider.StreamChunk {
	return provider.StreamChunk{Kind: provider.ChunkReasoning, Text: s}
}

// Use is a chunk of a tool call.
func Use(kind provider.ChunkKind, id, name, args string) provider.StreamChunk {
	return provider.StreamChunk{Kind: kind, ToolUse: &provider.ToolUseChunk{CallID: id, Name: name, ArgsDelta: args}}
}

// Usage is the chunk with the numbers of tokens.
func Usage(input, output, read, create int64) provider.StreamChunk {
	return provider.StreamChunk{Kind: provider.ChunkUsage, Usage: &provider.Usage{
		InputTokens: input, OutputTokens: output, CacheReadTokens: read, CacheCreateTokens: create,
	}}
}
