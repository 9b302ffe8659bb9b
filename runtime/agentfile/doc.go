// Package agentfile reads agent.yaml, the file that defines an agent: its model, its
// prompt, its tools, and its budget.
//
//	# yaml-language-server: $schema=https://raw.githubusercontent.com/starling-host/starling/main/spec/agent.schema.json
//	name: gambler
//	provider: anthropic
//	model: claude-sonnet-4-5
//	system: You roll dice, and you never guess.
//	tools:
//	  - ./tools/dice
//	  - wasm: lookup.wasm
//	    allow_hosts: [api.example.com]
//	    timeout: 10s
//	  - builtin: read_file
//	    dir: notes
//	  - mcp: {command: [mcp-server-time], prefix: time_}
//	budget: {usd: 0.50, wall_clock: 2m}
//
// spec/agent.schema.json describes all keys, for this package and for editors. An error in
// a file is a [*config.Error] with the line, a caret and a hint. Relative paths start at
// the file's folder.
//
// A file holds no secrets. It names the environment variable that has the key. Text that
// looks like a key is refused, with a message that does not repeat it.
//
// # Using a file
//
// [Load] reads and checks the file, and opens only the file of its system prompt. The rest
// is made on demand:
//
//	f, err := agentfile.Load("agent.yaml")
//	model, err := f.Provider(ctx, os.Getenv)
//	box, err := f.OpenTools(ctx, loader, os.Getenv)
//	defer box.Close()
//	a := f.Agent(model, box)
//	a.Log = log
//
// The caller loads the modules, with a [Loader]: how they run and are cached is not part of
// the agent.
//
// # Providers
//
// A Go program gets the same providers by name, without a file:
//
//	model, err := agentfile.NewProvider("anthropic", agentfile.VendorConfig{APIKey: key})
package agentfile
