package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/bench/internal/figures"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agent"
)

const (
	input    = `{"code":"return input.a + input.b","input":{"a":1,"b":2}}`
	envelope = `{"tool":"run_js","input":` + input + `,"context":{"run_id":"r","call_id":"c","attempt":1,"variables":{}}}`
	wanted   = `{"output":3}`
	inPython = `{"code":"input['a'] + input['b']","input":{"a":1,"b":2}}`
	inNode   = `const {code, input} = JSON.parse(process.argv[1]);
process.stdout.write(JSON.stringify({output: require("vm").runInNewContext("(function () {" + code + "})()", {input})}));`
)

// Goals of a call.
const (
	mostWarm  = 500 * time.Microsecond
	mostFirst = 20 * time.Millisecond
)

// Where the time goes, from profiles on two busy processors.
const (
	whereWarm = `
Recorded in memory, a call is within the goal. SQLite's commit takes about half of the processor time of a recorded call, and the
sync comes on top: a run without effects waits for it once, at its end. The program itself costs 262,000 units of fuel, spread over all of
QuickJS: 146,000 of them are the envelope and the promise around any tool, 96,000 compile and call the program.
`
	whereFirst = `
About two fifths are the start of the process, which "version" shows, a third of it the schemas that
santhosh-tekuri/jsonschema compiles in its init. About two fifths load the module: of these the engine reads its 3.2 MB of
machine code in 45 of 100, the copy of the memory that calls begin with takes 18, the start-up code of QuickJS 10, and the trial
of ways to put a memory back 9. The rest opens, writes and closes the database. A module whose memory is initialized when it is built
would save no more than those 10 of 100, so it is not.
`
)

// contender is a way to run the program.
type contender struct {
	name  string
	call  func() error
	nanos []float64 // of a call, one for each round
}

// right returns an error unless the output is that of the program.
func right(output, want string, err error) error {
	if err == nil && strings.TrimSpace(output) != want {
		err = fmt.Errorf("the output is %q", output)
	}
	return err
}

// inRounds measures all contenders in each round, after each has given the right answer.
func inRounds(all []*contender, rounds int, slice time.Duration) error {
	for round := range rounds + 1 {
		for _, c := range all {
			n, began := 0, time.Now()
			for n == 0 || time.Since(began) < slice {
				if err := c.call(); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				n++
			}
			if round > 0 { // the first warms up
				c.nanos = append(c.nanos, float64(time.Since(began).Nanoseconds())/float64(n))
			}
		}
	}
	return nil
}

// table writes the medians, and each as a multiple of the first.
func table(head string, all []*contender) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | milliseconds | / the first |\n|---|--:|--:|\n", head)
	for _, c := range all {
		fmt.Fprintf(&b, "| %s | %.3g | %.3g |\n", c.name, figures.Median(c.nanos)/1e6, figures.Ratio(c.nanos, all[0].nanos))
	}
	return b.String()
}

func verdict(what string, nanos float64, most time.Duration) string {
	return fmt.Sprintf("\nGoal: %s in %v at most: %s.\n", what, most, figures.Verdict(nanos <= float64(most)))
}

// measureCalls compares calls of a process that has made some.
func measureCalls(ctx context.Context, s settings, _, dir string) (string, error) {
	source, err := guest.Find(ctx, starling.RunJS)
	if err != nil {
		return "", err
	}
	wasm := source.Wasm
	db, err := starling.Open(ctx, filepath.Join(dir, "calls.db"), starling.Options{})
	if err != nil {
		return "", err
	}
	defer db.Close()
	tool, err := db.Load(ctx, starling.RunJS, starling.ToolOptions{})
	if err != nil {
		return "", err
	}
	python, err := db.Load(ctx, starling.RunPy, starling.ToolOptions{})
	if err != nil {
		return "", err
	}
	recorded := func(tool *starling.Tool, input, want string) func() error {
		return func() error {
			run, err := tool.Call(ctx, input)
			if err != nil {
				return err
			}
			return right(run.Output(), want, nil)
		}
	}
	rows := largeDocument()
	memory := store.Memory()
	if _, err := memory.PutModule(ctx, wasm); err != nil {
		return "", err
	}
	inMemory := func() error {
		done, err := agent.Direct{Log: memory, Tool: tool.Tool}.Run(ctx, json.RawMessage(input))
		if err != nil {
			return err
		}
		return right(string(done.Output), "3", nil)
	}
	engine, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		return "", err
	}
	defer engine.Close(ctx)
	module, err := engine.Load(ctx, wasm, sandbox.Limits{})
	if err != nil {
		return "", err
	}
	alone := func() error {
		done, err := module.Call(ctx, sandbox.Call{Tool: "run_js", Input: []byte(envelope)}, figures.NoWorld{})
		return right(string(done.Output), wanted, err)
	}
	raw, closeRaw, err := rawWazero(ctx, wasm)
	if err != nil {
		return "", err
	}
	defer closeRaw()
	file, err := os.Create(filepath.Join(dir, "synced"))
	if err != nil {
		return "", err
	}
	defer file.Close()
	sync := func() error {
		_, err := file.Write(make([]byte, 16<<10))
		return errors.Join(err, file.Sync())
	}
	node := func() error {
		out, err := command(ctx, dir, nil, "node", "-e", inNode, input)
		return right(string(out), wanted, err)
	}
	all := []*contender{
		{name: "run_js: sandbox, fuel, recorded in SQLite", call: recorded(tool, input, "3")},
		{name: "run_py, recorded in SQLite", call: recorded(python, inPython, "3")},
		{name: "run_js, JSON of 10 KB in and out, recorded in SQLite", call: recorded(tool, `{"code":"return input","input":`+rows+`}`, rows)},
		{name: "run_py, JSON of 10 KB in and out, recorded in SQLite", call: recorded(python, `{"code":"input","input":`+rows+`}`, rows)},
		{name: "a write of 16 KB to a file, with a sync", call: sync},
		{name: "run_js, recorded in memory", call: inMemory},
		{name: "run_js, not recorded", call: alone},
		{name: "the same QuickJS in plain wazero, a fresh instance each", call: raw},
		{name: "Node's `vm`, a fresh process each", call: node},
	}
	if err := inRounds(all, s.rounds, s.slice); err != nil {
		return "", err
	}
	return table("a program that adds two numbers, warm", all) + verdict("the first row", figures.Median(all[0].nanos), mostWarm) + whereWarm, nil
}

// largeDocument is a document of 10 KB in canonical form.
func largeDocument() string {
	rows := make([]string, 100)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"id":%d,"name":"row %d","price":%d.5,"tags":["a","b","c","d"],"text":"some words to fill it"}`, i, i, i)
	}
	return "[" + strings.Join(rows, ",") + "]"
}

// rawWazero runs the module as it is, without a meter: each call has an instance of its
// own, whose JavaScript starts from nothing.
func rawWazero(ctx context.Context, wasm []byte) (call func() error, done func(), err error) {
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())
	done = func() { r.Close(ctx) }
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, r); err != nil {
		return nil, done, err
	}
	denied := func(uint32, uint32, uint32, uint32) int64 { return int64(abi.StatusDenied) }
	_, err = r.NewHostModuleBuilder(abi.Version).
		NewFunctionBuilder().WithFunc(func() int64 { return 0 }).Export("now").
		NewFunctionBuilder().WithFunc(func() int64 { return 0 }).Export("random").
		NewFunctionBuilder().WithFunc(denied).Export("http").
		Instantiate(ctx)
	if err != nil {
		return nil, done, err
	}
	compiled, err := r.CompileModule(ctx, wasm)
	if err != nil {
		return nil, done, err
	}
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions(abi.ExportInitialize, abi.ExportWarmup)
	return func() error {
		m, err := r.InstantiateModule(ctx, compiled, config)
		if err != nil {
			return err
		}
		output, err := rawCall(ctx, m)
		return errors.Join(right(output, wanted, err), m.Close(ctx))
	}, done, nil
}

func rawCall(ctx context.Context, m api.Module) (string, error) {
	at, err := m.ExportedFunction(abi.ExportAlloc).Call(ctx, uint64(len(envelope)))
	if err != nil {
		return "", err
	}
	m.Memory().Write(uint32(at[0]), []byte(envelope))
	packed, err := m.ExportedFunction(abi.ExportExecute).Call(ctx, at[0], uint64(len(envelope)))
	if err != nil {
		return "", err
	}
	out, _ := m.Memory().Read(abi.Unpack(packed[0]))
	return string(out), nil
}

// measureStarts compares processes that make one call and end.
func measureStarts(ctx context.Context, s settings, host, dir string) (string, error) {
	db := filepath.Join(dir, "starts.db")
	process := func(cache string, want, name string, args ...string) func() error {
		return func() error {
			out, err := command(ctx, dir, []string{"XDG_CACHE_HOME=" + cache}, name, args...)
			if want != "" {
				err = right(string(out), want, err)
			}
			return err
		}
	}
	kept, none := filepath.Join(dir, "cache"), filepath.Join(dir, "no-cache")
	run, python := []string{"run", "run_js", input, "--db", db}, []string{"run", "run_py", inPython, "--db", db}
	first := func(run []string) func() error {
		call := process(none, "3", host, run...)
		return func() error {
			if err := os.RemoveAll(none); err != nil {
				return err
			}
			return call()
		}
	}
	all := []*contender{
		{name: "`starling-host run run_js`, code in the cache", call: process(kept, "3", host, run...)},
		{name: "`starling-host run run_py`, code in the cache", call: process(kept, "3", host, python...)},
		{name: "`starling-host version`, which does nothing", call: process(kept, "", host, "version")},
		{name: "Node's `vm`", call: process(kept, wanted, "node", "-e", inNode, input)},
		{name: "`true`", call: process(kept, "", "true")},
		{name: "`starling-host run run_js`, the cache empty", call: first(run)},
		{name: "`starling-host run run_py`, the cache empty", call: first(python)},
	}
	if err := inRounds(all, s.starts, 0); err != nil {
		return "", err
	}
	return table("a process that makes one call and ends", all) + verdict("the first row", figures.Median(all[0].nanos), mostFirst) + whereFirst, nil
}
