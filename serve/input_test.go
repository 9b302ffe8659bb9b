package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/gateway"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// badInputs are inputs that a tool does not take, and the only text that says so.
var badInputs = map[string]struct{ input, want string }{
	"a member twice": {`{"text":"a","text":"b"}`, `input is not JSON: line 1, column 13 at "/text": key "text" appears twice in one object`},
	"half a pair":    {`{"text":"\ud800"}`, `input is not JSON: line 1, column 10 at "/text": half of a surrogate pair: \ud800`},
	"an array":       {`[1]`, `input does not match the schema: (document): got array, want object`},
	"text":           {`"a"`, `input does not match the schema: (document): got string, want object`},
	"a member less":  {`{}`, `input does not match the schema: (document): missing property 'text'`},
	"another type":   {`{"more":1,"text":7}`, `input does not match the schema: (document): additional properties 'more' not allowed; /text: got number, want string`},
	"many members":   {`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1}`, `input does not match the schema: (document): additional properties 'a', 'b', 'c', 'd', 'e' not allowed, and 2 more; (document): missing property 'text'`},
	"too much":       {`{"text":"` + strings.Repeat("a", 50) + `"}`, `input of 61 bytes, more than 40`},
}

// TestEverySurfaceSaysTheSameOfAnInput walks the ways to call a tool. In a recorded call, the class of the
// failure may come before the text.
func TestEverySurfaceSaysTheSameOfAnInput(t *testing.T) {
	const schema = `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}`
	wasm := wasmtest.Taking("takes", "taken", schema)
	w := newWorld(t)
	w.load("alice", "takes", wasm)
	if _, err := w.config.Tenants.SetPolicy(t.Context(), "alice", "version: \"1.0\"\npermissions: {tools: {takes: {}}}\nresources: {limits: {input: 40}}\n", true); err != nil {
		t.Fatal(err)
	}
	assistant := w.assistant("alice")

	dir := t.TempDir()
	file := filepath.Join(dir, "takes.wasm")
	if err := os.WriteFile(file, wasm, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := starling.Open(t.Context(), filepath.Join(dir, "starling.db"), starling.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	o := starling.ToolOptions{Limits: sandbox.Limits{InputBytes: 40}}
	takes, err := db.Load(t.Context(), file, o)
	if err != nil {
		t.Fatal(err)
	}
	js, err := db.Load(t.Context(), starling.RunJS, starling.ToolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tools := gateway.NewTools(db, o, func(text string) { t.Error(text) })
	defer tools.Close()
	if err := tools.Add(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	log := starling.Must(db.Log(t.Context()))

	// recorded returns the failure of the last call of the tool in a run, which must replay.
	recorded := func(id string) string {
		verdict, err := db.Replay(t.Context(), id)
		if err != nil || !verdict.Identical() {
			t.Errorf("the replay of %s: %+v, %v", id, verdict, err)
		}
		events, err := log.Read(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events { // of the nested call before the outer one
			if failed, err := ev.AsToolCallFailed(); err == nil {
				return failed.Error
			}
		}
		return ""
	}
	text := func(err error) string { return fmt.Sprint(err) }
	surfaces := map[string]func(input string) string{
		"Go": func(input string) string {
			_, err := takes.Input([]byte(input))
			return text(err)
		},
		"the MCP server of a user": func(input string) string {
			_, err := tools.Open().Call(t.Context(), mcpsrv.Call{Name: "takes", Arguments: json.RawMessage(input)})
			return text(err)
		},
		"the MCP server of a host": func(input string) string {
			_, said := asks(t, assistant, "takes", input)
			return said
		},
		"the HTTP API": func(input string) string {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/api/v1/tools/takes/call", bytes.NewReader([]byte(`{"input":`+input+`}`)))
			req.Header.Set("Content-Type", "application/json")
			resp, err := (&http.Client{Transport: withKey(w.keys["alice"])}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var problem struct{ Detail string }
			if err := json.NewDecoder(resp.Body).Decode(&problem); err != nil {
				t.Fatal(err)
			}
			return problem.Detail
		},
		"an agent": func(input string) string {
			model := agenttest.ScriptedProvider{Turns: []agenttest.Turn{agenttest.Call("1", "takes", input), agenttest.Say("done")}}
			id := starling.NewRunID()
			if _, err := (&agent.Agent{Provider: model, Log: log, Tools: []tool.Tool{takes}, Config: agent.Config{Model: "m"}}).RunWithID(t.Context(), id, "Take."); err != nil {
				t.Fatal(err)
			}
			return recorded(id)
		},
		"a run that was accepted elsewhere": func(input string) string { // a worker begins with this call
			id := starling.NewRunID()
			if _, err := (agent.Direct{Log: log, Tool: takes}).RunWithID(t.Context(), id, json.RawMessage(input)); err != nil {
				return text(err)
			}
			return recorded(id)
		},
		"a program": func(input string) string {
			doc, err := json.Marshal(map[string]any{"code": "return await tools.takes(input)", "input": json.RawMessage(input)})
			if err != nil {
				t.Fatal(err)
			}
			program := js.Calling(takes)
			in, err := program.Input(doc)
			if err != nil {
				return text(err)
			}
			id := starling.NewRunID()
			_, _ = program.CallAs(context.WithoutCancel(t.Context()), id, in)
			return recorded(id)
		},
	}
	// The document around an input is not JSON, either, and has lines and columns of its own.
	whole := map[string]bool{"the HTTP API": true, "a program": true}
	for name, c := range badInputs {
		for surface, call := range surfaces {
			if whole[surface] && strings.Contains(c.want, "not JSON") {
				continue
			}
			if said := call(c.input); !strings.HasSuffix(strings.TrimSpace(said), c.want) {
				t.Errorf("%s, %s: %q, want %q", name, surface, said, c.want)
			}
		}
	}
}
