// Package converse holds the common part of the vendors' adapters.
//
// Vendors take a request as JSON and answer with events: server-sent ones, except for
// Amazon Bedrock, which has its own framing. [API] is the provider: it sends what the adapter makes of
// a request, refuses invalid responses, and gives errors their class and text; the adapter's
// [Reader] makes chunks of its vendor's events. Every response ends with its contexts, is told from a truncated
// one, and has its body hashed.
//
// Anthropic, Gemini and Bedrock take a conversation of two sides that speak in turns, so
// [EachTurn] merges successive messages of one side. They answer with numbered blocks: a
// block is opened, gets deltas and is closed, and a [Message] makes chunks of that.
//
// The adapters contain the differences, and the vendors' names for things.
package converse
