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
// executed within a run. The effect records the result, or the error of the protocol, as the
// server wrote it: every byte of its JSON. (Bytes that are not UTF-8 are no JSON, and become
// U+FFFD.) If there is none, it records the text of the failure. A replay takes that from
// the log and never contacts the server. Runs that recorded the output alone replay, too.
//
// A replay needs the tools all the same, because their names, descriptions and
// schemas are part of the run, which records them. [Offline] makes the same tools of these
// where there is no server.
//
// # Results
//
// The output of a call is the result in canonical JSON, without _meta and resultType, which
// are for the client and not for a model, and without a text that is the structured content
// once more:
//
//	{"content":[{"type":"text","text":"21 degrees"}],"structuredContent":{"degrees":21}}
//
// Of a result that canonical JSON cannot have, such as one with the number 1e400, the JSON
// itself is the one text. With Options.TextOnly the output is one JSON string, the texts joined
// by newlines. An [Assistant] in the context gets the answer as it was, and what the server
// says meanwhile: progress, log messages, and questions to the user.
//
// # Failures
//
// If the server answered, with a result that says it is an error or with an error of the
// protocol, the failure is a [*ToolError] with what it said. If there is no answer, it is
// a [*step.EffectError].
//
// The server is not trusted to behave. A tool that cannot be presented is left out alone. Lines
// on its standard output that are no messages are skipped. A message of more than 16 MiB, or
// that is not JSON, fails its call. A result beyond Options.MaxOutputBytes fails with
// [tool.ErrLimit], and a call that is never answered ends with its context or with
// Options.Timeout, even if the server does not read what it is sent. Redirections are not
// followed. The client offers no roots and no sampling.
//
// # Resources and prompts
//
// They are not for a model, and so none of Tools. [Client.List] lists them, and a tool of
// [Client.Method] reads one: a call is recorded and replayed as that of any other tool.
package mcptool
