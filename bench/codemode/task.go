package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

//go:embed task.js
var program string

const goal = "In the newest file of orders, find the customer with the largest total. Add the shipping of the region of the customer's " +
	"group, write what is due into reports/REGION/CUSTOMER.md, and remember the customer with it."

// answer is what the model says in the end, either way.
const answer = "The report is written, and the customer is remembered."

// calls is how many calls of tools the task takes.
const calls = 10

// use is a call that the model asks for.
type use struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"input"`
}

// way is what came of the task on one way to do it.
type way struct {
	name                  string
	definitions           int      // bytes of the system prompt and of tools, in one request
	turns, sent, received int      // requests, and bytes of their bodies and of the responses
	tools                 []string // of the MCP servers, that the agent has
	made                  []use    // the calls of their tools
	results               []string
	found                 string // what search_tools has returned
}

// measureTask has the task done in a program, and then by the calls that the program has
// made, one a turn.
func measureTask(ctx context.Context, _ settings, host, dir string) (string, error) {
	if _, err := os.Stat("node_modules"); err != nil {
		if _, err := command(ctx, ".", nil, "npm", "ci", "--silent"); err != nil {
			return "", err
		}
	}
	args := func(v any) json.RawMessage { return starling.Must(json.Marshal(v)) }
	inCode := [][]use{
		{{"search_tools", args(map[string]string{"query": "list directory, read, create and write files"})},
			{"search_tools", args(map[string]string{"query": "sum of numbers, create entities"})}},
		{{"run_js", args(map[string]string{"code": program})}},
	}
	code, err := doTask(ctx, host, filepath.Join(dir, "code"), "code mode", inCode)
	if err != nil {
		return "", err
	}
	var oneByOne [][]use
	for _, u := range code.made {
		if !strings.Contains(code.found, u.Name) {
			return "", fmt.Errorf("the model calls %s, which it has not found", u.Name)
		}
		oneByOne = append(oneByOne, []use{u})
	}
	direct, err := doTask(ctx, host, filepath.Join(dir, "direct"), "one call a turn", oneByOne)
	if err != nil {
		return "", err
	}
	if len(code.made) != calls || !slices.Equal(code.results, direct.results) {
		return "", fmt.Errorf("the ways differ, or do not make %d calls:\n%v\n%v", calls, code.results, direct.results)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "A task of %d dependent calls, with %d tools of three MCP servers:\n\n", calls, len(direct.tools))
	b.WriteString("| | one call a turn | code mode | |\n|---|--:|--:|--:|\n")
	row := func(what string, direct, code int) {
		fmt.Fprintf(&b, "| %s | %d | %d | %.2g |\n", what, direct, code, float64(code)/float64(direct))
	}
	row("bytes of tool definitions in each request", direct.definitions, code.definitions)
	row("turns of the model", direct.turns, code.turns)
	row("bytes sent to the model", direct.sent, code.sent)
	row("bytes received from it", direct.received, code.received)
	row("bytes through the model", direct.sent+direct.received, code.sent+code.received)
	b.WriteString("\nBoth runs replayed identical with the servers, their files and the model gone.\n")
	return b.String(), nil
}

// doTask makes one run of an agent, whose model takes these turns and then gives its
// answer, and replays it.
func doTask(ctx context.Context, host, dir, name string, turns [][]use) (way, error) {
	w := way{name: name}
	world := filepath.Join(dir, "world") // all that is gone when the run is replayed
	if err := writeShop(filepath.Join(world, "shop")); err != nil {
		return w, err
	}
	modules, err := filepath.Abs("node_modules")
	if err != nil {
		return w, err
	}
	if err := os.Symlink(modules, filepath.Join(world, "node_modules")); err != nil {
		return w, err
	}
	model := &endpoint{turns: turns}
	server := httptest.NewServer(model)
	defer server.Close()
	file := fmt.Sprintf("provider: anthropic\nbase_url: %s\nmodel: claude-sonnet-4-5\nmax_turns: 20\ntools:\n", server.URL)
	for _, s := range []string{
		"command: [node, node_modules/@modelcontextprotocol/server-filesystem/dist/index.js, shop], prefix: fs_",
		"command: [node, node_modules/@modelcontextprotocol/server-memory/dist/index.js], prefix: mem_, env: {MEMORY_FILE_PATH: " + filepath.Join(world, "memory.jsonl") + "}",
		"command: [node, node_modules/@modelcontextprotocol/server-everything/dist/index.js], prefix: ev_",
	} {
		file += "  - {mcp: {" + s + "}}\n"
	}
	if name == "code mode" {
		file += "code: {language: javascript}\n"
	}
	agent, db := filepath.Join(world, "agent.yaml"), filepath.Join(dir, "task.db")
	if err := os.WriteFile(agent, []byte(file), 0o644); err != nil {
		return w, err
	}
	printed, err := command(ctx, dir, []string{"ANTHROPIC_API_KEY=none"}, host, "agent", "run", agent, goal, "--db", db, "-o", "json")
	if err != nil {
		return w, err
	}
	var done struct {
		Final string `json:"final_text"`
		Meter struct {
			Turns int `json:"turns"`
		} `json:"meter"`
	}
	if err := json.Unmarshal(printed, &done); err != nil || done.Final != answer {
		return w, fmt.Errorf("%s: the run ended with %s (%v)", name, printed, err)
	}
	w.turns = done.Meter.Turns
	w.definitions, w.sent, w.received = model.definitions, model.sent, model.received
	server.Close()
	if err := os.RemoveAll(world); err != nil {
		return w, err
	}
	if _, err := command(ctx, dir, nil, host, "replay", db, "@last"); err != nil {
		return w, err
	}
	return w, w.read(ctx, db)
}

// read takes from the log which tools of the servers the agent had, and what came of their
// calls.
func (w *way) read(ctx context.Context, path string) error {
	db, err := starling.Open(ctx, path, starling.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer db.Close()
	names := map[string]string{} // of the tools, by call
	for ev, err := range db.Events(ctx, starling.LastRun) {
		if err != nil {
			return err
		}
		switch ev.Kind {
		case event.KindRunStarted:
			started, err := ev.AsRunStarted()
			if err != nil {
				return err
			}
			for _, t := range started.ToolSchemas {
				if strings.HasPrefix(t.Source, "mcp:") {
					w.tools = append(w.tools, t.Name)
				}
			}
		case event.KindToolCallScheduled:
			call, err := ev.AsToolCallScheduled()
			if err != nil {
				return err
			}
			names[call.CallID] = call.ToolName
			if slices.Contains(w.tools, call.ToolName) {
				w.made = append(w.made, use{call.ToolName, starling.Must(canon.ToJSON(call.Args))})
			}
		case event.KindToolCallCompleted:
			call, err := ev.AsToolCallCompleted()
			if err != nil {
				return err
			}
			result := string(starling.Must(canon.ToJSON(call.Result)))
			switch name := names[call.CallID]; {
			case name == "search_tools":
				w.found += result
			case slices.Contains(w.tools, name):
				w.results = append(w.results, result)
			}
		}
	}
	return nil
}

// writeShop makes the folder of the task: three months of orders, and who made them.
func writeShop(dir string) error {
	files := map[string]string{}
	seed := uint32(1)
	draw := func(n uint32) uint32 {
		seed = seed*1664525 + 1013904223
		return seed >> 16 % n
	}
	for _, month := range []string{"2026-08", "2026-09", "2026-10"} {
		rows := "order,customer,cents\n"
		for i := range 80 {
			rows += fmt.Sprintf("%s-%03d,C-%02d,%d\n", month, i, draw(12), 500+draw(20000))
		}
		files["orders/"+month+".csv"] = rows
	}
	for i := range 12 {
		files[fmt.Sprintf("customers/C-%02d.json", i)] = fmt.Sprintf(`{"name": "Customer %d", "group": "G-%d"}`, i, i%4)
	}
	for i, region := range []string{"north", "east", "south", "west"} {
		files[fmt.Sprintf("groups/G-%d.json", i)] = fmt.Sprintf(`{"region": "%s"}`, region)
		files["regions/"+region+".json"] = fmt.Sprintf(`{"shipping": %d}`, 450+100*i)
	}
	files["reports/README.md"] = "One folder for each region.\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// endpoint is a model behind the API of Anthropic. It takes its turns in order, then gives
// the answer, and counts what passes. A block of a response comes in one piece.
type endpoint struct {
	turns [][]use

	mu                          sync.Mutex
	asked                       int
	definitions, sent, received int
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	var request struct{ System, Tools json.RawMessage }
	if err != nil || json.Unmarshal(body, &request) != nil || e.asked > len(e.turns) {
		http.Error(w, "no such turn", http.StatusBadRequest)
		return
	}
	e.definitions, e.sent = len(request.System)+len(request.Tools), e.sent+len(body)
	w.Header().Set("Content-Type", "text/event-stream")
	type object = map[string]any
	send := func(kind string, data object) {
		data["type"] = kind
		n, _ := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, starling.Must(json.Marshal(data)))
		e.received += n
	}
	block := func(i int, begin, delta object) {
		send("content_block_start", object{"index": i, "content_block": begin})
		send("content_block_delta", object{"index": i, "delta": delta})
		send("content_block_stop", object{"index": i})
	}
	id := fmt.Sprintf("%04d", e.asked)
	send("message_start", object{"message": object{
		"id": "msg_" + id, "type": "message", "role": "assistant", "content": []any{}, "usage": object{"input_tokens": len(body) / 4, "output_tokens": 1},
	}})
	reason := "end_turn"
	if e.asked == len(e.turns) {
		block(0, object{"type": "text", "text": ""}, object{"type": "text_delta", "text": answer})
	} else {
		reason = "tool_use"
		for i, u := range e.turns[e.asked] {
			begin := object{"type": "tool_use", "id": fmt.Sprintf("toolu_%s_%d", id, i), "name": u.Name, "input": object{}}
			block(i, begin, object{"type": "input_json_delta", "partial_json": string(u.Args)})
		}
	}
	send("message_delta", object{"delta": object{"stop_reason": reason}, "usage": object{"output_tokens": 20}})
	send("message_stop", object{})
	e.asked++
}
