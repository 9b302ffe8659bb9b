// Package openai talks to models behind OpenAI's chat completions, and to the
// many servers that copy that protocol:
//
//	openai.OpenAI.New(converse.Config{APIKey: key})
//	openai.Groq.New(converse.Config{APIKey: key})
//	openai.Azure.New(converse.Config{APIKey: key, BaseURL: "https://name.openai.azure.com", APIVersion: "2024-10-21"})
//	openai.OpenAI.New(converse.Config{BaseURL: "http://localhost:1234/v1", ID: "lmstudio"})
//
// # The request
//
// Every request streams and asks for the counts of tokens. Its body is a function of the
// [provider.Request], byte for byte. Values that this protocol cannot express are translated: a failed
// tool result begins with "Error", and arguments that are not a JSON object become the only member of
// one, because servers parse them. The reasoning of earlier turns is sent back only to servers that want
// it.
//
// The copies differ in the names of fields. [OpenAI] knows OpenAI, Azure, DeepSeek, Groq and OpenRouter
// by the hosts of base URLs; every other host gets max_tokens, as most servers want. Each of the other
// servers speaks one product's dialect, by its name. top_k is refused for the servers that do not have
// it.
//
// [provider.Request.Params] are further fields of the body, such as temperature,
// response_format or parallel_tool_calls. A field that the server would not know,
// or that Request has another place for, is an error.
//
// # The response
//
// A stream ends with "[DONE]" after a finish_reason. An earlier end is a failure of the network. A
// refusal is text. A server may interleave the pieces of several tool calls, send the id and the name
// late or repeatedly, whole calls at once, calls without an index or with another call's: calls
// describes how a piece finds its call. A call without an id gets one that is a function of the request,
// so that it differs between turns.
package openai
