// Package anthropic is the adapter of Anthropic's Messages API.
//
//	p, err := anthropic.New(converse.Config{APIKey: os.Getenv("ANTHROPIC_API_KEY")})
//
// # Requests
//
// Messages become alternating turns: the results of tools, and the user's messages after
// them, are one turn of the user. An assistant's thinking goes back before its text and
// its tool uses, with the signatures, as the API requires. A MaxOutputTokens of zero
// means 32000, or the maximum of an older model, or 4096 more than a larger budget for
// thinking: the API has no default, and counts thinking as output.
//
// These options are known in Params. The first group is sent unchanged, under the same
// names:
//
//	temperature, top_p             numbers
//	thinking                       {"type":"enabled","budget_tokens":2048}
//	metadata                       {"user_id":"..."}
//	service_tier, speed            "auto", "standard_only"; "fast"
//	output_config                  {"effort":"low"} and formats
//	inference_geo, container       strings
//	context_management             an object, for a beta of that name
//
//	betas                          strings, for the header anthropic-beta
//	disable_parallel_tool_use      true: at most one tool use in a response
//	cache_system                   marks the system prompt for the cache
//	cache_tools                    marks the definitions of tools
//	cache_messages                 marks the conversation up to its last message
//
// The value of a mark is true, or how long the cache lives: "5m", which is the
// default, or "1h".
//
// # Responses
//
// A block of thinking is pieces of reasoning and then a piece without text that has the
// signature. Input tokens include tokens read from and written to the cache. Blocks that
// a Request cannot give back, such as blocks of tools that run at Anthropic, are an
// error and not left out, because the record would then differ from the model's answer.
// Events of unknown types are ignored, as the API asks of its clients.
//
// # Failures
//
// The adapter does not retry: the runtime does, so that every attempt is recorded. An
// error event in a stream has the class of the status that the API documents for its
// type. A stream that ends before message_stop is a [provider.ErrNetwork]. A malformed
// stream has no class, because the same request would meet the same server again.
// Nothing comes from environment variables.
package anthropic
