// Package bedrock is the adapter of Amazon Bedrock, by its ConverseStream. Models have
// Bedrock's names: the ids of foundation models and inference profiles, or the ARNs of
// these, of prompts and of provisioned throughput.
//
//	p, err := bedrock.New(converse.Config{Region: "us-east-1", Getenv: os.Getenv})
//
// # Requests
//
// Messages become alternating turns: the results of tools, and the user's messages after
// them, are one turn of the user. An assistant's thinking goes back before its text and
// its tool uses. Converse has no top_k; TopK becomes the field of that name in
// additionalModelRequestFields, as models of Anthropic want it. It has no tool choice
// "none" either, so that choice is refused.
//
// These options are known in Params, with the names and the shapes of the API:
//
//	additionalModelRequestFields       an object for the model, such as {"thinking":{...}}
//	additionalModelResponseFieldPaths  JSON pointers
//	requestMetadata                    strings by name, for the log of invocations
//	performanceConfig                  {"latency":"optimized"}
//	serviceTier                        {"type":"priority"}
//	promptVariables                    {"name":{"text":"..."}}, for the ARN of a prompt
//	outputConfig                       {"textFormat":{...}}
//	guardrailConfig                    {"guardrailIdentifier":"...","guardrailVersion":"1"}
//
// and two of its inference settings, with the names that other providers have:
//
//	temperature, top_p                 numbers
//
// # Responses
//
// A block of reasoning is pieces of reasoning and then a piece without text that has the
// signature. Redacted reasoning is bytes in this API, and base64 in the chunk. Input
// tokens include tokens read from and written to a cache. Blocks that a Request cannot
// give back, such as images, are an error and not left out, because the record would then
// differ from the model's answer.
//
// # Failures
//
// The adapter does not retry: the runtime does, so that every attempt is recorded.
// Exceptions have the same class as the status of a response and as an event in a stream.
// A stream that ends before its metadata, which is its last event, is a
// [provider.ErrNetwork]. A malformed stream has no class, because the same request would
// meet the same server again.
//
// # Credentials
//
// Requests are signed with the access key in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY
// and, if it is temporary, AWS_SESSION_TOKEN. As in AWS's own programs a key for
// Bedrock in AWS_BEARER_TOKEN_BEDROCK goes before it.
package bedrock
