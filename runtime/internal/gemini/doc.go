// Package gemini is the adapter of Google's Gemini API.
//
//	p, err := gemini.New(converse.Config{APIKey: os.Getenv("GEMINI_API_KEY")})
//
// # Requests
//
// Messages become alternating turns of user and model: the results of tools, and
// what the user says after them, are one turn of the user. A result is sent as
// {"output":...}, that of a tool that failed as {"error":"..."}. The schemas of
// tools are sent as they are, as parametersJsonSchema.
//
// These options are known in Params, under the names of the API and in its form:
//
//	temperature, topP, seed, presencePenalty, frequencyPenalty
//	responseMimeType, responseSchema, responseJsonSchema
//	thinkingConfig     {"includeThoughts":true,"thinkingLevel":"LOW"}
//	safetySettings     [{"category":"HARM_CATEGORY_...","threshold":"BLOCK_NONE"}]
//	mediaResolution, cachedContent, serviceTier, labels, store
//
// # Responses
//
// The API sends whole calls of functions, often without an id. Such a call gets
// one that is a function of the request, so that it differs from those of other
// turns. Output tokens include those of thoughts; input tokens include those that
// came from a cache.
//
// A response ends with a finish reason, which is the StopReason, in the API's own
// word. So does one that was ended by a filter, such as "SAFETY"; if the prompt
// itself was blocked, there is no text and the reason is that of the block. Parts
// that a Request cannot give back, such as images and code that ran at Google, are
// an error and not left out, because the record would then differ from what the
// model said.
//
// # Signatures
//
// The API signs thoughts, texts and calls, and refuses a history in which a call
// has lost its signature. A signature becomes that of a block of reasoning. What
// it belongs to is written before it, "text/" or "call/0/" for the first call,
// unless it is a thought, and on the way back it is put into its place again.
//
// # Failures
//
// The adapter does not retry: the runtime does, so that every attempt is recorded. A
// stream that ends before a finish reason is a
// [provider.ErrNetwork]; one that makes no sense has no class, because it would be
// the same again. A key that is not valid is a [provider.ErrAuth], although the
// API says so with the status 400.
package gemini
