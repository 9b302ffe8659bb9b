// Package converse holds what Anthropic's Messages API and the ConverseStream of
// Amazon Bedrock have in common.
//
// Both take a conversation of two sides that speak in turns, so that [Turns]
// merges what one side says in a row. Both answer with blocks that have numbers:
// a block is opened, gets deltas and is closed, and a [Message] makes chunks of
// that. [Stream] is the life of the response around it: it ends with its
// contexts, it tells a response that is complete from one that was cut, and it
// hashes the body.
//
// What is different, and what each vendor calls it, is in the adapters.
package converse
