// Package runtime is the map of everything between the event log and the host:
// what runs, under which rules, and how it is run again. It exports nothing
// itself.
//
//	pattern    how large a regular expression becomes
//	yaml       strict YAML, with the place of every mistake
//	tool       what a tool is: a function from JSON to JSON, and its classes of failure;
//	           below it the check of documents against schemas, two native tools, and
//	           the tools of MCP servers
//	provider   what a model is: a request, and a stream of chunks; below it an adapter
//	           for each vendor, a model that follows a script, and the suite for all
//	budget     what a run may spend, what models cost, and when a cap is passed
//	step       the determinism boundary: clock, randomness, effects, tool calls and
//	           models, recorded live and answered from the record in a replay
//	observe    metrics, spans and log records of runs, and all their names
//	egress     the HTTP client for destinations that untrusted code chose
//	agent      what a run does, from its first event to its last
//	replay     makes a recorded run again and says whether it is the same
//	agenttest  for the tests of programs that use agents
//
// Read step first. A package imports those above it in this list, never those
// below: egress knows nothing of step, because the tools that use it record its
// exchanges as their effects. A folder below one of them may import more: a native
// tool needs the network, and a model that follows a script reads it as YAML.
//
// Nothing here knows WebAssembly. A sandboxed tool is a tool.Tool like any
// other; the packages under host make them.
package runtime
