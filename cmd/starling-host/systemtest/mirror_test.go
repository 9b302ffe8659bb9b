package systemtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/treetest"
)

// mcpServers is the folder of servers that others have written, beside those of mcpClients. npm installs them.
const mcpServers = "../testdata/mcpservers"

// The variables that make this program a tee before a server, and the server of this file.
const (
	teeMark    = "STARLING_TEST_TEE" // where the tee writes what passes, before the id of its process
	serverMark = "STARLING_TEST_SERVER"
)

// step is a message of the client. In its params, {p} stands for the prefix of names, and {dir} for the
// folder of the session.
type step struct {
	method, params string // no params for ""
	id             string // as JSON; empty for a number of the client's
}

func call(tool, arguments string) step {
	return step{method: "tools/call", params: `{"name":"{p}` + tool + `","arguments":` + arguments + `}`}
}

// mirrored is a server of the comparison.
type mirrored struct {
	name    string
	command []string
	env     []string
	steps   []step // between the common ones
	answer  string // to a question of the server for the user
}

// odd has members that no type knows, and numbers that no float holds.
const odd = `"x-odd":{"n":9007199254740993,"m":-12345678901234567890,"d":1.50,"z":null,"t":"a<b>&\u2028\ud83d\ude00"}`

// accepted is an answer without the optional members that the question has, and with others.
const accepted = `{"action":"accept","content":{"account":9007199254740993,"name":"Ada","check":true},` + odd + `,"_meta":{"who":"person"}}`

// hello is what the client says of itself.
const hello = `{"protocolVersion":"2025-11-25","clientInfo":{"name":"mirror","version":"1.2","title":"M",` + odd + `},"capabilities":{` +
	`"elicitation":{"form":{"applyDefaults":false},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{"listChanged":true},` +
	`"experimental":{"x/y":{"n":9007199254740993}},"extensions":{"io.example/ui":{"mimeTypes":["text/html;profile=mcp-app"]}},` + odd + `}}`

// mirroredServers are the servers of the test: those of npm, and the one of this file.
func mirroredServers(t *testing.T) []mirrored {
	module := func(folder, path string) string {
		full, err := filepath.Abs(filepath.Join(folder, "node_modules", path))
		if err != nil {
			t.Fatal(err)
		}
		return full
	}
	official := func(name string) string {
		return module(mcpClients, "@modelcontextprotocol/server-"+name+"/dist/index.js")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const meta = `"_meta":{"progressToken":"p-1","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",` + odd + `}`
	return []mirrored{
		{name: "raw", command: []string{self}, env: []string{serverMark + "=1"}, answer: accepted, steps: []step{
			{method: "tools/call", params: `{"name":"{p}echo","arguments":{"n":9007199254740993,"m":-12345678901234567890,"d":1.50,"e":1e2,"f":0.12345678901234567890,"t":"a<b>&\u2028\ud83d\ude00","x":null},` + meta + `,` + odd + `}`, id: `"s-1"`},
			{method: "tools/call", params: `{"name":"{p}echo"}`, id: "9007199254740993"},
			{method: "tools/call", params: `{"name":"{p}echo","arguments":{"a":[1,2]},"_meta":{"progressToken":7}}`},
			call("numbers", `{}`), call("strict", `{"unknown":1}`), call("strict", `{"a":"1"}`),
			call("ask", `{"who":"Ada"}`), call("decline", `{}`), call("url", `{}`), call("sample", `{}`), call("roots", `{}`), call("other", `{}`), call("two", `{}`),
			{method: "tools/call", params: `{"name":"{p}burst","arguments":{},"_meta":{"progressToken":"b"}}`},
			{method: "cancel", params: `{"name":"{p}hold","arguments":{}}`}, call("fail", `{}`), call("missing", `{}`), call("null", `{}`), call("count", `{}`), call("count", `{}`), call("change", `{}`),
			{method: "tools/call", params: `{"name":"{p}task","arguments":{"x":1},"task":{"ttl":60000,` + odd + `}}`},
			{method: "tasks/get", params: `{"taskId":"t-1"}`}, {method: "tasks/result", params: `{"taskId":"t-1"}`}, {method: "tasks/list", params: `{}`}, {method: "tasks/cancel", params: `{"taskId":"t-1"}`},
			{method: "resources/read", params: `{"uri":"raw://one",` + odd + `,` + meta + `}`}, {method: "resources/read", params: `{"uri":"raw://fail"}`},
			{method: "resources/subscribe", params: `{"uri":"raw://one"}`}, {method: "resources/unsubscribe", params: `{"uri":"raw://one"}`},
			{method: "prompts/get", params: `{"name":"{p}ask","arguments":{"who":"Bob"},` + meta + `}`},
			{method: "completion/complete", params: `{"ref":{"type":"ref/prompt","name":"{p}ask"},"argument":{"name":"who","value":"A"},"context":{"arguments":{"n":"1"}},` + odd + `}`},
			{method: "completion/complete", params: `{"ref":{"type":"ref/resource","uri":"raw://{x}"},"argument":{"name":"x","value":""}}`},
			{method: "notifications/roots/list_changed"}, {method: "notifications/roots/list_changed", params: `{"_meta":{` + odd + `}}`},
		}},
		{name: "everything", command: []string{"node", official("everything")}, answer: accepted, steps: []step{
			call("trigger-long-running-operation", `{"duration":1,"steps":1}`), // meanwhile it asks for roots
			call("echo", `{"message":"a<b>&\u2028\ud83d\ude00"}`), call("echo", `{"message":9007199254740993}`), call("echo", `{"message":"x","unknown":{"n":12345678901234567890}}`), call("echo", `{}`),
			call("get-sum", `{"a":9007199254740993,"b":0.1}`), call("get-sum", `{"a":"1","b":2}`),
			call("get-annotated-message", `{"messageType":"error","includeImage":true}`), call("get-structured-content", `{"location":"New York"}`), call("get-tiny-image", `{}`),
			call("get-resource-links", `{"count":3}`), call("get-roots-list", `{}`), call("trigger-elicitation-request", `{}`), call("trigger-sampling-request", `{"prompt":"x","maxTokens":9}`),
			call("trigger-url-elicitation", `{"url":"https://example.com/a?b=c","elicitationId":"e-1"}`),
			{method: "tools/call", params: `{"name":"{p}trigger-long-running-operation","arguments":{"duration":0.2,"steps":4},` + meta + `}`},
			{method: "tools/call", params: `{"name":"{p}simulate-research-query","arguments":{"topic":"x"}}`},
			{method: "prompts/get", params: `{"name":"{p}simple-prompt"}`}, {method: "prompts/get", params: `{"name":"{p}args-prompt","arguments":{"city":"Bern"}}`}, {method: "prompts/get", params: `{"name":"{p}args-prompt","arguments":{}}`},
			{method: "completion/complete", params: `{"ref":{"type":"ref/prompt","name":"{p}completable-prompt"},"argument":{"name":"department","value":"E"}}`},
			{method: "resources/read", params: `{"uri":"demo://resource/static/document/features.md"}`}, {method: "resources/read", params: `{"uri":"demo://resource/none"}`},
		}},
		{name: "filesystem", command: []string{"node", official("filesystem"), "{dir}"}, steps: []step{
			call("read_text_file", `{"path":"{dir}/a.txt","head":1}`), call("read_text_file", `{"path":"{dir}/a.txt","unknown":1}`), call("read_text_file", `{"path":1}`), call("read_file", `{"path":"/etc/passwd"}`),
			call("write_file", `{"path":"{dir}/b.txt","content":"two\u2028\ud83d\ude00"}`), call("list_directory", `{"path":"{dir}"}`), call("edit_file", `{"path":"{dir}/b.txt","edits":[{"oldText":"two","newText":"three"}]}`),
			call("read_multiple_files", `{"paths":["{dir}/b.txt","{dir}/none"]}`), call("list_allowed_directories", `{}`),
		}},
		{name: "memory", command: []string{"node", official("memory")}, env: []string{"MEMORY_FILE_PATH={dir}/memory.json"}, steps: []step{
			call("create_entities", `{"entities":[{"name":"Ada","entityType":"person","observations":["first"]}]}`), call("create_entities", `{"entities":[{"name":"Ada"}]}`),
			call("create_relations", `{"relations":[{"from":"Ada","to":"Ada","relationType":"knows"}]}`), call("read_graph", `{}`), call("search_nodes", `{"query":"Ada","n":9007199254740993}`),
			{method: "resources/read", params: `{"uri":"memory://knowledge-graph"}`},
		}},
		{name: "thinking", command: []string{"node", official("sequential-thinking")}, env: []string{"DISABLE_THOUGHT_LOGGING=true"}, steps: []step{
			call("sequentialthinking", `{"thought":"x","nextThoughtNeeded":"false","thoughtNumber":"1","totalThoughts":1}`), call("sequentialthinking", `{"thought":"x","nextThoughtNeeded":false,"thoughtNumber":9007199254740993,"totalThoughts":2}`),
			call("sequentialthinking", `{"thought":"x","nextThoughtNeeded":false,"thoughtNumber":1.5,"totalThoughts":2}`), call("sequentialthinking", `{"thoughtNumber":0}`),
		}},
		{name: "mongodb", command: []string{"node", module(mcpServers, "mongodb-mcp-server/dist/esm/index.js"), "--telemetry", "disabled"}, env: []string{"MDB_MCP_CONNECTION_STRING=mongodb://127.0.0.1:9/x"},
			answer: `{"action":"decline"}`, steps: []step{
				call("delete-many", `{"collection":"x","connectionId":"x","database":"x"}`), call("drop-database", `{"connectionId":"x","database":"x"}`),
				call("find", `{"collection":"x"}`), call("list-connections", `{"unknown":1}`), call("list-connections", `{}`),
			}},
		{name: "brave", command: []string{"node", module(mcpServers, "@brave/brave-search-mcp-server/dist/index.js")}, env: []string{"BRAVE_API_KEY=x", "BRAVE_MCP_TRANSPORT=stdio"}, steps: []step{
			call("brave_place_search", `{"latitude":"north"}`), call("brave_web_search", `{"query":1,"count":9007199254740993}`), call("brave_news_search", `{}`),
		}},
		{name: "playwright", command: []string{"node", module(mcpServers, "@playwright/mcp/cli.js"), "--headless"}, steps: []step{
			call("browser_resize", `{"width":"x"}`), call("browser_navigate", `{"url":1,"unknown":2}`), call("browser_press_key", `{"key":"a","unknown":9007199254740993}`), call("browser_wait_for", `{"time":"long"}`),
		}},
	}
}

// script is the session with a server: what every server is asked, around what it is asked beside.
func (m mirrored) script() []step {
	greeting := hello
	if m.name == "raw" { // others behave differently for it
		greeting = strings.Replace(hello, `"sampling"`, `"tasks":{"list":{}},"sampling"`, 1)
	}
	steps := []step{
		{method: "initialize", params: greeting, id: `"first"`}, {method: "notifications/initialized"}, {method: "ping"},
		{method: "tools/list", params: `{}`}, {method: "prompts/list"}, {method: "resources/list", params: `{}`}, {method: "resources/templates/list", params: `{}`},
		{method: "logging/setLevel", params: `{"level":"debug"}`},
	}
	if steps = append(steps, m.steps...); m.name != "playwright" { // which asks for roots before each call, also of none
		steps = append(steps, call("no_such_tool", `{}`))
	}
	return append(steps, step{method: "no/such_method", params: `{"x":1}`}, step{method: "prompts/get", params: `{"name":"{p}no-such-prompt"}`},
		step{method: "resources/read", params: `{"uri":"none://none"}`}, step{method: "ping", params: `{}`})
}

// spoken is a message without its id.
type spoken struct {
	answers string // the method of the request that it answers; empty for requests and notifications
	method  string
	doc     map[string]any
}

func (s spoken) String() string {
	text, _ := json.Marshal(s.doc) // numbers as they were written; it was read as JSON
	if s.answers != "" {
		return "answer to " + s.answers + ": " + string(text)
	}
	return string(text)
}

// changing are values that differ each time.
var changing = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// message reads one. It fails for what is not exactly one JSON object that has a canonical form.
func message(line []byte) (doc map[string]any, id string, err error) {
	if _, err = canon.JSON(line); err != nil {
		return nil, "", fmt.Errorf("%w: %.300s", err, line)
	}
	in := json.NewDecoder(bytes.NewReader(changing.ReplaceAll(line, []byte("TIME"))))
	in.UseNumber()
	if err = in.Decode(&doc); err != nil {
		return nil, "", fmt.Errorf("%w: %.300s", err, line)
	}
	var said struct{ ID json.RawMessage }
	err = json.Unmarshal(line, &said)
	delete(doc, "id")
	return doc, string(said.ID), err
}

// session is all that was said in one.
type session struct {
	heard, loose  []spoken // by the client: in order within its requests, and between them
	asked, told   []spoken // by the server: requests and notifications, and answers to its questions
	said          []spoken // by the server
	notReady      bool     // when the gateway greeted its client
	connections   int
	announcements []string // of changed lists, which the client heard
}

// talk starts a program that is spoken to over its standard input and output. It also returns what it complains about.
func talk(t *testing.T, cmd *exec.Cmd) (in io.WriteCloser, lines *bufio.Reader, complaints *lockedBuffer) {
	t.Helper()
	complaints = &lockedBuffer{}
	cmd.Stderr = complaints
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return in, bufio.NewReader(out), complaints
}

// run holds the session with a server, directly or through the gateway.
func (m mirrored) run(t *testing.T, through bool) (s session) {
	t.Helper()
	place := filepath.Join(t.TempDir(), "session") // of this test, so that the paths are the same each time
	place = filepath.Join(filepath.Dir(filepath.Dir(place)), "session")
	state, tee := t.TempDir(), filepath.Join(t.TempDir(), "tee")
	for _, err := range []error{os.RemoveAll(place), os.MkdirAll(place, 0o700), os.WriteFile(filepath.Join(place, "a.txt"), []byte("one\nline\n"), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	prefix := ""
	fill := func(text string) string { return strings.NewReplacer("{p}", prefix, "{dir}", place).Replace(text) }
	args := []string{self}
	for _, word := range m.command {
		args = append(args, fill(word))
	}
	env := []string{teeMark + "=" + tee}
	for _, variable := range m.env {
		env = append(env, fill(variable))
	}
	if through {
		prefix = m.name + "_"
		line := m.name + "=" + strings.Join(env, " ")
		for _, word := range args {
			line += " '" + word + "'"
		}
		args, env = []string{"starling-host", "mcp", "--db", filepath.Join(state, "calls.db"), "--timeout", "60s", "--server", line}, []string{"XDG_CONFIG_HOME=" + state}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*awaitTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	in, lines, complaints := talk(t, cmd)
	write := func(method, params, id string) {
		text := `{"jsonrpc":"2.0",` + id + `"method":"` + method + `"`
		if params != "" {
			text += `,"params":` + params
		}
		if _, err := io.WriteString(in, text+"}\n"); err != nil {
			t.Fatalf("%s: %v\n%s", method, err, complaints.String())
		}
	}
	// hear reads one message, answers it if it is a question, and returns the id that it answers.
	hear := func(during string) (doc map[string]any, answered string, err error) {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil, "", err
		}
		doc, id, err := message(line)
		if err != nil {
			t.Fatal(err)
		}
		method, _ := doc["method"].(string)
		switch {
		case method == "":
			return doc, id, nil
		case strings.HasSuffix(method, "/list_changed"):
			if !slices.Contains(s.announcements, method) {
				s.announcements = append(s.announcements, method)
			}
			return doc, "", nil
		case during == "" || m.name != "raw" && slices.Contains(anytime, method):
			s.loose = append(s.loose, spoken{"", method, doc})
		default:
			s.heard = append(s.heard, spoken{"", method, doc})
		}
		if id != "" {
			fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%s,%s}`+"\n", id, fill(m.answerTo(method, doc)))
		}
		return doc, "", nil
	}
	for i, asked := range m.script() {
		params := fill(asked.params)
		if strings.HasPrefix(asked.method, "notifications/") {
			write(asked.method, params, "")
			continue
		}
		if asked.method == "cancel" {
			write("tools/call", params, fmt.Sprintf(`"id":"held-%d",`, i))
			for said := 0; said < 2 && err == nil; { // it is held, and then it is not
				var doc map[string]any
				if doc, _, err = hear("tools/call"); err == nil && strings.HasPrefix(fmt.Sprint(membersAt(doc, "params")["data"]), "held") {
					if said++; said == 1 {
						write("notifications/cancelled", fmt.Sprintf(`{"requestId":"held-%d","reason":"no <longer>"}`, i), "")
					}
				}
			}
			if err != nil {
				t.Fatalf("the server is not told that a call is cancelled: %v\n%s", err, complaints.String())
			}
			continue
		}
		var pages map[string]any // of a list
		for {
			id := asked.id
			if id == "" {
				id = fmt.Sprint(i + 100)
			}
			write(asked.method, params, `"id":`+id+`,`)
			during := ""
			if slices.Contains([]string{"tools/call", "resources/read", "prompts/get", "resources/subscribe"}, asked.method) {
				during = asked.method
			}
			var doc map[string]any
			for answered := ""; answered == ""; {
				if doc, answered, err = hear(during); err != nil {
					t.Fatalf("%s %s: %v\n%s", asked.method, params, err, complaints.String())
				}
				if answered != "" && answered != id {
					t.Errorf("%s: the answer to %s has the id %s", asked.method, id, answered)
				}
			}
			result, _ := doc["result"].(map[string]any)
			if asked.method == "initialize" {
				_, greeted := membersAt(result, "_meta", "io.github.starling-host/servers")[m.name]
				s.notReady = through && !greeted
			}
			cursor, more := result["nextCursor"].(string)
			for name, value := range result {
				if items, ok := value.([]any); ok && pages != nil {
					before, _ := pages[name].([]any)
					result[name] = append(before, items...)
				}
			}
			if more {
				delete(result, "nextCursor")
				pages, params = result, fmt.Sprintf(`{"cursor":%q}`, cursor)
				continue
			}
			s.heard = append(s.heard, spoken{asked.method, "", doc})
			break
		}
	}
	in.Close()
	for err == nil {
		_, _, err = hear("")
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", args[0], err, complaints.String())
	}
	files, _ := filepath.Glob(tee + "-*")
	s.connections = len(files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s.read(t, m.name == "raw", string(data))
	}
	return s
}

// anytime are messages of servers that others have written that belong to no request.
var anytime = []string{"roots/list", "notifications/message"}

// read reads what a tee wrote.
func (s *session) read(t *testing.T, raw bool, text string) {
	methods := map[byte]map[string]string{'>': {}, '<': {}} // of requests, by direction and id
	for line := range strings.Lines(text) {
		doc, id, err := message([]byte(line[1:]))
		if err != nil {
			t.Fatal(err)
		}
		method, _ := doc["method"].(string)
		one := spoken{"", method, doc}
		if held, ok := membersAt(doc, "params")["requestId"].(string); ok && method == "notifications/cancelled" {
			membersAt(doc, "params")["requestId"] = "of " + methods[line[0]][`"`+held+`"`]
		} else if held, ok := membersAt(doc, "params")["requestId"].(json.Number); ok && method == "notifications/cancelled" {
			membersAt(doc, "params")["requestId"] = "of " + methods[line[0]][string(held)]
		}
		if method == "" {
			one.answers = methods['>'+'<'-line[0]][id]
		} else if id != "" {
			methods[line[0]][id] = method
		}
		switch {
		case !raw && slices.Contains(anytime, method): // the client hears it, too
		case line[0] == '<':
			s.said = append(s.said, one)
		case one.answers != "":
			s.told = append(s.told, one)
		default:
			s.asked = append(s.asked, one)
		}
	}
}

// answerTo returns the rest of the client's answer to a question.
func (m mirrored) answerTo(method string, doc map[string]any) string {
	text, _ := membersAt(doc, "params")["message"].(string)
	switch {
	case method == "ping":
		return `"result":{}`
	case method == "roots/list":
		return `"result":{"roots":[{"uri":"file://{dir}","name":"w","_meta":{` + odd + `}}],` + odd + `}`
	case method == "sampling/createMessage":
		return `"result":{"role":"assistant","content":{"type":"text","text":"a<b>\u2028"},"model":"m","stopReason":"endTurn",` + odd + `}`
	case method == "elicitation/create" && strings.Contains(text, "decline"):
		return `"result":{"action":"decline",` + odd + `}`
	case method == "elicitation/create" && m.answer != "":
		return `"result":` + m.answer
	}
	return `"error":{"code":-32601,"message":"the client has no such method","data":{` + odd + `}}`
}

// membersAt returns an object inside an object, nil if it is not there.
func membersAt(doc map[string]any, path ...string) map[string]any {
	for _, name := range path {
		doc, _ = doc[name].(map[string]any)
	}
	return doc
}

// beMirrored is the process of the tee, or of the server, if this is one of them.
func beMirrored() {
	if file := os.Getenv(teeMark); file != "" {
		os.Unsetenv(teeMark)
		os.Exit(beTee(fmt.Sprintf("%s-%d", file, os.Getpid()), os.Args[1:]))
	}
	if os.Getenv(serverMark) != "" {
		(&rawServer{out: os.Stdout, waiting: map[string]func(string){}}).serve(os.Stdin)
		os.Exit(0)
	}
}

// beTee runs a command, and writes each line that passes to a file, before it passes on.
func beTee(file string, command []string) int {
	to, err := os.Create(file)
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	pass := func(mark byte, from io.Reader, out io.WriteCloser) {
		lines := bufio.NewReader(from)
		for {
			line, err := lines.ReadBytes('\n')
			if len(line) > 0 {
				mu.Lock()
				_, _ = to.Write(append([]byte{mark}, line...))
				mu.Unlock()
				_, _ = out.Write(line)
			}
			if err != nil {
				_ = out.Close()
				return
			}
		}
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	go pass('>', os.Stdin, in)
	pass('<', out, os.Stdout)
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

// rawServer is a server whose messages are texts.
type rawServer struct {
	out     io.Writer
	count   int
	waiting map[string]func(answer string) // by the id of the question
}

func (s *rawServer) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

func (s *rawServer) text(id string, text string) {
	doc, _ := json.Marshal(text) // a string cannot fail
	s.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`, id, doc)
}

// ask asks the client, and then answers a call with the text of its answer.
func (s *rawServer) ask(call, id, method, params string) {
	s.waiting[id] = func(answer string) {
		doc, err := canon.JSON([]byte(answer))
		if err != nil {
			doc = []byte(err.Error())
		}
		s.text(call, string(doc))
	}
	s.say(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
}

// rawGreeting is what the server says of itself.
const rawGreeting = `"capabilities":{"tools":{"listChanged":true,"x":1},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"logging":{},"completions":{},` +
	`"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"experimental":{"a/b":{` + odd + `}},"extensions":{"io.example/ui":{"n":1}}},` +
	`"serverInfo":{"name":"raw","version":"1","title":"Raw",` + odd + `},"instructions":"Be <raw> & \u2028exact.","_meta":{"io.example/m":{` + odd + `}}`

// rawTools are its tools, in two pages.
var rawTools = [2]string{
	`{"name":"echo","title":"E","description":"a<b>& \u2028","inputSchema":{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993}},` + odd + `},"execution":{"taskSupport":"forbidden"},` + odd + `,"_meta":{` + odd + `},"icons":[{"src":"data:,","x":1}],"annotations":{"readOnlyHint":true,"x-hint":1}},` +
		`{"name":"numbers","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["none"]}},` +
		`{"name":"strict","inputSchema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}`,
	func() (all string) {
		for _, name := range strings.Fields("ask decline url sample roots other two burst hold fail missing null count change") {
			all += `{"name":"` + name + `","inputSchema":{"type":"object"}},`
		}
		return all + `{"name":"task","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}`
	}(),
}

const rawTask = `{"taskId":"t-1","status":"working","createdAt":"c","lastUpdatedAt":"u","ttl":60000,"pollInterval":10,` + odd + `}`

func (s *rawServer) serve(in io.Reader) {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID, Params, Result, Error json.RawMessage
			Method                    string
		}
		if json.Unmarshal(line, &m) != nil {
			panic(string(line))
		}
		id := string(m.ID)
		if m.Method == "" {
			if then := s.waiting[id]; then != nil {
				delete(s.waiting, id)
				then(string(m.Result) + string(m.Error))
			}
			continue
		}
		var p struct {
			Name, URI, Cursor string
			Arguments         struct{ Who string }
			Task, Meta        json.RawMessage
			ProtocolVersion   string
		}
		_ = json.Unmarshal(m.Params, &p) // arguments may be anything
		result := func(text string) { s.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, text) }
		switch m.Method {
		case "initialize":
			result(`{"protocolVersion":"` + p.ProtocolVersion + `",` + rawGreeting + `}`)
		case "ping", "logging/setLevel", "resources/unsubscribe":
			result(`{}`)
		case "resources/subscribe":
			s.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"raw://one",` + odd + `}}`)
			result(`{"_meta":{` + odd + `}}`)
		case "tools/list":
			if p.Cursor == "" {
				result(`{"tools":[` + rawTools[0] + `],"nextCursor":"2"}`)
			} else {
				result(`{"tools":[` + rawTools[1] + `]}`)
			}
		case "prompts/list":
			result(`{"prompts":[{"name":"ask","arguments":[{"name":"who","required":true,"x":1}],` + odd + `}]}`)
		case "resources/list":
			result(`{"resources":[{"uri":"raw://one","name":"one","size":9007199254740993,` + odd + `}]}`)
		case "resources/templates/list":
			result(`{"resourceTemplates":[{"uriTemplate":"raw://{x}","name":"x",` + odd + `}]}`)
		case "prompts/get":
			result(`{"messages":[{"role":"user","content":{"type":"text","text":"hi"},` + odd + `}],` + odd + `,"_meta":{` + odd + `}}`)
		case "resources/read":
			if p.URI != "raw://one" {
				s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"no <such> resource","data":{%s}}}`, id, odd)
			} else {
				result(`{"contents":[{"uri":"raw://one","text":"a<b>\u2028",` + odd + `}],` + odd + `,"_meta":{` + odd + `}}`)
			}
		case "completion/complete":
			result(`{"completion":{"values":["Ada"],"total":9007199254740993,"hasMore":false},` + odd + `}`)
		case "notifications/cancelled":
			s.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"held no longer"}}`)
		case "tasks/get", "tasks/cancel":
			result(rawTask)
		case "tasks/result":
			result(`{"content":[{"type":"text","text":"of the task"}],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t-1"}}}`)
		case "tasks/list":
			result(`{"tasks":[` + rawTask + `]}`)
		case "tools/call":
			s.call(id, p.Name, p.Arguments.Who, p.Task != nil)
		default:
			if id != "" {
				s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, id)
			}
		}
	}
}

// call calls a tool.
func (s *rawServer) call(id, name, who string, task bool) {
	question := `{"message":"` + who + `, which account?","requestedSchema":{"type":"object","properties":{"account":{"type":"integer","maximum":9007199254740993},"all":{"type":"boolean","default":true}},"required":["account"]},` + odd + `}`
	switch name {
	case "echo":
		s.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"l","data":{%s}}}`, odd)
		s.text(id, "heard")
	case "numbers":
		s.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"n","annotations":{"priority":0.50},%s},{"type":"odd",%s}],"structuredContent":{"n":9007199254740993,%s},"_meta":{%s,"io.github.starling-host/x":1},%s}}`, id, odd, odd, odd, odd, odd)
	case "ask":
		s.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":"%s is asked"}}`, who)
		s.ask(id, `"q-`+who+`"`, "elicitation/create", question)
	case "decline":
		s.ask(id, "0", "elicitation/create", `{"mode":"form","message":"you may decline","requestedSchema":{"type":"object","properties":{}}}`)
	case "url":
		s.ask(id, "9007199254740993", "elicitation/create", `{"mode":"url","url":"https://example.com/?a=b&c","elicitationId":"e-1","message":"open it",`+odd+`}`)
	case "sample":
		s.ask(id, "1", "sampling/createMessage", `{"messages":[{"role":"user","content":{"type":"text","text":"hi",`+odd+`}}],"maxTokens":9007199254740993,"modelPreferences":{"costPriority":0.30},`+odd+`}`)
	case "roots":
		s.ask(id, "2", "roots/list", `{`+odd+`}`)
	case "other":
		s.ask(id, "3", "x/unknown", `{`+odd+`}`)
	case "two":
		var first string
		s.waiting["4"] = func(answer string) { first = answer }
		s.say(`{"jsonrpc":"2.0","id":4,"method":"roots/list"}`)
		s.waiting["5"] = func(answer string) { s.text(id, first+" and "+answer) }
		s.say(`{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":%s}`, question)
	case "burst":
		for i := range 500 {
			s.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"b","progress":%d,"total":9007199254740993,"message":"<%d>",%s}}`, i, i, odd)
			s.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":{"i":%d}}}`, i)
		}
		s.text(id, "done")
	case "hold":
		s.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"held"}}`)
	case "fail":
		s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-31999,"message":"it <failed>","data":{%s}}}`, id, odd)
	case "missing":
		s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Unknown tool: nope","data":{"try":["a","b"]}}}`, id)
	case "null":
		s.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[],"isError":true,"structuredContent":null}}`, id)
	case "count":
		s.count++
		s.text(id, fmt.Sprint(s.count))
	case "change":
		s.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		s.say(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`)
		s.text(id, "changed")
	case "task":
		if task {
			s.say(`{"jsonrpc":"2.0","id":%s,"result":{"task":%s,"_meta":{%s}}}`, id, rawTask, odd)
			return
		}
		s.text(id, "no task")
	default:
		s.say(`{"jsonrpc":"2.0","id":%s,"result":{"isError":true,"content":[{"type":"text","text":"refused: %s"}]}}`, id, name)
	}
}

// compared is a session with a server, directly and through the gateway.
type compared struct {
	*testing.T
	mirrored
	direct, through session
}

// answers calls a function for each answer of a method that the client heard, with the direct one and the one of
// the gateway. Each request has one, in order.
func (c *compared) answers(fn func(method string, direct, through *spoken), methods ...string) {
	list := func(s *session) (all []*spoken) {
		for i := range s.heard {
			if s.heard[i].answers != "" {
				all = append(all, &s.heard[i])
			}
		}
		return all
	}
	direct, through := list(&c.direct), list(&c.through)
	for i := range min(len(direct), len(through)) {
		if slices.Contains(methods, direct[i].answers) || len(methods) == 0 {
			fn(direct[i].answers, direct[i], through[i])
		}
	}
}

// requests returns the requests and notifications of some methods that the server heard.
func (s *session) requests(methods ...string) (all []map[string]any) {
	for _, one := range s.asked {
		if slices.Contains(methods, one.method) {
			all = append(all, one.doc)
		}
	}
	return all
}

// drop removes what the server heard and said of some requests.
func (s *session) drop(which func(method string) bool) (dropped bool) {
	fits := func(one spoken) bool {
		found := which(one.method) || which(one.answers)
		dropped = dropped || found
		return found
	}
	s.asked, s.said = slices.DeleteFunc(s.asked, fits), slices.DeleteFunc(s.said, fits)
	return dropped
}

// code returns the code of an error, 0 for a result.
func (s spoken) code() int64 {
	n, _ := membersAt(s.doc, "error")["code"].(json.Number)
	code, _ := n.Int64()
	return code
}

var (
	reads   = []string{"tools/call", "resources/read", "prompts/get", "tasks/result"}
	listing = []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"}
	asks    = regexp.MustCompile(`^The server of the tool \S+ asks: `)
	span    = regexp.MustCompile(`^(00-[0-9a-f]{32})-[0-9a-f]{16}(-[0-9a-f]{2})$`)
)

// differences are all that may differ, by the row of the table in docs/assistants.md. Each checks that it is as the
// table says, makes both sides equal, and reports whether there was a difference.
var differences = []struct {
	row    string
	settle func(*compared) bool
}{
	{"greeting of a server that is not ready within two seconds", func(c *compared) bool {
		if !c.through.notReady || c.name == "raw" {
			return false
		}
		c.answers(func(_ string, direct, through *spoken) { through.doc = direct.doc }, "initialize")
		return true
	}},
	{"tasks", func(c *compared) (used bool) {
		for _, greeting := range [][]spoken{c.direct.heard, c.through.heard} {
			for _, one := range greeting { // this program has tasks, whatever the server has
				delete(membersAt(one.doc, "result", "capabilities"), "tasks")
				delete(membersAt(one.doc, "result", "_meta", "io.github.starling-host/servers", c.name, "capabilities"), "tasks")
			}
		}
		c.answers(func(_ string, direct, through *spoken) {
			theirs, _ := membersAt(direct.doc, "result")["tasks"].([]any)
			all, _ := membersAt(through.doc, "result")["tasks"].([]any)
			if len(all) < len(theirs) || !same(all[:len(theirs)], theirs) {
				c.Errorf("the tasks of the server are not the first ones of %v", all)
			}
			direct.doc, used = through.doc, used || len(theirs) > 0
		}, "tasks/list")
		return used
	}},
	{"greeting", func(c *compared) (used bool) {
		c.answers(func(_ string, direct, through *spoken) {
			if c.through.notReady && c.name != "raw" {
				return
			}
			said, got := membersAt(direct.doc, "result"), membersAt(through.doc, "result")
			own := membersAt(got, "_meta", "io.github.starling-host/servers", c.name)
			abilities := membersAt(said, "capabilities")
			for name, theirs := range abilities {
				ours := membersAt(got, "capabilities", name)
				for member, value := range theirs.(map[string]any) {
					if !same(value, ours[member]) {
						c.Errorf("the capability %s.%s is %v, not %v", name, member, ours[member], value)
					}
				}
				if ours == nil {
					c.Errorf("there is no capability %s in %v", name, got["capabilities"])
				}
			}
			instructions, _ := said["instructions"].(string)
			if all, _ := got["instructions"].(string); !strings.Contains(all, strings.TrimSpace(instructions)) {
				c.Errorf("the instructions %q lack %q", all, instructions)
			}
			for name, value := range map[string]any{"protocolVersion": said["protocolVersion"], "serverInfo": said["serverInfo"], "capabilities": said["capabilities"]} {
				if !same(own[name], value) {
					c.Errorf("the server's %s is %v, not %v", name, own[name], value)
				}
			}
			if !same(said["protocolVersion"], got["protocolVersion"]) {
				c.Errorf("the version is %v, not %v", got["protocolVersion"], said["protocolVersion"])
			}
			through.doc, used = direct.doc, true
		}, "initialize")
		return used
	}},
	{"client of the greeting", func(c *compared) (used bool) {
		for _, one := range c.through.requests("initialize") {
			meta := membersAt(one, "params", "_meta")
			_, used = membersAt(meta, "io.github.starling-host/gateway")["name"]
			delete(meta, "io.github.starling-host/gateway")
			if len(meta) == 0 {
				delete(membersAt(one, "params"), "_meta")
			}
		}
		for _, one := range c.through.requests("notifications/initialized") {
			delete(one, "params")
		}
		return used
	}},
	{"`list_servers`", func(c *compared) (used bool) {
		c.answers(func(_ string, _, through *spoken) {
			result := membersAt(through.doc, "result")
			all, _ := result["tools"].([]any)
			if used = len(all) > 0 && all[0].(map[string]any)["name"] == "list_servers"; used {
				result["tools"] = all[1:]
			}
		}, "tools/list")
		return used
	}},
	{"names of tools and prompts", func(c *compared) (used bool) {
		c.answers(func(_ string, _, through *spoken) {
			for _, what := range []string{"tools", "prompts"} {
				all, _ := membersAt(through.doc, "result")[what].([]any)
				for _, item := range all {
					one := item.(map[string]any)
					name, prefixed := strings.CutPrefix(one["name"].(string), c.name+"_")
					if used = used || prefixed; prefixed {
						one["name"] = name
					} else {
						one["name"] = "without prefix: " + name
					}
				}
			}
		}, "tools/list", "prompts/list")
		return used
	}},
	{"lists", func(c *compared) (used bool) {
		for _, s := range []*session{&c.direct, &c.through} { // which ask for them at other times
			used = s.drop(func(method string) bool { return slices.Contains(listing, method) }) || used
		}
		c.answers(func(_ string, direct, through *spoken) {
			result := membersAt(through.doc, "result")
			delete(result, "cacheScope")
			delete(result, "ttlMs")
			if direct.code() == -32601 && len(result) == 1 {
				for _, items := range result {
					if all, ok := items.([]any); ok && len(all) == 0 {
						through.doc = direct.doc
					}
				}
			}
		}, listing...)
		return used
	}},
	{"announcements of changed lists", func(c *compared) bool {
		for _, s := range []*session{&c.direct, &c.through} {
			s.said = slices.DeleteFunc(s.said, func(one spoken) bool { return strings.HasSuffix(one.method, "/list_changed") })
		}
		for _, method := range c.direct.announcements {
			if !slices.Contains(c.through.announcements, method) {
				c.Errorf("the client does not hear %s", method)
			}
		}
		return len(c.through.announcements) > len(c.direct.announcements)
	}},
	{"methods and tools that the server does not have", func(c *compared) (used bool) {
		lacks := map[string]bool{"ping": true}
		c.answers(func(method string, direct, through *spoken) {
			if result := membersAt(through.doc, "result"); direct.code() == -32601 && !slices.Contains(reads[:1], method) && (through.code() < 0 || len(result) == 0) {
				lacks[method], through.doc, used = true, direct.doc, true
			}
		})
		used = c.direct.drop(func(method string) bool { return lacks[method] }) && used
		c.through.drop(func(method string) bool { return method == "ping" })
		// The last call is of an unknown tool.
		unknown := slices.IndexFunc(c.direct.asked, func(one spoken) bool { return membersAt(one.doc, "params")["name"] == "no_such_tool" })
		if unknown < 0 {
			return used
		}
		c.direct.asked = slices.Delete(c.direct.asked, unknown, unknown+1)
		for i, one := range slices.Backward(c.direct.said) {
			if one.answers == "tools/call" {
				c.direct.said = slices.Delete(c.direct.said, i, i+1)
				break
			}
		}
		var last [2]*spoken
		c.answers(func(_ string, direct, through *spoken) { last = [2]*spoken{direct, through} }, "tools/call")
		if last[1].code() == -32602 {
			last[1].doc = last[0].doc
		}
		return used
	}},
	{"`_meta` of results", func(c *compared) (used bool) {
		c.answers(func(method string, direct, through *spoken) {
			result := membersAt(through.doc, "result")
			meta := membersAt(result, "_meta")
			if result == nil || same(direct.doc, through.doc) && meta["starling/replay"] == nil {
				return
			}
			for _, name := range []string{"io.github.starling-host/run_id", "starling/run_id", "starling/replay"} {
				if _, ok := meta[name].(string); !ok {
					c.Errorf("the answer to %s has no %s: %s", method, name, through)
				}
				delete(meta, name)
			}
			if used = true; len(meta) == 0 && membersAt(direct.doc, "result")["_meta"] == nil {
				delete(result, "_meta")
			}
		}, reads...)
		return used
	}},
	{"message of an elicitation", func(c *compared) (used bool) {
		for i := range c.through.heard {
			if one := c.through.heard[i]; one.method == "elicitation/create" {
				params := membersAt(one.doc, "params")
				text, _ := params["message"].(string)
				used = asks.MatchString(text)
				params["message"] = asks.ReplaceAllString(text, "")
				if !used {
					params["message"] = "without the sentence: " + text
				}
			}
		}
		return used
	}},
	{"arguments", func(c *compared) (used bool) {
		for _, one := range c.direct.requests(reads...) {
			params, _ := one["params"].(map[string]any)
			before := spoken{"", "", one}.String()
			if one["method"] == "tools/call" && params["arguments"] == nil {
				params["arguments"] = map[string]any{}
			}
			for name, value := range params {
				if name == "arguments" || one["method"] != "tools/call" && name != "_meta" {
					text, _ := json.Marshal(value) // it was read as JSON
					text, err := canon.JSON(text)
					in := json.NewDecoder(bytes.NewReader(text))
					in.UseNumber()
					if value = nil; err != nil || in.Decode(&value) != nil {
						c.Error(err)
					}
					params[name] = value
				}
			}
			used = used || before != spoken{"", "", one}.String()
		}
		return used
	}},
	{"reason of a cancellation", func(c *compared) (used bool) {
		all := c.direct.requests("notifications/cancelled")
		for i, one := range c.through.requests("notifications/cancelled") {
			if i < len(all) && !same(one, all[i]) {
				membersAt(one, "params")["reason"], used = membersAt(all[i], "params")["reason"], true
			}
		}
		return used
	}},
	{"`traceparent`", func(c *compared) (used bool) {
		all := c.direct.requests(reads...)
		for i, one := range c.through.requests(reads...) {
			meta := membersAt(one, "params", "_meta")
			theirs, _ := meta["traceparent"].(string)
			if i >= len(all) || theirs == "" {
				continue
			}
			ours, _ := membersAt(all[i], "params", "_meta")["traceparent"].(string)
			was, now := span.FindStringSubmatch(ours), span.FindStringSubmatch(theirs)
			if was != nil && now != nil && was[1] == now[1] && was[2] == now[2] && ours != theirs {
				meta["traceparent"], used = ours, true
			}
		}
		return used
	}},
}

// same reports whether two values are the same JSON, with their numbers as they were written.
func same(a, b any) bool {
	one, _ := json.Marshal(a)
	other, _ := json.Marshal(b)
	return bytes.Equal(one, other)
}

// equal compares what was said in two sessions.
func (c *compared) equal(what string) {
	c.Helper()
	for _, part := range []struct {
		name            string
		direct, through []spoken
	}{
		{"the client hears", c.direct.heard, c.through.heard}, {"the client hears between its requests", c.direct.loose, c.through.loose},
		{"the server hears", c.direct.asked, c.through.asked}, {"the server is answered", c.direct.told, c.through.told}, {"the server says", c.direct.said, c.through.said},
	} {
		for i := range max(len(part.direct), len(part.through)) {
			one, other := "nothing", "nothing"
			if i < len(part.direct) {
				one = part.direct[i].String()
			}
			if i < len(part.through) {
				other = part.through[i].String()
			}
			if one != other {
				at := 0
				for at < min(len(one), len(other)) && one[at] == other[at] {
					at++
				}
				start := max(0, at-200)
				c.Errorf("%s: %s, message %d, %.100s, byte %d:\ndirectly: %.800s\n%s: %.800s", c.name, part.name, i, one, at, one[min(start, len(one)):], what, other[min(start, len(other)):])
				break
			}
		}
	}
	if c.direct.connections != 1 || c.through.connections != 1 {
		c.Errorf("the server was started %d and %d times", c.direct.connections, c.through.connections)
	}
}

// TestGatewayMirrors has a client hold the same session with servers that others have written, and with one that says
// what no other does: directly, and through mcp --server. Each message in both directions, on both sides of the
// gateway, is the same JSON with the same digits, but for the differences that docs/assistants.md lists.
func TestGatewayMirrors(t *testing.T) {
	skipShort(t)
	needsMCPClients(t)
	treetest.NeedsNPM(t, mcpServers)
	t.Parallel()
	page := treetest.Read(t, "../../../docs/assistants.md")
	var mu sync.Mutex
	used := map[string]bool{}
	t.Run("servers", func(t *testing.T) {
		for _, m := range mirroredServers(t) {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				c := &compared{t, m, m.run(t, false), m.run(t, false)}
				c.equal("directly again")
				if t.Failed() {
					return
				}
				c.through = m.run(t, true)
				for _, d := range differences {
					found := d.settle(c)
					mu.Lock()
					used[d.row] = used[d.row] || found
					mu.Unlock()
				}
				c.equal("through the gateway")
			})
		}
	})
	for _, d := range differences {
		if !strings.Contains(page, "\n| "+d.row+" |") {
			t.Errorf("docs/assistants.md has no row %q", d.row)
		}
		if !used[d.row] && !t.Failed() && d.row != differences[0].row { // the first is one of slow machines
			t.Errorf("nothing differs as the row %q says", d.row)
		}
	}
}

// TestGatewayKeepsSessionsApart has two clients use a server at once. Nothing of one of them reaches the other: questions,
// answers, progress with the same token, logs, and what the server keeps in memory.
func TestGatewayKeepsSessionsApart(t *testing.T) {
	skipShort(t)
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	tee := filepath.Join(state, "tee")
	url, stop := mcpListening(t, []string{
		"env", "XDG_CONFIG_HOME=" + state, "starling-host", "mcp", "--db", filepath.Join(state, "calls.db"), "--timeout", "60s",
		"--server", fmt.Sprintf("raw=%s=%s %s=1 '%s' '%s'", teeMark, tee, serverMark, self, self),
	})
	stop = sync.OnceFunc(stop)
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	clients := map[string]*rawClient{}
	var listening sync.WaitGroup
	for _, name := range []string{"Alice", "Bob"} {
		c := &rawClient{T: t, ctx: ctx, url: url, questions: make(chan string, 1)}
		clients[name] = c
		c.post("initialize", strings.Replace(hello, `"mirror"`, `"`+name+`"`, 1))
		c.post("notifications/initialized", "")
		c.post("tools/list", "{}")
		c.post("logging/setLevel", `{"level":"debug"}`)
		listening.Go(func() { c.exchange(http.MethodGet, "") })
	}
	alice, bob := clients["Alice"], clients["Bob"]
	ask := func(c *rawClient, name string) (question string, answer chan string) {
		answer = make(chan string, 1)
		go func() {
			answer <- c.post("tools/call", `{"name":"raw_ask","arguments":{"who":"`+name+`"},"_meta":{"progressToken":"t"}}`)
		}()
		select {
		case question = <-c.questions:
		case early := <-answer:
			t.Fatalf("%s is not asked: %s", name, early)
		}
		return question, answer
	}
	first, ofAlice := ask(alice, "Alice")
	second, ofBob := ask(bob, "Bob") // while Alice thinks
	for name, question := range map[string]string{"Alice": first, "Bob": second} {
		if !strings.Contains(question, name+", which account?") {
			t.Errorf("%s is asked %s", name, question)
		}
	}
	bob.reply(second, `"result":{"action":"accept","content":{"account":2}}`)
	if answer := <-ofBob; !strings.Contains(answer, `{\"account\":2}`) {
		t.Errorf("Bob's call has the answer %s", answer)
	}
	alice.reply(first, `"result":{"action":"accept","content":{"account":9007199254740993}}`)
	if answer := <-ofAlice; !strings.Contains(answer, `{\"account\":9007199254740993}`) {
		t.Errorf("Alice's call has the answer %s", answer)
	}
	const count = `{"name":"raw_count","arguments":{}}`
	alice.post("tools/call", count)
	alice.post("tools/call", `{"name":"raw_burst","arguments":{},"_meta":{"progressToken":"b"}}`)
	alice.post("tools/call", `{"name":"raw_change","arguments":{}}`)
	if answer := bob.post("tools/call", count); !strings.Contains(answer, `"text":"1"`) {
		t.Errorf("Bob's first count is %s", answer)
	}
	cancel()
	listening.Wait()
	stop()

	files, err := filepath.Glob(tee + "-*")
	if err != nil || len(files) != 2 {
		t.Fatalf("the server ran %d times, %v", len(files), err)
	}
	heard := map[string]string{}
	for _, file := range files {
		text := treetest.Read(t, file)
		for name := range clients {
			if strings.Contains(text, `"clientInfo":{"name":"`+name+`"`) {
				heard["the server of "+name] = text
			}
		}
	}
	for name, c := range clients {
		heard[name] = c.heard.String()
	}
	for _, who := range []string{"Alice", "Bob", "the server of Alice", "the server of Bob"} {
		own, other := "Alice", "Bob"
		if strings.HasSuffix(who, "Bob") {
			own, other = other, own
		}
		text := heard[who]
		if !strings.Contains(text, own+" is asked") || strings.Contains(text, other) || strings.Contains(text, `"progressToken":"b"`) != (own == "Alice") {
			t.Errorf("%s hears\n%.9000s", who, text)
		}
	}
	if n := strings.Count(heard["the server of Bob"], `"method":"tools/list"`); n != len(rawTools) {
		t.Errorf("Bob's server is asked for %d pages of tools, not %d: Alice's has changed", n, len(rawTools))
	}
}

// rawClient is a client over HTTP with a session.
type rawClient struct {
	*testing.T
	ctx       context.Context
	url       string
	id        string // of the session
	questions chan string
	heard     lockedBuffer // all messages
}

// post sends a request, or a notification, and returns the answer.
func (c *rawClient) post(method, params string) (answer string) {
	message := `{"jsonrpc":"2.0","method":"` + method + `"`
	if params != "" {
		message += `,"params":` + params
	}
	if !strings.HasPrefix(method, "notifications/") {
		message += `,"id":1`
	}
	return c.exchange(http.MethodPost, message+"}")
}

// reply answers a question.
func (c *rawClient) reply(question, answer string) {
	_, id, err := message([]byte(question))
	if err != nil {
		c.Error(err)
	}
	c.exchange(http.MethodPost, `{"jsonrpc":"2.0","id":`+id+`,`+answer+`}`)
}

// exchange makes an HTTP request, notes the messages of the response and returns the answer among them.
func (c *rawClient) exchange(method, body string) (answer string) {
	r, err := http.NewRequestWithContext(c.ctx, method, c.url, strings.NewReader(body))
	if err != nil {
		c.Error(err)
		return ""
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodGet {
		r.Header.Set("Accept", "text/event-stream")
	}
	if c.id != "" {
		r.Header.Set("Mcp-Session-Id", c.id)
		r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		if c.ctx.Err() == nil {
			c.Error(err)
		}
		return ""
	}
	defer resp.Body.Close()
	if id := resp.Header.Get("Mcp-Session-Id"); c.id == "" {
		c.id = id
	}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if text := strings.TrimPrefix(strings.TrimSpace(line), "data: "); strings.HasPrefix(text, "{") {
			doc, id, err := message([]byte(text))
			switch {
			case err != nil:
				c.Error(err)
			case id == "":
			case doc["method"] != nil:
				c.questions <- text
			default:
				answer = text
			}
			fmt.Fprintln(&c.heard, text)
		}
		if err != nil {
			return answer
		}
	}
}
