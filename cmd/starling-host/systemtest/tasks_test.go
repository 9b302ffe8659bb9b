package systemtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// taskClient is a client of one version of the protocol that asks for tasks of the tool "order".
type taskClient struct {
	*testing.T
	later bool                        // version 2026-07-28
	send  func(message []byte) []byte // and returns the answer
	crash func()                      // the server, and start it again
	proof func()                      // that all runs replay
	plain bool                        // it does not know tasks at the moment
	id    int
}

// say sends a request, and returns the result or the code of the error.
func (c *taskClient) say(method string, params map[string]any) (result map[string]any, code int) {
	c.Helper()
	if c.later {
		params["_meta"] = map[string]any{
			"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": map[string]any{"name": "t", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{"extensions": map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}}},
		}
		if c.plain {
			params["_meta"].(map[string]any)["io.modelcontextprotocol/clientCapabilities"] = map[string]any{}
		}
	}
	c.id++
	message, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.id, "method": method, "params": params})
	if err != nil {
		c.Fatal(err)
	}
	var answer struct {
		ID     int
		Result map[string]any
		Error  struct{ Code int }
	}
	if text := c.send(message); json.Unmarshal(text, &answer) != nil || answer.ID != c.id {
		c.Fatalf("%s: %s", method, text)
	}
	return answer.Result, answer.Error.Code
}

// TestTasks has calls outlive their requests and the process that makes them, with both kinds of tasks of the protocol, in
// the program of one user and in a host of tenants.
func TestTasks(t *testing.T) {
	skipShort(t)
	t.Parallel()
	for _, where := range []string{"mcp", "serve"} {
		for _, later := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/later=%t", where, later), func(t *testing.T) {
				t.Parallel()
				held, served := make(chan struct{}, 100), make(chan struct{}) // requests of the tool, and their answers once it is closed
				s := &shop{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					held <- struct{}{}
					select {
					case <-served:
						io.WriteString(w, "done")
					case <-r.Context().Done():
					}
				}))}
				t.Cleanup(s.Close)
				c := &taskClient{T: t, later: later}
				if where == "mcp" {
					c.local(s)
				} else {
					c.tenant(s)
				}
				c.live(s.URL, held, served)
			})
		}
	}
}

// live asks for tasks. Requests of the tool are held until served is closed.
func (c *taskClient) live(url string, held, served chan struct{}) {
	call := map[string]any{"name": "order", "arguments": map[string]any{"url": url, "items": 1}}
	begin := func() (id string) {
		params := map[string]any{"task": map[string]any{"ttl": 60000}} // which the later version has to ignore
		for name, value := range call {
			params[name] = value
		}
		made, code := c.say("tools/call", params)
		task := made
		if !c.later {
			task, _ = made["task"].(map[string]any)
		} else if made["resultType"] != "task" {
			c.Errorf("the result is %v", made)
		}
		id, _ = task["taskId"].(string)
		if task["status"] != "working" || id == "" {
			c.Fatalf("error %d, %v", code, made)
		}
		<-held
		return id
	}
	status := func(id string) (state map[string]any) {
		state, code := c.say("tasks/get", map[string]any{"taskId": id})
		if code != 0 {
			c.Fatalf("tasks/get: error %d", code)
		}
		if at, err := time.Parse(time.RFC3339, fmt.Sprint(state["createdAt"])); err != nil || time.Since(at) > awaitTime {
			c.Errorf("made at %v", state["createdAt"])
		}
		return state
	}
	stopped := begin()
	if _, code := c.say("tasks/cancel", map[string]any{"taskId": stopped}); code != 0 {
		c.Errorf("tasks/cancel: error %d", code)
	}
	until(c.T, "the task is not cancelled", &lockedBuffer{}, func() bool { return status(stopped)["status"] == "cancelled" })
	if _, code := c.say("tasks/cancel", map[string]any{"taskId": stopped}); c.later != (code == 0) {
		c.Errorf("a cancelled task is cancelled: error %d", code)
	}

	id := begin()
	list, code := c.say("tasks/list", map[string]any{})
	if has := strings.Contains(fmt.Sprint(list), id); c.later && code != -32601 || !c.later && !has {
		c.Errorf("tasks/list: error %d, %v", code, list)
	}
	if state := status(id); state["status"] != "working" {
		c.Errorf("while its request is held: %v", state)
	}
	c.crash()
	if state := status(id); state["status"] != "working" {
		c.Errorf("after the crash: %v", state)
	}
	<-held // again
	close(served)
	var result map[string]any
	if c.later {
		until(c.T, "the task does not end", &lockedBuffer{}, func() bool {
			state := status(id)
			result, _ = state["result"].(map[string]any)
			return state["status"] == "completed"
		})
	} else {
		result, _ = c.say("tasks/result", map[string]any{"taskId": id})
		if related := fmt.Sprint(result["_meta"]); !strings.Contains(related, "io.modelcontextprotocol/related-task:map[taskId:"+id+"]") {
			c.Errorf("the result is of %s", related)
		}
	}
	c.plain = true
	for range 2 {
		if plain, _ := c.say("tools/call", call); !reflect.DeepEqual(result["content"], plain["content"]) || plain["content"] == nil {
			c.Errorf("the task ends with %v, and a call with %v", result, plain)
		}
	}
	for _, none := range []string{"", "x/../y", "01M8M9FW6TB0V4PCYDWMZ5H34J"} {
		for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/result", "tasks/update"} {
			want := -32602
			if c.later == (method == "tasks/result") && !c.later == (method == "tasks/update") {
				want = -32601
			}
			if _, code := c.say(method, map[string]any{"taskId": none}); code != want {
				c.Errorf("%s of %q: error %d, not %d", method, none, code, want)
			}
		}
	}
	c.proof()
}

// local makes the client one of the program of one user.
func (c *taskClient) local(s *shop) {
	db, tool := filepath.Join(c.TempDir(), "tasks.db"), filepath.Join("..", "testdata", "tools", "order")
	var cmd *exec.Cmd
	var in io.WriteCloser
	var lines *bufio.Reader
	var complaints *lockedBuffer
	write := func(message []byte) {
		if _, err := in.Write(append(slices.Clone(message), '\n')); err != nil {
			c.Fatal(err)
		}
	}
	c.send = func(message []byte) []byte {
		write(message)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				c.Fatalf("%v\n%s", err, complaints)
			}
			if !strings.Contains(string(line), `"method"`) { // a notification
				return line
			}
		}
	}
	start := func() {
		cmd = exec.CommandContext(c.Context(), "starling-host", "mcp", "--tool", tool, "--db", db, "--allow-host", s.Listener.Addr().String(), "--allow-private")
		in, lines, complaints = talk(c.T, cmd)
		if !c.later {
			hello, _ := c.say("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}})
			if able, _ := hello["capabilities"].(map[string]any); able["tasks"] == nil {
				c.Errorf("the server offers no tasks: %v", hello)
			}
			write([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
		}
	}
	c.crash = func() {
		cmd.Process.Kill()
		cmd.Wait()
		start()
	}
	c.proof = func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			c.Error(err)
		}
		if out, err := exec.Command("starling-host", "replay", db, "--all").CombinedOutput(); err != nil || !strings.Contains(string(out), "4 runs: 4 identical") {
			c.Errorf("%v\n%s", err, out)
		}
	}
	start()
}

// tenant makes the client one of a tenant of a host.
func (c *taskClient) tenant(s *shop) {
	host := newShopCluster(c.T, c.TempDir(), "host.db", s)
	host.askFreely("alice")
	host.start("", nil)
	host.upload("alice")
	c.send = func(message []byte) []byte {
		var m struct {
			Method string
			Params struct{ Name, TaskID string }
		}
		if err := json.Unmarshal(message, &m); err != nil {
			c.Fatal(err)
		}
		headers := []string{"Content-Type", "application/json", "Accept", "application/json, text/event-stream", "Mcp-Protocol-Version", "2025-11-25"}
		if c.later {
			headers[len(headers)-1] = "2026-07-28"
			headers = append(headers, "Mcp-Method", m.Method, "Mcp-Name", m.Params.Name+m.Params.TaskID)
		}
		_, text, err := host.askWith(c.Context(), "alice", "POST", "/mcp", message, headers...)
		if err != nil {
			c.Fatal(err)
		}
		return text
	}
	c.crash = func() {
		host.kill()
		host.start("", nil)
	}
	c.proof = func() {
		host.stop()
		host.proved(4)
	}
}
