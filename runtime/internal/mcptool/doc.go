// Package mcptool makes the tools of a server that speaks the Model Context
// Protocol into tools of an agent.
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
// # What is recorded
//
// One execution of a tool is one side effect, named "mcp/" and the server's own
// name of the tool, through package step. Like every such tool it can only be
// executed within a run. What the effect records is the result as the agent
// gets it, or the text of the failure. A replay takes that from the log and
// never contacts the server.
//
// A replay needs the tools all the same, because their names, descriptions and
// schemas are part of the run, which records them. [Offline] makes the same tools of these
// where there is no server.
//
// # Results
//
// The result of a call is the server's structured content if there is any.
// Otherwise it is an object that holds the blocks as the protocol writes them:
//
//	{"content":[{"type":"text","text":"21 degrees"}]}
//
// So the shape does not depend on what a text looks like. With Options.TextOnly the
// result is one JSON string, the texts joined by newlines.
//
// The SDK reads the numbers of structured content as 64-bit floats. If one of
// the texts is the same document, which the protocol asks servers for, it is
// taken in its place, so that large integers keep all their digits.
//
// # Failures
//
// The protocol knows two. If the tool ran and says that it failed, the error is a
// [*ToolError] with what the server said; a replay gets the same one. If
// the call could not be made or the server answered with a protocol error, it is
// a [*step.EffectError] whose text names the tool.
//
// The server is not trusted to behave. One that lists a name twice, a schema that
// is none or tools without end is refused with an error that says so. A message
// of more than 16 MiB ends the connection, a result beyond Options.MaxOutputBytes
// fails its call with [tool.ErrLimit], and a call that is never answered ends
// with its context or with Options.Timeout, even if the server does not read
// what it is sent. The client offers the server nothing: no roots, no sampling,
// no elicitation. Resources and prompts are not adapted.
package mcptool
