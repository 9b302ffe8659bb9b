// Package gemini is the adapter of Google's Gemini API.
//
//	p, err := gemini.New(converse.Config{APIKey: os.Getenv("GEMINI_API_KEY")})
//
// # Requests
//
// Messages become alternating turns of user and model: the results of tools, and the
// user's messages after them, are one turn of the user. A result is sent as
// {"output":...}, the result of a failed tool as {"error":"..."}. The schemas of
// tools are sent unchanged, as parametersJsonSchema.
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
// The API sends whole calls of functions, often without an id. Such a call gets an
// id that is a function of the request, so that it differs between turns. Output
// tokens include thoughts; input tokens include tokens from a cache.
//
// A response ends with a finish reason, which is the StopReason, in the API's own
// word. So does a response that a filter ended, such as "SAFETY"; if the prompt
// itself was blocked, there is no text and the StopReason is the reason for the
// block. Parts that a Request cannot give back, such as images and code that ran at
// Google, are an error and not left out, because the record would then differ from
// the model's answer.
//
// # Signatures
//
// The API signs thoughts, texts and calls, and refuses a history in which a call has
// lost its signature. A signature becomes the signature of a block of reasoning.
// Unless it belongs to a thought, its owner is written before it, "text/" or
// "call/0/" for the first call, and on the way back it is put into its place again.
//
// # Failures
//
// The adapter does not retry: the runtime does, so that every attempt is recorded. A
// stream that ends before a finish reason is a [provider.ErrNetwork]; a malformed
// stream has no class, because it would be the same again. An invalid key is a
// [provider.ErrAuth], although the API reports it with the status 400.
package gemini
