// Package mcptool turns the tools of Model Context Protocol servers into tools of an agent.
//
// A [Client] is one connection to one server: to a program over its standard
// input and output ([NewCommand]), to an address over streamable HTTP
// ([NewHTTP]), or over any transport of the official Go SDK ([New]).
//
//	client, err := mcptool.NewCommand(ctx, exec.Command("mcp-server-files", "/srv"),
//		mcptool.Options{Prefix: "fs_", Timeout: 10 * time.Second})
//	defer client.Close()
//	tools := client.Tools()
//
// # Records
//
// Each execution of a tool is one side effect of package step, named "mcp/" and the server's
// own name of the tool. So it can only be executed within a run. The effect records the
// result, or the protocol's error, as the server wrote it: every byte of its JSON. (Bytes
// that are not UTF-8 are not JSON, and become U+FFFD.) Without an answer, it records the
// text of the failure. A replay takes the record from the log and never contacts the server.
// Runs that recorded the output alone replay, too.
//
// If the server asks its client something during the call, the effect records the question instead, the
// client's answer is another effect, named "mcp/" and the method, and the call goes on with a third one.
// So a replay asks nobody.
//
// A replay still needs the tools, because their names, descriptions and schemas are part of
// the run. [Offline] makes the same tools from the record, without a server.
//
// # Results
//
// The output of a call is the result in canonical JSON, without _meta and resultType, which
// are for the client and not for a model, and without a text that repeats the structured
// content:
//
//	{"content":[{"type":"text","text":"21 degrees"}],"structuredContent":{"degrees":21}}
//
// If canonical JSON cannot express a result, for instance the number 1e400, its JSON becomes a
// single text. With Options.TextOnly the output is one JSON string, the texts joined by
// newlines. An [Assistant] in the context gets the original answer, and the server's messages:
// progress, log messages, and questions to the user.
//
// # Failures
//
// If the server answered with an error, in a result or of the protocol, the failure is a
// [*ToolError] with its content. Without an answer it is a [*step.EffectError].
//
// The server is not trusted to behave. Only the tools that cannot be presented are left out.
// Invalid lines on its standard output are skipped. A message of more than 16 MiB, or that is
// not JSON, fails its call. A result beyond Options.MaxOutputBytes fails with [tool.ErrLimit],
// and an unanswered call ends with its context or with Options.Timeout, even if the server
// stops reading. Redirects are not followed.
//
// # Resources and prompts
//
// They are not for a model, and not among Tools. [Client.List] lists them, and a tool of
// [Client.Method] reads one; its calls are recorded and replayed like those of any other
// tool.
package mcptool
