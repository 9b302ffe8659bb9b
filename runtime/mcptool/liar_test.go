package mcptool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

func TestListsThatAreRefused(t *testing.T) {
	many := func(n int, size int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"name":"t%d","description":"%s","inputSchema":{"type":"object"}}`, i, strings.Repeat("x", size)))
		}
		return `{"tools":[` + strings.Join(all, ",") + `]}`
	}
	for _, c := range []struct{ name, list, want string }{
		{"a list that is a text", `{"tools":"many"}`, `list tools: `},
		{"too many tools", many(1001, 0), "the server has more than 1000 tools"},
		{"too much text", many(5, 1<<20), "or 4194304 bytes of them"},
		{"the same page for ever", `{"tools":[],"nextCursor":"1"}`, "returns the same page twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := mcptool.New(t.Context(), listing(c.list, "").transport(t), mcptool.Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// A tool that cannot be presented does not take the others with it, and a member that is not
// as the protocol has it does not take the tool.
func TestMCPInvalidToolIsLeftOutAlone(t *testing.T) {
	for _, c := range []struct{ name, tool, want string }{
		{"the same name twice", `{"name":"t","description":"second","inputSchema":{"type":"object"}}`, "the server lists it twice; the first is used"},
		{"no name", `{"name":"","inputSchema":{"type":"object"}}`, "its name is empty"},
		{"a long name", `{"name":"` + strings.Repeat("n", 1025) + `","inputSchema":{"type":"object"}}`, "its name is not UTF-8 of at most 1024 bytes"},
		{"a name that is a number", `{"name":7,"inputSchema":{"type":"object"}}`, "its name is empty"},
		{"no object", `[1]`, "its name is empty"},
		{"no schema", `{"name":"u"}`, ""},
		{"a schema of another type", `{"name":"u","inputSchema":{"type":"string"}}`, ""},
		{"a schema that is a list", `{"name":"u","inputSchema":[1]}`, ""},
		{"a hint that is a text", `{"name":"u","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"yes","idempotentHint":true}}`, ""},
		{"a title that is a number", `{"name":"u","title":7,"inputSchema":{"type":"object"},"annotations":{"title":7}}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := `{"tools":[{"name":"t","inputSchema":{"type":"object"}},` + c.tool + `]}`
			client := open(t)(mcptool.New(t.Context(), listing(list, "").transport(t), mcptool.Options{}))
			want, refused := "t", client.Refused()
			if c.want == "" {
				want = "t u"
			} else if len(refused) != 1 || refused[0].Why.Error() != c.want {
				t.Errorf("refused are %v", refused)
			}
			if got := names(client.Tools()); got != want {
				t.Errorf("presented are %s", got)
			}
		})
	}
}

func TestPages(t *testing.T) {
	pages := func(last int) liar {
		return func(_ string, params json.RawMessage) (string, error) {
			var at struct{ Cursor string }
			if err := json.Unmarshal(params, &at); err != nil {
				return "", err
			}
			page := 0
			fmt.Sscan(at.Cursor, &page)
			list := fmt.Sprintf(`{"tools":[{"name":"t%d","inputSchema":{"type":"object"}}]`, page)
			if page < last {
				list += fmt.Sprintf(`,"nextCursor":"%d"`, page+1)
			}
			return list + "}", nil
		}
	}
	client := open(t)(mcptool.New(t.Context(), pages(2).transport(t), mcptool.Options{}))
	if tools := client.Tools(); names(tools) != "t0 t1 t2" {
		t.Errorf("got %s", names(tools))
	}
	if _, err := mcptool.New(t.Context(), pages(1<<20).transport(t), mcptool.Options{}); err == nil || !strings.Contains(err.Error(), "more than 100 pages") {
		t.Errorf("endless pages: %v", err)
	}
}

func TestAnExcludedToolMayHaveAnySchema(t *testing.T) {
	list := `{"tools":[{"name":"bad","inputSchema":{"type":"string"}},{"name":"t","inputSchema":{"type":"object"}}]}`
	client := open(t)(mcptool.New(t.Context(), listing(list, "").transport(t), mcptool.Options{Exclude: []string{"bad"}}))
	if tools := client.Tools(); names(tools) != "t" {
		t.Errorf("got %s", names(tools))
	}
}

func TestResults(t *testing.T) {
	for _, c := range []struct{ name, result, want, wantErr string }{
		{"no blocks", `{"content":[]}`, `{"content":[]}`, ""},
		{"nothing", `{}`, `{"content":[]}`, ""},
		{"null", `null`, `{"content":[]}`, ""},
		{"a text that is JSON", `{"content":[{"type":"text","text":"[1]"}]}`, `{"content":[{"text":"[1]","type":"text"}]}`, ""},
		{"a link", `{"content":[{"type":"resource_link","uri":"file:///a","name":"a"}]}`, `{"content":[{"name":"a","type":"resource_link","uri":"file:///a"}]}`, ""},
		{"structured", `{"content":[{"type":"text","text":"seven"}],"structuredContent":{"n":7}}`, `{"content":[{"text":"seven","type":"text"}],"structuredContent":{"n":7}}`, ""},
		{"structured, and no object", `{"content":[],"structuredContent":[1,"a"]}`, `{"content":[],"structuredContent":[1,"a"]}`, ""},
		{"exact numbers", `{"structuredContent":{"n":9007199254740993}}`, `{"content":[],"structuredContent":{"n":9007199254740993}}`, ""},
		{"a member of a block that is unknown", `{"content":[{"type":"text","text":"a","annotations":{"priority":0.9},"x":1}]}`, `{"content":[{"annotations":{"priority":0.9},"text":"a","type":"text","x":1}]}`, ""},
		{"what is for the client", `{"content":[],"_meta":{"cost":3},"resultType":"complete"}`, `{"content":[]}`, ""},
		{"a failure that is structured too", `{"isError":true,"content":[{"type":"text","text":"no"}],"structuredContent":{"n":1}}`, "", `no`},
		{"a number beyond all floats", `{"structuredContent":1e400}`, `{"content":[{"text":"{\"structuredContent\":1e400}","type":"text"}]}`, ""},
		{"a result that is a text", `"done"`, "", `which is not a result: it must be an object`},
		{"members that mean something elsewhere", `{"content":[],"tools":"x","resultType":5}`, `{"content":[],"tools":"x"}`, ""},
		{"a block of an unknown type", `{"content":[{"type":"smell"}]}`, `{"content":[{"type":"smell"}]}`, ""},
		{"a block that is null", `{"content":[null]}`, `{"content":[null]}`, ""},
		{"a question", `{"resultType":"input_required","inputRequests":{}}`, "", "the server asks for input more than 32 times"},
		{"more than is allowed", `{"content":[{"type":"text","text":"` + strings.Repeat("x", 200) + `"}]}`, "", `tool: limit reached: the result has 239 bytes, at most 200 are allowed`},
		{"half of a surrogate pair", `{"structuredContent":{"a":"\ud800"}}`, `{"content":[{"text":"{\"structuredContent\":{\"a\":\"\\ud800\"}}","type":"text"}]}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := open(t)(mcptool.New(t.Context(), listing(oneTool, c.result).transport(t), mcptool.Options{MaxOutputBytes: 200}))
			one := find(t, client, "t")
			r := record(t.Context(), t, one, `{}`)
			if got := string(r.result.Output); got != c.want || !strings.Contains(r.result.Error, c.wantErr) || (r.result.Error == "") != (c.wantErr == "") {
				t.Errorf("got %s and error %q", got, r.result.Error)
			}
			r.replays(t, one)
		})
	}
}

func TestStructuredContentIsNoText(t *testing.T) {
	result := `{"content":[],"structuredContent":{"n":1}}`
	client := open(t)(mcptool.New(t.Context(), listing(oneTool, result).transport(t), mcptool.Options{TextOnly: true}))
	r := record(t.Context(), t, find(t, client, "t"), `{}`)
	if want := `the result has structured content and no text, and only text is wanted`; r.result.Error != want {
		t.Errorf("got %q", r.result.Error)
	}
}

// TestArguments sends what a model may come up with.
func TestArguments(t *testing.T) {
	var got string
	var l liar = func(method string, params json.RawMessage) (string, error) {
		if method == "tools/list" {
			return oneTool, nil
		}
		got = string(params)
		return `{}`, nil
	}
	one := find(t, open(t)(mcptool.New(t.Context(), l.transport(t), mcptool.Options{})), "t")
	for input, want := range map[string]string{
		`{"n":9007199254740993}`: `{"arguments":{"n":9007199254740993},"name":"t"}`,
		`null`:                   `{"arguments":{},"name":"t"}`,
		`[1]`:                    "",
		`"text"`:                 "",
	} {
		got = ""
		r := record(t.Context(), t, one, input)
		if failed := r.result.TerminalKind == event.KindRunFailed; got != want || failed != (want == "") {
			t.Errorf("%s: the server got %s, the run ended with %q", input, got, r.result.Error)
		}
		r.replays(t, one)
	}
}

func TestLimitIsTold(t *testing.T) {
	large := open(t)(mcptool.New(t.Context(), listing(oneTool, `{"structuredContent":"long"}`).transport(t), mcptool.Options{MaxOutputBytes: 5}))
	if r := record(t.Context(), t, find(t, large, "t"), `{}`); !errors.Is(r.result.Err, tool.ErrLimit) || r.result.ErrorType != event.ErrorLimit {
		t.Errorf("got %v of type %s", r.result.Err, r.result.ErrorType)
	}
}

// mute answers everything but calls of tools, which it reports and never
// answers.
func mute(called chan<- struct{}) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "mute"}, nil)
	s.AddTool(&mcp.Tool{Name: "t", InputSchema: map[string]any{"type": "object"}},
		func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			close(called)
			<-ctx.Done()
			return nil, ctx.Err()
		})
	return s
}

func TestCallsThatAreNeverAnswered(t *testing.T) {
	t.Run("the time for a call", func(t *testing.T) {
		one := find(t, inMemory(t, mute(make(chan struct{})), mcptool.Options{Timeout: time.Millisecond}), "t")
		r := record(t.Context(), t, one, `{}`)
		if want := `no answer within 1ms: context deadline exceeded`; r.result.Error != want || r.result.ErrorType != event.ErrorTool {
			t.Errorf("got %q of type %s", r.result.Error, r.result.ErrorType)
		}
		r.replays(t, one)
	})
	t.Run("the caller", func(t *testing.T) {
		called := make(chan struct{})
		one := find(t, inMemory(t, mute(called), mcptool.Options{}), "t")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-called; cancel() }()
		r := record(ctx, t, one, `{}`)
		if r.result.TerminalKind != event.KindRunCancelled {
			t.Errorf("got %s: %s", r.result.TerminalKind, r.result.Error)
		}
		r.replays(t, one)
	})
	t.Run("the client is closed", func(t *testing.T) {
		called := make(chan struct{})
		client := inMemory(t, mute(called), mcptool.Options{})
		one := find(t, client, "t")
		go func() { <-called; client.Close() }()
		r := record(t.Context(), t, one, `{}`)
		if want := `the client is closed`; r.result.Error != want {
			t.Errorf("got %q", r.result.Error)
		}
		if again := record(t.Context(), t, one, `{}`); again.result.Error != r.result.Error {
			t.Errorf("afterwards: %q", again.result.Error)
		}
		r.replays(t, one)
	})
}

// TestMCPServerThatStopsReading lets the second call wait for being sent.
func TestMCPServerThatStopsReading(t *testing.T) {
	var l liar = func(method string, _ json.RawMessage) (string, error) {
		if method == "tools/list" {
			return oneTool, nil
		}
		<-t.Context().Done()
		return "", t.Context().Err()
	}
	client := open(t)(mcptool.New(t.Context(), l.transport(t), mcptool.Options{Timeout: time.Millisecond}))
	for range 2 {
		if r := record(t.Context(), t, find(t, client, "t"), `{}`); !strings.Contains(r.result.Error, "no answer within 1ms") {
			t.Errorf("got %q", r.result.Error)
		}
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}

// TestMCPServerThatDoesNotRead cannot even be greeted.
func TestMCPServerThatDoesNotRead(t *testing.T) {
	near, far := net.Pipe()
	t.Cleanup(func() { _ = far.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := mcptool.New(ctx, &mcp.IOTransport{Reader: near, Writer: near}, mcptool.Options{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestMCPServerWithAForeignGreeting says what is wrong in terms of the protocol.
func TestMCPServerWithAForeignGreeting(t *testing.T) {
	for _, c := range []struct{ greeting, want string }{
		{`{"protocolVersion":"2025-06-18","capabilities":{"tools":true},"serverInfo":{"name":"n","version":"1"}}`, `capabilities.tools must be an object, and is a bool`},
		{`{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":"me"}`, `serverInfo must be an object, and is a string`},
		{`{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":["n"],"version":"1"}}`, `serverInfo.name must be a string, and is an array`},
		{`{"protocolVersion":7,"capabilities":{},"serverInfo":{"name":"n","version":"1"}}`, `protocolVersion must be a string, and is a number`},
		{`[]`, `the result must be an object, and is an array`},
	} {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		go func() {
			for in := json.NewDecoder(far); ; {
				var m struct {
					ID     json.RawMessage
					Method string
				}
				answer := `"result":` + c.greeting
				if in.Decode(&m) != nil {
					return
				} else if m.Method != "initialize" {
					answer = `"error":{"code":-32601,"message":"no such method"}`
				}
				fmt.Fprintf(far, `{"jsonrpc":"2.0","id":%s,%s}`+"\n", m.ID, answer)
			}
		}()
		_, err := mcptool.New(t.Context(), &mcp.IOTransport{Reader: near, Writer: near}, mcptool.Options{})
		if want := `mcptool: connect: the server's answer to initialize is not of the protocol: ` + c.want; err == nil || err.Error() != want {
			t.Errorf("%s\ngot  %v\nwant %s", c.greeting, err, want)
		}
	}
}

func TestServersThatDie(t *testing.T) {
	t.Run("a process", func(t *testing.T) {
		program := filepath.Join(t.TempDir(), "server")
		if err := os.Symlink(os.Args[0], program); err != nil {
			t.Skip(err)
		}
		cmd := server("fickle")
		cmd.Path = program
		client := open(t)(mcptool.NewCommand(t.Context(), cmd, mcptool.Options{}))
		if err := os.Remove(program); err != nil {
			t.Fatal(err)
		}
		diesWith(t, find(t, client, "die"))
		diesWith(t, find(t, client, "say")) // there is nothing to start
	})
	t.Run("http", func(t *testing.T) {
		s := newServer()
		h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
		client := open(t)(mcptool.NewHTTP(t.Context(), h.URL, mcptool.Options{}))
		h.CloseClientConnections()
		h.Close()
		diesWith(t, find(t, client, "say"))
	})
}

// A server that has ended is started again for the next call, and a tool that it describes
// differently then is not called.
func TestMCPServerIsStartedAgain(t *testing.T) {
	cmd := server("fickle")
	cmd.Env = append(cmd.Env, onceVariable+"="+filepath.Join(t.TempDir(), "once"))
	client := open(t)(mcptool.NewCommand(t.Context(), cmd, mcptool.Options{}))
	roll := find(t, client, "roll")
	if r := record(t.Context(), t, roll, `{}`); r.result.Err != nil {
		t.Fatal(r.result.Err)
	}
	diesWith(t, find(t, client, "die"))
	r := record(t.Context(), t, find(t, client, "say"), `{"city":"Oslo"}`)
	if r.result.Err != nil {
		t.Errorf("after the server has ended: %v", r.result.Err)
	}
	r.replays(t, find(t, client, "say"))
	r = record(t.Context(), t, roll, `{}`)
	if r.result.Err == nil || !strings.Contains(r.result.Error, "describes the tool differently now") {
		t.Errorf("a tool with another description: %v", r.result.Err)
	}
	r.replays(t, roll)
}

// A server over HTTP that was started again knows no session. The call that finds out fails,
// and the next one has a session of its own.
func TestMCPSessionThatIsGone(t *testing.T) {
	var now atomic.Pointer[mcp.StreamableHTTPHandler]
	start := func() {
		s := newServer()
		now.Store(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	}
	start()
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { now.Load().ServeHTTP(w, r) }))
	t.Cleanup(at.Close)
	client := open(t)(mcptool.NewHTTP(t.Context(), at.URL, mcptool.Options{}))
	start()
	diesWith(t, find(t, client, "say"))
	if r := record(t.Context(), t, find(t, client, "say"), `{"city":"Oslo"}`); r.result.Err != nil {
		t.Error(r.result.Err)
	}
}

// diesWith makes a call that fails, and replays it.
func diesWith(t *testing.T, one tool.Tool) {
	t.Helper()
	r := record(t.Context(), t, one, `{"city":"Oslo"}`)
	var failed *step.EffectError
	if !errors.As(r.result.Err, &failed) || strings.HasPrefix(r.result.Error, "mcptool: tool") {
		t.Errorf("got %v", r.result.Err)
	}
	r.replays(t, one)
}

func TestServersThatCannotBeConnectedTo(t *testing.T) {
	floods := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for piece := []byte(strings.Repeat("[", 1<<20)); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	defer floods.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	defer page.Close()
	ctx := t.Context()
	command := func(kind string) func() (*mcptool.Client, error) {
		return func() (*mcptool.Client, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second) // a line without an end is waited for
			defer cancel()
			return mcptool.NewCommand(ctx, server(kind), mcptool.Options{})
		}
	}
	at := func(url string) func() (*mcptool.Client, error) {
		return func() (*mcptool.Client, error) { return mcptool.NewHTTP(ctx, url, mcptool.Options{}) }
	}
	for _, c := range []struct {
		name    string
		connect func() (*mcptool.Client, error)
		want    string
	}{
		{"a process that floods", command("flood"), "mcptool: connect: "},
		{"a process that writes something else", command("garbage"), "mcptool: connect: "},
		{"no program", func() (*mcptool.Client, error) {
			return mcptool.NewCommand(ctx, exec.Command("/nonexistent/server"), mcptool.Options{})
		}, "no such file"},
		{"no URL", at("127.0.0.1:80"), `mcptool: "127.0.0.1:80" is not an http or https URL`},
		{"another scheme", at("ftp://127.0.0.1/"), "is not an http or https URL"},
		{"a body without end", at(floods.URL), "mcptool: connect: "},
		{"a page", at(page.URL), "mcptool: connect: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := c.connect(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// late is a transport that connects when it is too late.
type late struct {
	mcp.Transport
	begun  chan<- struct{}
	wait   <-chan struct{}
	closed chan<- struct{}
}

func (l late) Connect(ctx context.Context) (mcp.Connection, error) {
	close(l.begun)
	<-l.wait
	conn, err := l.Transport.Connect(ctx)
	return closeTelling{conn, l.closed}, err
}

type closeTelling struct {
	mcp.Connection
	closed chan<- struct{}
}

func (c closeTelling) Close() error {
	close(c.closed)
	return c.Connection.Close()
}

// TestMCPConnectionThatComesTooLate is closed although nobody waits for it.
func TestMCPConnectionThatComesTooLate(t *testing.T) {
	near, _ := mcp.NewInMemoryTransports()
	begun, wait, closed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if _, err := mcptool.New(ctx, late{near, begun, wait, closed}, mcptool.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(wait)
	<-closed
}
