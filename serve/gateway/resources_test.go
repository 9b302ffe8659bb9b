package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/runtime/agentfile"
)

// notesServer has resources, a template and a prompt. Each text names the server.
func notesServer(name string) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, &mcp.ServerOptions{PageSize: 2})
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		if strings.HasSuffix(r.Params.URI, "/none") {
			return nil, mcp.ResourceNotFoundError(r.Params.URI)
		}
		return &mcp.ReadResourceResult{Meta: mcp.Meta{"from": name}, Contents: []*mcp.ResourceContents{
			{URI: r.Params.URI, MIMEType: "text/plain", Text: name + " has <" + r.Params.URI + ">", Meta: mcp.Meta{"n": 1}},
			{URI: r.Params.URI + "#b", Blob: []byte{0, 1, 255}},
		}}, nil
	}
	for i := range 5 {
		server.AddResource(&mcp.Resource{URI: fmt.Sprintf("%s://note/%d", name, i), Name: "note", Description: "A & B", Annotations: &mcp.Annotations{Priority: 0.5}}, read)
	}
	server.AddResource(&mcp.Resource{URI: "linked://" + name, Name: "linked"}, read)
	server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: name + "://day/{day}", Name: "days"}, read)
	server.AddPrompt(&mcp.Prompt{Name: "greet_all", Title: "Greet", Arguments: []*mcp.PromptArgument{{Name: "who", Required: true}}},
		func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Description: name, Messages: []*mcp.PromptMessage{
				{Role: "user", Content: &mcp.TextContent{Text: "Greet " + r.Params.Arguments["who"]}},
				{Role: "user", Content: &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: name + "://note/1", Text: "one"}}},
			}}, nil
		})
	return server
}

// lineClient speaks the protocol line by line, and sees each answer as it was sent.
type lineClient struct {
	t     *testing.T
	to    io.Writer
	from  *bufio.Reader
	id    int
	heard []string // methods of notifications
}

// ask returns the result of a request, or its error under "error".
func (c *lineClient) ask(method string, params any) map[string]any {
	c.t.Helper()
	c.id++
	doc, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.id, "method": method, "params": params})
	if err == nil {
		_, err = fmt.Fprintf(c.to, "%s\n", doc)
	}
	for err == nil {
		var m struct {
			ID            int
			Method        string
			Result, Error map[string]any
		}
		var line string
		if line, err = c.from.ReadString('\n'); err == nil {
			err = json.Unmarshal([]byte(line), &m)
		}
		switch {
		case err != nil:
		case m.Error != nil:
			return map[string]any{"error": m.Error}
		case m.Method == "" && m.ID == c.id:
			return m.Result
		default:
			c.heard = append(c.heard, m.Method)
		}
	}
	c.t.Fatal(err)
	return nil
}

// withoutOurs removes what the gateway adds to an answer, and returns the id of its run.
func withoutOurs(answer map[string]any) (runID string) {
	meta, _ := answer["_meta"].(map[string]any)
	runID, _ = meta["starling/run_id"].(string)
	delete(meta, "starling/run_id")
	delete(meta, "io.github.starling-host/run_id")
	delete(meta, "starling/replay")
	if len(meta) == 0 {
		delete(answer, "_meta")
	}
	return runID
}

// TestResourcesAndPromptsOfServersArePassedOn compares the answers through the gateway with
// those of the servers themselves, and replays them when the servers are gone.
func TestResourcesAndPromptsOfServersArePassedOn(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) { resourcesPassedOn(t, version) })
	}
}

func resourcesPassedOn(t *testing.T, version string) {
	ctx := t.Context()
	db := starling.Must(starling.Open(ctx, filepath.Join(t.TempDir(), "runs.db"), starling.Options{}))
	t.Cleanup(func() { db.Close() })
	rules, err := policy.Parse("policy.yaml", []byte(`{version: "1.0", permissions: {tools: {"*": {},
		blue_prompts_get: {arguments: {type: object, properties: {arguments: {type: object, properties: {who: {type: string, maxLength: 20}}}}}}, blue_resources_read: {arguments: {type: object, properties: {uri: {type: string, pattern: "^(blue|linked)://.*[^3]$"}}}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	tools := NewTools(db, starling.ToolOptions{Policy: rules}, func(text string) { t.Log(text) })
	t.Cleanup(tools.Close)

	direct := map[string]*lineClient{}
	behind := map[string]*mcp.Server{}
	var addresses []*httptest.Server
	greeting := map[string]any{"protocolVersion": version, "clientInfo": map[string]any{"name": "test", "version": "1"}, "capabilities": map[string]any{}}
	over := func(serve func(in io.ReadCloser, out io.WriteCloser)) *lineClient {
		toServer, fromClient := io.Pipe()
		toClient, fromServer := io.Pipe()
		go serve(toServer, fromServer)
		t.Cleanup(func() { fromClient.Close(); toClient.Close() })
		return &lineClient{t: t, to: fromClient, from: bufio.NewReader(toClient)}
	}
	pins := Pins{filepath.Join(t.TempDir(), "servers.json")}
	for _, name := range []string{"red", "blue"} {
		server := notesServer(name)
		behind[name] = server
		at := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
		addresses = append(addresses, at)
		direct[name] = over(func(in io.ReadCloser, out io.WriteCloser) {
			_ = notesServer(name).Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
		})
		if err := tools.AddServer(Server{Name: name, MCP: agentfile.MCP{URL: at.URL}}, pins); err != nil {
			t.Fatal(err)
		}
	}
	gateway := over(func(in io.ReadCloser, out io.WriteCloser) {
		_ = Service{Tools: tools}.Serve(ctx, in, out)
	})
	clients := []*lineClient{direct["red"], direct["blue"], gateway}
	with := func(params map[string]any) map[string]any { return params }
	if version < "2026" {
		for _, c := range clients {
			capabilities := c.ask("initialize", greeting)["capabilities"].(map[string]any)
			if capabilities["resources"] == nil || capabilities["prompts"] == nil {
				t.Errorf("the capabilities are %v", capabilities)
			}
			if r, _ := capabilities["resources"].(map[string]any); c == gateway && r["subscribe"] != nil {
				t.Errorf("the gateway advertises subscriptions")
			}
			fmt.Fprintln(c.to, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		}
	} else {
		with = func(params map[string]any) map[string]any {
			params["_meta"] = map[string]any{"io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientInfo": greeting["clientInfo"], "io.modelcontextprotocol/clientCapabilities": map[string]any{}}
			return params
		}
	}

	// The lists have the items of both servers.
	for method, member := range map[string]string{"resources/list": "resources", "resources/templates/list": "resourceTemplates", "prompts/list": "prompts"} {
		var want []any
		for _, name := range []string{"red", "blue"} {
			cursor := ""
			for {
				page := direct[name].ask(method, with(map[string]any{"cursor": cursor}))
				for _, item := range page[member].([]any) {
					if method == "prompts/list" {
						one := item.(map[string]any)
						one["name"] = name + "_" + one["name"].(string)
					}
					want = append(want, item)
				}
				if cursor, _ = page["nextCursor"].(string); cursor == "" {
					break
				}
			}
		}
		if got := gateway.ask(method, with(map[string]any{})); !reflect.DeepEqual(got[member], want) {
			t.Errorf("%s: got %v, want %v", method, got, want)
		}
	}

	// Each answer is that of the server that has it, and is recorded.
	runs := map[string]string{}
	for _, c := range []struct{ name, method, uri string }{
		{"red", "resources/read", "red://note/2"}, {"blue", "resources/read", "blue://note/2"}, {"blue", "resources/read", "linked://blue"},
		{"blue", "resources/read", "blue://day/1%2F2"}, {"red", "prompts/get", ""}, {"blue", "prompts/get", ""}, {"red", "resources/read", "red://day/none"},
	} {
		params := map[string]any{"uri": c.uri}
		if c.method == "prompts/get" {
			params = map[string]any{"name": "greet_all", "arguments": map[string]any{"who": "<Ada> \u2028"}}
		}
		want := direct[c.name].ask(c.method, with(params))
		if c.uri == "" {
			params["name"] = c.name + "_greet_all"
		}
		got := gateway.ask(c.method, with(params))
		run := withoutOurs(got)
		if scope := got["cacheScope"]; scope == "private" {
			want["cacheScope"] = scope
		}
		if meta, ok := got["_meta"].(map[string]any); ok { // the SDK says in it which server it is
			delete(meta, "io.modelcontextprotocol/serverInfo")
		}
		if meta, ok := want["_meta"].(map[string]any); ok {
			delete(meta, "io.modelcontextprotocol/serverInfo")
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v: got %v, want %v", c, got, want)
		}
		if want["error"] == nil {
			runs[run] = c.name + "_" + strings.ReplaceAll(c.method, "/", "_")
		}
	}
	if got := gateway.ask("resources/read", with(map[string]any{"uri": "no://where"})); got["error"] == nil {
		t.Errorf("what no server has is %v", got)
	}
	if got := gateway.ask("prompts/get", with(map[string]any{"name": "greet_all"})); !strings.Contains(fmt.Sprint(got["error"]), "no connected server has greet_all") {
		t.Errorf("a prompt of no server is %v", got)
	}
	for method, params := range map[string]map[string]any{
		"resources/read": {"uri": "blue://note/3"}, "prompts/get": {"name": "blue_greet_all", "arguments": map[string]any{"who": strings.Repeat("x", 21)}},
	} {
		if got := fmt.Sprint(gateway.ask(method, with(params))["error"]); !strings.Contains(got, "blue_"+strings.ReplaceAll(method, "/", "_")) || !strings.Contains(got, "starling/run_id") {
			t.Errorf("the policy denies %s: %v", method, got)
		}
	}
	for _, item := range gateway.ask("tools/list", with(map[string]any{}))["tools"].([]any) {
		if name := item.(map[string]any)["name"]; name != listServers {
			t.Errorf("there is a tool %v", name)
		}
	}

	// A session is told of a resource and a prompt that a server adds.
	if version < "2026" {
		behind["red"].AddResource(&mcp.Resource{URI: "red://new", Name: "new"}, nil)
		for !slices.Contains(gateway.heard, "notifications/resources/list_changed") || !slices.Contains(gateway.heard, "notifications/prompts/list_changed") {
			gateway.ask("ping", nil)
		}
		if got := fmt.Sprint(gateway.ask("resources/list", nil)); !strings.Contains(got, "red://new") {
			t.Errorf("the list has no new resource: %s", got)
		}
	}

	for _, at := range addresses {
		at.CloseClientConnections()
		at.Close()
	}
	for id, name := range runs {
		what := []string{}
		for _, ev := range starling.Must(starling.Must(db.Log(ctx)).Read(ctx, id)) {
			if effect, err := ev.AsSideEffectRecorded(); err == nil {
				what = append(what, effect.Name)
			}
			if call, err := ev.AsToolCallScheduled(); err == nil {
				what = append(what, call.ToolName)
			}
		}
		effect := "mcp/" + strings.ReplaceAll(name[strings.Index(name, "_")+1:], "_", "/")
		if got := strings.Join(what, " "); got != name+" policy "+effect {
			t.Errorf("run %q has recorded %s, want %s and %s", id, got, name, effect)
		}
		v, err := db.Replay(ctx, id)
		if err != nil || !v.Identical() {
			t.Errorf("replay of %s (%s): %v, %v", id, name, v, err)
		}
	}
}

// TestMCPGatewayWithAServerThatListsNothing keeps no list of the others waiting for longer than its bound, and
// the gateway ends although it still waits.
func TestMCPGatewayWithAServerThatListsNothing(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "runs.db"), starling.Options{}))
	t.Cleanup(func() { db.Close() })
	tools := NewTools(db, starling.ToolOptions{}, func(text string) { t.Log(text) })
	t.Cleanup(tools.Close)
	asked := make(chan struct{}, 8)
	pins := Pins{filepath.Join(t.TempDir(), "servers.json")}
	for _, name := range []string{"deaf", "red"} {
		server := notesServer(name)
		server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
				if name == "deaf" && method == "resources/list" {
					asked <- struct{}{}
					<-t.Context().Done()
				}
				return next(ctx, method, r)
			}
		})
		at := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
		t.Cleanup(func() { at.CloseClientConnections(); at.Close() })
		if err := tools.AddServer(Server{Name: name, MCP: agentfile.MCP{URL: at.URL}}, pins); err != nil {
			t.Fatal(err)
		}
	}
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	t.Cleanup(func() { toClient.Close() })
	ended := make(chan error, 1)
	go func() { ended <- Service{Tools: tools}.Serve(ctx, toServer, fromServer) }()
	client := &lineClient{t: t, to: fromClient, from: bufio.NewReader(toClient)}
	client.ask("initialize", map[string]any{"protocolVersion": "2025-11-25", "clientInfo": map[string]any{"name": "test", "version": "1"}, "capabilities": map[string]any{}})
	tools.sessions[0].servers[0].listTime = time.Millisecond
	if got := client.ask("resources/list", map[string]any{})["resources"]; len(got.([]any)) != 6 {
		t.Errorf("of the other server there is %v", got)
	}
	select {
	case <-asked:
	default: // the time may have been over before the request was sent
	}

	tools.sessions[0].servers[0].listTime = time.Hour
	fmt.Fprintln(fromClient, `{"jsonrpc":"2.0","id":"hangs","method":"resources/list","params":{}}`)
	<-asked
	toClient.Close()
	end()
	if err := <-ended; err != context.Canceled {
		t.Error(err)
	}
	tools.Close()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
