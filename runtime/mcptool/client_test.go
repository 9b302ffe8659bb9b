package mcptool_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/runtime/tool"
)

const nameOfAllTools = "picture refuse say weather"

func names(tools []tool.Tool) string {
	var all []string
	for _, one := range tools {
		all = append(all, one.Name())
	}
	return strings.Join(all, " ")
}

// TestAnswersAreRecordedAndReplayed records runs with servers behind every
// transport, and replays them when the servers are gone.
func TestAnswersAreRecordedAndReplayed(t *testing.T) {
	transports := map[string]func(*testing.T, mcptool.Options) *mcptool.Client{
		"in memory": func(t *testing.T, o mcptool.Options) *mcptool.Client { return inMemory(t, newServer(), o) },
		"stdio":     overStdio,
		"http":      func(t *testing.T, o mcptool.Options) *mcptool.Client { return overHTTP(t, nil, o) },
		"http, json": func(t *testing.T, o mcptool.Options) *mcptool.Client {
			return overHTTP(t, &mcp.StreamableHTTPOptions{JSONResponse: true}, o)
		},
		"http, stateless": func(t *testing.T, o mcptool.Options) *mcptool.Client {
			return overHTTP(t, &mcp.StreamableHTTPOptions{Stateless: true}, o)
		},
	}
	cases := []struct{ tool, input, want, wantErr string }{
		{"x_weather", `{"city":"Oslo"}`, `{"content":[],"structuredContent":{"degrees":4}}`, ""},
		{"x_say", `{"city":"Oslo"}`, `{"content":[{"text":"It is nice in","type":"text"},{"text":"Oslo","type":"text"}]}`, ""},
		{"x_picture", `null`, `{"content":[{"data":"cG5n","mimeType":"image/png","type":"image"}]}`, ""},
		{"x_refuse", `{"city":"Olso"}`, "", `no city is called "Olso"`},
	}
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			client := connect(t, mcptool.Options{Prefix: "x_"})
			offline := offline(t, client, mcptool.Options{Prefix: "x_"})
			var runs []run
			for _, c := range cases {
				r := record(t.Context(), t, find(t, client, c.tool), c.input)
				if got := string(r.result.Output); got != c.want || r.result.Error != c.wantErr {
					t.Errorf("%s: got %s and error %q", c.tool, got, r.result.Error)
				}
				if got, want := strings.Join(r.effects(t), " "), "mcp/"+strings.TrimPrefix(c.tool, "x_"); got != want {
					t.Errorf("%s: recorded the effects %s, want %s", c.tool, got, want)
				}
				runs = append(runs, r)
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			for i, c := range cases {
				runs[i].replays(t, find(t, client, c.tool))
				runs[i].replays(t, named(t, offline, c.tool))
			}
		})
	}
}

// offline makes the client's tools again from what a run records of them.
func offline(t *testing.T, c *mcptool.Client, o mcptool.Options) []tool.Tool {
	t.Helper()
	var definitions []mcptool.Definition
	for _, one := range c.Tools() {
		name := strings.TrimPrefix(tool.SourceOf(one), mcptool.SourcePrefix)
		definitions = append(definitions, mcptool.Definition{Name: name, Description: one.Description(), Schema: one.Schema()})
	}
	tools, err := mcptool.Offline(definitions, o)
	if err != nil {
		t.Fatal(err)
	}
	return tools
}

func TestAToolErrorIsTyped(t *testing.T) {
	client := inMemory(t, newServer(), mcptool.Options{})
	refuse := find(t, client, "refuse")
	r := record(t.Context(), t, refuse, `{"city":"Olso"}`)
	var failed *mcptool.ToolError
	if !errors.As(r.result.Err, &failed) {
		t.Fatalf("got %v", r.result.Err)
	}
	if want := `{"content":[{"text":"no city is called \"Olso\"","type":"text"}],"isError":true}`; failed.Tool != "refuse" || string(failed.Result) != want {
		t.Errorf("got %+v", failed)
	}
	r.replays(t, refuse)
	if got := (&mcptool.ToolError{Tool: "t", Result: json.RawMessage(`{"content":[]}`)}).Error(); got != `{"content":[]}` {
		t.Errorf("without a text: %s", got)
	}
}

func TestMCPPresentedTools(t *testing.T) {
	for _, c := range []struct {
		name          string
		options       mcptool.Options
		want, wantErr string
	}{
		{"all", mcptool.Options{}, nameOfAllTools, ""},
		{"two", mcptool.Options{Include: []string{"say", "weather"}}, "say weather", ""},
		{"none", mcptool.Options{Include: []string{}}, "", ""},
		{"all but two", mcptool.Options{Exclude: []string{"say", "weather", "other"}}, "picture refuse", ""},
		{"both", mcptool.Options{Exclude: []string{"say"}, Include: []string{"say", "weather"}}, "weather", ""},
		{"with a prefix", mcptool.Options{Include: []string{"say"}, Prefix: "w."}, "w.say", ""},
		{"one that there is not", mcptool.Options{Include: []string{"sya"}}, "", `mcptool: list tools: the server does not have the included tool "sya"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			near, far := mcp.NewInMemoryTransports()
			if _, err := newServer().Connect(t.Context(), far, nil); err != nil {
				t.Fatal(err)
			}
			client, err := mcptool.New(t.Context(), near, c.options)
			if c.wantErr != "" {
				if err == nil || err.Error() != c.wantErr {
					t.Errorf("got %v", err)
				}
				return
			}
			if got := names(open(t)(client, err).Tools()); got != c.want {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestWhatAToolSaysOfItself(t *testing.T) {
	one := find(t, inMemory(t, newServer(), mcptool.Options{}), "weather")
	const schema = `{"additionalProperties":false,"properties":{"city":{"type":"string"}},"required":["city"],"type":"object"}`
	if one.Description() != "The weather of a city." || string(one.Schema()) != schema {
		t.Errorf("got %q, %s", one.Description(), one.Schema())
	}
}

func TestToolIsGone(t *testing.T) {
	s := newServer()
	one := find(t, inMemory(t, s, mcptool.Options{}), "say")
	s.RemoveTools("say")
	r := record(t.Context(), t, one, `{"city":"Oslo"}`)
	if want := `unknown tool "say"`; r.result.Error != want {
		t.Errorf("got %q", r.result.Error)
	}
	r.replays(t, one)
}

func TestServerToolTextResult(t *testing.T) {
	client := inMemory(t, newServer(), mcptool.Options{TextOnly: true})
	for _, c := range []struct{ tool, input, want, wantErr string }{
		{"say", `{"city":"Oslo"}`, `"It is nice in\nOslo"`, ""},
		{"weather", `{"city":"Oslo"}`, `"{\"degrees\":4}"`, ""},
		{"picture", `{}`, "", `the result has content of type "image", and only text is wanted`},
		{"refuse", `{"city":"Oslo"}`, "", `no city is called "Oslo"`},
	} {
		r := record(t.Context(), t, find(t, client, c.tool), c.input)
		if got := string(r.result.Output); got != c.want || r.result.Error != c.wantErr {
			t.Errorf("%s: got %s and error %q", c.tool, got, r.result.Error)
		}
	}
}

func TestMCPClientInfo(t *testing.T) {
	for want, o := range map[string]mcptool.Options{"starling 1": {}, "mine 2": {ClientName: "mine", ClientVersion: "2"}} {
		var got string
		var l liar = func(string, json.RawMessage) (string, error) { return oneTool, nil }
		open(t)(mcptool.New(t.Context(), spying{l.transport(t), &got}, o))
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransientFailuresAreClassified(t *testing.T) {
	var gone atomic.Bool
	lost := errors.New("the network is gone")
	client := overHTTP(t, nil, mcptool.Options{
		HTTP: roundTripper(func(r *http.Request) (*http.Response, error) {
			if gone.Load() {
				return nil, lost
			}
			return http.DefaultTransport.RoundTrip(r)
		}),
		Transient: func(err error) bool { return strings.Contains(err.Error(), lost.Error()) },
	})
	if r := record(t.Context(), t, find(t, client, "refuse"), `{"city":"Oslo"}`); errors.Is(r.result.Err, tool.ErrTransient) {
		t.Error("what a server answers does not pass")
	}
	gone.Store(true)
	r := record(t.Context(), t, find(t, client, "say"), `{"city":"Oslo"}`)
	if !errors.Is(r.result.Err, tool.ErrTransient) {
		t.Errorf("got %v", r.result.Err)
	}
	r.replays(t, find(t, client, "say"))
}

func TestOfflineToolsOnlyReplay(t *testing.T) {
	tools := offline(t, inMemory(t, newServer(), mcptool.Options{}), mcptool.Options{})
	r := record(t.Context(), t, named(t, tools, "say"), `{"city":"Oslo"}`)
	if want := `there is no server: the client is for replaying runs`; r.result.Error != want {
		t.Errorf("got %q", r.result.Error)
	}
	if _, err := mcptool.Offline([]mcptool.Definition{{Name: "t", Schema: json.RawMessage(`{`)}}, mcptool.Options{}); err == nil {
		t.Error("a definition without a schema was presented")
	}
}

// TestAChangeOfResourcesListsNoTools counts the lists of tools that the client asks for.
func TestAChangeOfResourcesListsNoTools(t *testing.T) {
	s := newServer()
	lists := make(chan string, 8)
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method == "tools/list" {
				lists <- method
			}
			return next(ctx, method, r)
		}
	})
	s.AddResource(&mcp.Resource{URI: "a://a", Name: "a"}, nil)
	changed := make(chan struct{}, 8)
	inMemory(t, s, mcptool.Options{Changed: func() { changed <- struct{}{} }})
	<-lists
	s.AddResource(&mcp.Resource{URI: "b://b", Name: "b"}, nil)
	<-changed
	if len(lists) > 0 {
		t.Error("the tools are listed again")
	}
	mcp.AddTool(s, &mcp.Tool{Name: "more"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, nil
	})
	<-changed
	if len(lists) != 1 {
		t.Errorf("the tools are listed %d times for their change", len(lists))
	}
}
