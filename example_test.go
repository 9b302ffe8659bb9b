package starling_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/tool"
)

// folder holds the databases of the examples.
var folder string

func TestMain(m *testing.M) {
	starling.WorkerMain() // modules are compiled in processes of this program
	var err error
	if folder, err = os.MkdirTemp("", "starling-examples-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

// jq is a tool that runs a jq program over JSON. It is built from its folder.
const jq = "tools-wasm/json-transform"

// Open a database, load a tool, call it, print the result, and replay the run.
func Example() {
	path := filepath.Join(folder, "first.db")

	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, path, starling.Options{}))
	defer db.Close()
	jq := starling.Must(db.Load(ctx, "tools-wasm/json-transform", starling.ToolOptions{}))
	run := starling.Must(jq.Call(ctx, `{"query":".price * .amount","data":{"price":3,"amount":7}}`))
	fmt.Println(run.Output())
	fmt.Println(starling.Must(db.Replay(ctx, run.ID)))
	// Output:
	// {"results":[21]}
	// identical: 4 events
}

// A model, here played by a script, works with tools under a policy.
func Example_agentWithPolicy() {
	path := filepath.Join(folder, "agent.db")

	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, path, starling.Options{}))
	defer db.Close()
	rules := starling.Must(policy.Parse("policy.yaml", []byte(`
version: "1.0"
permissions:
  tools:
    dice:
      arguments: {type: object, properties: {rolls: {type: integer, maximum: 10}}}
    "*": {}
`)))
	gambler, err := db.OpenAgent(ctx, "examples/agent/agent.yaml", starling.AgentOptions{Policy: rules})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := gambler.Run(ctx, "Roll two dice.")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.ToolCallCount, "calls in", run.TurnCount, "turns")
	fmt.Println(starling.Must(db.Replay(ctx, run.RunID)).Identical())
	// Output:
	// 2 calls in 3 turns
	// true
}

// The database is created by the first run. To read one it must exist.
func ExampleOpen() {
	ctx := context.Background()
	_, err := starling.Open(ctx, filepath.Join(folder, "none.db"), starling.Options{ReadOnly: true})
	var missing *starling.NotFoundError
	fmt.Println(errors.As(err, &missing), missing.What)
	// Output: true database
}

// A tool is a file, a folder that is built, or the digest of a stored module.
func ExampleDB_Load() {
	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, filepath.Join(folder, "load.db"), starling.Options{}))
	defer db.Close()
	built := starling.Must(db.Load(ctx, jq, starling.ToolOptions{}))
	run := starling.Must(built.Call(ctx, `{"query":".","data":1}`))

	built.Close()

	stored := starling.Must(db.Load(ctx, run.Module, starling.ToolOptions{
		Limits: sandbox.Limits{Fuel: 500_000_000, TimeoutMs: 1000},
	}))
	fmt.Println(stored.Name(), starling.Must(stored.Call(ctx, `{"query":"length","data":[1,2]}`)).Output())
	// Output: json_transform {"results":[2]}
}

func ExampleDB_LoadBytes() {
	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, filepath.Join(folder, "bytes.db"), starling.Options{}))
	defer db.Close()
	_, err := db.LoadBytes(ctx, "broken", []byte("not WebAssembly"), starling.ToolOptions{})
	var refused *sandbox.Refusal
	fmt.Println(errors.As(err, &refused))
	// Output: true
}

// A call that ends by a limit is a run that was recorded, and an error.
func ExampleTool_Call() {
	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, filepath.Join(folder, "call.db"), starling.Options{}))
	defer db.Close()
	jq := starling.Must(db.Load(ctx, jq, starling.ToolOptions{Limits: sandbox.Limits{Fuel: 100_000_000}}))
	run, err := jq.Call(ctx, `{"query":"last(range(1e9))","data":null}`)
	fmt.Println(run.Status, run.Failure.Type, errors.Is(err, tool.ErrFuel))

	_, err = jq.Call(ctx, `{"query":""}`)
	var wrong *tool.SchemaError
	fmt.Println(errors.As(err, &wrong))
	// Output:
	// failed fuel true
	// true
}

// A program that a model wrote calls another tool three times, in one run.
func ExampleTool_Calling() {
	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, filepath.Join(folder, "calling.db"), starling.Options{}))
	defer db.Close()
	jq := starling.Must(db.Load(ctx, jq, starling.ToolOptions{}))
	code := starling.Must(db.Load(ctx, starling.RunJS, starling.ToolOptions{})).Calling(jq)
	run := starling.Must(code.Call(ctx, `{"code":"let sum = 0; for (const n of [1, 2, 3]) sum += (await tools.json_transform({query: '. * .', data: n})).results[0]; return sum;"}`))
	fmt.Println(run.Output())
	fmt.Println(starling.Must(db.Replay(ctx, run.ID)))
	// Output:
	// 14
	// identical: 13 events
}

func ExampleDB_Events() {
	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, filepath.Join(folder, "events.db"), starling.Options{}))
	defer db.Close()
	jq := starling.Must(db.Load(ctx, jq, starling.ToolOptions{}))
	starling.Must(jq.Call(ctx, `{"query":".+1","data":1}`))
	for ev, err := range db.Events(ctx, starling.LastRun) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(ev.Seq, ev.Kind)
	}
	// Output:
	// 1 RunStarted
	// 2 ToolCallScheduled
	// 3 ToolCallCompleted
	// 4 RunCompleted
}

// A stream has the events to come as well, until the run ends.
func ExampleDB_Stream() {
	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, filepath.Join(folder, "stream.db"), starling.Options{}))
	defer db.Close()
	jq := starling.Must(db.Load(ctx, jq, starling.ToolOptions{}))
	run := starling.Must(jq.Call(ctx, `{"query":".+1","data":1}`))
	n := 0
	for range starling.Must(db.Stream(ctx, run.ID)) {
		n++
	}
	fmt.Println(n, "events")
	// Output: 4 events
}

func ExampleDB_Replay() {
	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, filepath.Join(folder, "replay.db"), starling.Options{}))
	defer db.Close()
	jq := starling.Must(db.Load(ctx, jq, starling.ToolOptions{}))
	starling.Must(jq.Call(ctx, `{"query":".+1","data":1}`))
	verdict := starling.Must(db.Replay(ctx, starling.LastRun))
	fmt.Println(verdict.Identical(), verdict)
	// Output: true identical: 4 events
}

// The machine shares no code with the compiler, and gives the same bytes.
func ExampleDB_Replayer() {
	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, filepath.Join(folder, "replayer.db"), starling.Options{}))
	defer db.Close()
	jq := starling.Must(db.Load(ctx, jq, starling.ToolOptions{}))
	starling.Must(jq.Call(ctx, `{"query":".+1","data":1}`))
	r := starling.Must(db.Replayer(ctx, starling.ReplayOptions{
		Engine:  starling.EngineOptions{Kind: starling.Machine},
		Timeout: time.Minute,
	}))
	defer r.Close()
	err := r.ReplayAll(ctx, starling.Must(db.RunIDs(ctx)), func(v starling.Verdict) error {
		fmt.Println(v)
		return nil
	})
	fmt.Println(err)
	// Output:
	// identical: 4 events
	// <nil>
}

// Validate checks hashes and invariants, and executes nothing.
func ExampleDB_Validate() {
	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, filepath.Join(folder, "validate.db"), starling.Options{}))
	defer db.Close()
	jq := starling.Must(db.Load(ctx, jq, starling.ToolOptions{}))
	run := starling.Must(jq.Call(ctx, `{"query":".+1","data":1}`))
	v := starling.Must(db.Validate(ctx, run.ID))
	fmt.Println(v.Err, v.Report.Events, v.Report.Root.String() == run.MerkleRoot)
	// Output: <nil> 4 true
}

func ExampleDB_Runs() {
	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, filepath.Join(folder, "runs.db"), starling.Options{}))
	defer db.Close()
	jq := starling.Must(db.Load(ctx, jq, starling.ToolOptions{}))
	starling.Must(jq.Call(ctx, `{"query":".+1","data":1}`))
	jq.Call(ctx, `{"query":"error(\"no\")","data":1}`)
	page := starling.Must(db.Runs(ctx, eventlog.RunPageOptions{Limit: 10}))
	for _, run := range page.Runs {
		fmt.Println(run.Status())
	}
	// Output:
	// failed
	// completed
}

func ExampleDB_OpenAgent() {
	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, filepath.Join(folder, "openagent.db"), starling.Options{}))
	defer db.Close()
	gambler := starling.Must(db.OpenAgent(ctx, "examples/agent/agent.yaml", starling.AgentOptions{}))
	_, events, err := gambler.Stream(ctx, "Roll two dice.")
	if err != nil {
		fmt.Println(err)
		return
	}
	n := 0
	for range events {
		n++
	}
	fmt.Println(n > 0, starling.Must(db.Replay(ctx, starling.LastRun)).Identical())
	// Output: true true
}

// Seal signs all runs that have ended, and Verify compares them with what was signed.
func ExampleDB_Seal() {
	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, filepath.Join(folder, "seal.db"), starling.Options{}))
	defer db.Close()
	jq := starling.Must(db.Load(ctx, jq, starling.ToolOptions{}))
	starling.Must(jq.Call(ctx, `{"query":".+1","data":1}`))
	key := starling.Must(seal.NewKey("example.com/runs"))
	sealed := starling.Must(db.Seal(ctx, key))
	report := starling.Must(db.Verify(ctx, starling.Must(seal.Trust(key.VKey())), seal.Evidence{Checkpoints: [][]byte{sealed.Signed}}))
	fmt.Println(report.Present, "run as sealed,", len(report.Problems), "problems")
	// Output: 1 run as sealed, 0 problems
}

// One event is proven to be in the log, without showing the others.
func ExampleDB_Prove() {
	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, filepath.Join(folder, "prove.db"), starling.Options{}))
	defer db.Close()
	jq := starling.Must(db.Load(ctx, jq, starling.ToolOptions{}))
	run := starling.Must(jq.Call(ctx, `{"query":".+1","data":1}`))
	key := starling.Must(seal.NewKey("example.com/runs"))
	starling.Must(db.Seal(ctx, key))
	statement := starling.Must(db.Prove(ctx, run.ID, 2))
	_, signatures, err := statement.Check(starling.Must(seal.Trust(key.VKey())))
	fmt.Println(statement.Event.Kind, len(signatures), err)
	// Output: ToolCallScheduled 1 <nil>
}

// A bundle is one file that others verify offline: its hashes and proofs, and what the tools
// do.
func ExampleVerifyBundle() {
	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, filepath.Join(folder, "bundle.db"), starling.Options{}))
	defer db.Close()
	jq := starling.Must(db.Load(ctx, jq, starling.ToolOptions{}))
	run := starling.Must(jq.Call(ctx, `{"query":".+1","data":1}`))
	file := starling.Must(starling.Must(db.Bundle(ctx, run.ID)).Bytes())
	verdict := starling.Must(starling.VerifyBundle(ctx, file, starling.BundleOptions{}))
	fmt.Println(verdict.Identical(), verdict.Sealed, verdict.Runs[0])
	// Output: true false identical: 4 events
}

// A server of the Model Context Protocol has tools that are called as those of modules are.
// Each call is a recorded run, which replays without the server.
func ExampleDB_Connect() {
	type place struct {
		City string `json:"city"`
	}
	weather := mcp.NewServer(&mcp.Implementation{Name: "weather"}, nil)
	mcp.AddTool(weather, &mcp.Tool{Name: "weather", Description: "Tells the weather."},
		func(_ context.Context, _ *mcp.CallToolRequest, in place) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Rain in " + in.City}}}, nil, nil
		})
	address := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return weather }, nil))
	defer address.Close()

	ctx := context.Background()
	db := starling.Must(starling.Open(ctx, filepath.Join(folder, "connect.db"), starling.Options{}))
	defer db.Close()
	server := starling.Must(db.Connect(ctx, starling.ServerOptions{MCP: agentfile.MCP{URL: address.URL}}))
	run := starling.Must(server.Tools()[0].Call(ctx, `{"city":"Ulm"}`))
	fmt.Println(run.Output())
	fmt.Println(starling.Must(db.Replay(ctx, run.ID)))
	// Output:
	// {"content":[{"text":"Rain in Ulm","type":"text"}]}
	// identical: 5 events
}
