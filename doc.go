// Package starling runs the untrusted tools of an LLM agent and can prove afterwards,
// byte for byte, what they did.
//
// A tool is a WebAssembly module. It can read a clock, draw random numbers and make HTTP
// requests, and nothing else. Every one of these calls is recorded in a hash-chained log. A
// run can be replayed from its log alone, without a network, and the replay compares every
// byte.
//
//	db, err := starling.Open(ctx, "starling.db", starling.Options{})
//	dice, err := db.Load(ctx, "tools-wasm/dice", starling.ToolOptions{})
//	run, err := dice.Call(ctx, `{"rolls":5}`)
//	verdict, err := db.Replay(ctx, run.ID)
//
// [Open] opens a database: a file, or a PostgreSQL server. [DB.Load] finds a tool, checks
// it and stores it, and [Tool.Call] makes a run of one call. [DB.OpenAgent] lets a model
// work with tools. [DB.Replay] and [DB.Validate] check recorded runs, and [DB.Runs] and
// [DB.Events] read them.
//
// # Where to go from here
//
// Package host/policy limits what tools may do. Package runtime/agent has agents that are
// Go values, runtime/tool has tools that are Go functions, and serve serves tenants. The
// packages of eventlog read and check logs without executing anything.
package starling
