// Package converse holds what the vendors' adapters have in common.
//
// Vendors take a request as JSON and answer with events: server-sent ones, but for
// Amazon Bedrock, which has a framing of its own. [API] sends the request, refuses
// responses that are none, and gives errors their class and their words; an adapter's
// [Reader] makes chunks of its vendor's events. [Stream] is the life of every response:
// it ends with its contexts, it tells a response that is complete from one that was cut,
// and it hashes the body.
//
// Anthropic, Gemini and Bedrock take a conversation of two sides that speak in turns,
// so that [Turns] merges what one side says in a row. They answer with blocks that have
// numbers: a block is opened, gets deltas and is closed, and a [Message] makes chunks
// of that.
//
// What is different, and what each vendor calls it, is in the adapters.
package converse
