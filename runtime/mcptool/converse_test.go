package mcptool_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/runtime/mcptool"
)

// rawServer is a server that sees messages as text. Answer returns lines to write, one message each;
// $ID in them is the id of the message.
type rawServer struct {
	answer func(method, line string) []string
}

func (s rawServer) transport(t *testing.T) mcp.Transport {
	t.Helper()
	theirs, ours := io.Pipe()
	in, out := io.Pipe()
	go func() {
		lines := bufio.NewScanner(theirs)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var m struct {
				ID     json.RawMessage
				Method string
			}
			_ = json.Unmarshal(lines.Bytes(), &m)
			var answers []string
			switch m.Method {
			case "server/discover":
				answers = []string{`{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"no"}}`}
			case "tools/list":
				answers = []string{`{"jsonrpc":"2.0","id":$ID,"result":` + oneTool + `}`}
			default:
				answers = s.answer(m.Method, lines.Text())
			}
			for _, a := range answers {
				fmt.Fprintln(out, strings.ReplaceAll(a, "$ID", string(m.ID)))
			}
		}
	}()
	t.Cleanup(func() { ours.Close(); out.Close() })
	return &mcp.IOTransport{Reader: in, Writer: ours}
}

// greets is the answer to initialize.
const greets = `{"jsonrpc":"2.0","id":$ID,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}}`

// A question and its answer pass word for word, and are effects of the run, which replays without
// asking anybody.
func TestAQuestionPassesWordForWord(t *testing.T) {
	const (
		asks  = `{"message":"Pay?","requestedSchema":{"type":"object","properties":{"to":{"type":"integer","default":9007199254740993}}},"x":[1.0,null]}`
		given = `{"action":"accept","content":{"account":9007199254740993},"odd":1.50}`
	)
	for _, c := range []struct{ name, ask, answered string }{
		{"a request", `{"jsonrpc":"2.0","id":"q-1","method":"elicitation/create","params":` + asks + `}`, `"result":` + given},
		{"an answer that asks for input", `{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"input_required","requestState":"s","inputRequests":{"who":{"method":"elicitation/create","params":` + asks + `}}}}`,
			`"inputResponses":{"who":` + given + `}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var handshake, reply, call string
			s := rawServer{answer: func(method, line string) []string {
				switch {
				case method == "initialize":
					handshake = line
					return []string{greets}
				case strings.Contains(line, given):
					if reply = line; call == "" {
						call = "$ID"
					}
					return []string{`{"jsonrpc":"2.0","id":` + call + `,"result":{"content":[]}}`}
				case method == "tools/call":
					var m struct{ ID json.RawMessage }
					_ = json.Unmarshal([]byte(line), &m)
					if strings.Contains(c.ask, "q-1") {
						call = string(m.ID)
					}
					return []string{c.ask}
				}
				return nil
			}}
			asked := 0
			client := open(t)(mcptool.New(t.Context(), s.transport(t), mcptool.Options{Assistant: &mcptool.Assistant{
				Version: "2025-06-18", Capabilities: json.RawMessage(`{"elicitation":{"form":{}},"experimental":{"n":9007199254740993}}`), Info: json.RawMessage(`{"name":"claude-code","version":"2"}`),
			}}))
			one := find(t, client, "t")
			ctx := mcptool.For(t.Context(), &mcptool.Call{
				Meta: map[string]json.RawMessage{"n": json.RawMessage("9007199254740993")},
				Ask: func(_ context.Context, tool, method string, params json.RawMessage) (json.RawMessage, error) {
					asked++
					if string(params) != asks {
						t.Errorf("the question is %s", params)
					}
					return json.RawMessage(given), nil
				},
			})
			r := record(ctx, t, one, `{}`)
			for _, want := range []string{`"protocolVersion":"2025-06-18"`, `"capabilities":{"elicitation":{"form":{}},"experimental":{"n":9007199254740993}}`, `"clientInfo":{"name":"claude-code","version":"2"}`, `"io.github.starling-host/gateway":{"name":"starling"`} {
				if !strings.Contains(handshake, want) {
					t.Errorf("the handshake lacks %s: %s", want, handshake)
				}
			}
			if !strings.Contains(reply, c.answered) || r.result.Err != nil {
				t.Errorf("the server got %s; %v", reply, r.result.Err)
			}
			if got := r.effects(t); !slices.Equal(got, []string{"mcp/t", "mcp/elicitation/create", "mcp/t"}) {
				t.Errorf("the effects are %v", got)
			}
			r.replays(t, one)
			if asked != 1 {
				t.Errorf("asked %d times", asked)
			}
		})
	}
}

// An error of the client reaches the server as the client wrote it, and what no call is about goes to
// the assistant.
func TestAnErrorAsAnAnswer(t *testing.T) {
	var replies []string
	var call string
	s := rawServer{answer: func(method, line string) []string {
		switch method {
		case "initialize":
			return []string{greets}
		case "notifications/initialized":
			return []string{`{"jsonrpc":"2.0","id":"r","method":"roots/list"}`}
		case "tools/call":
			var m struct{ ID json.RawMessage }
			_ = json.Unmarshal([]byte(line), &m)
			call = string(m.ID)
			return []string{`{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"maxTokens":1}}`}
		}
		if replies = append(replies, line); strings.Contains(line, `"id":7`) {
			return []string{`{"jsonrpc":"2.0","id":` + call + `,"result":{"content":[]}}`}
		}
		return nil
	}}
	client := open(t)(mcptool.New(t.Context(), s.transport(t), mcptool.Options{Assistant: &mcptool.Assistant{
		Version: "2025-06-18",
		Ask: func(_ context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"roots":[{"uri":"file:///w"}],"n":9007199254740993}`), nil
		},
	}}))
	one := find(t, client, "t")
	r := record(mcptool.For(t.Context(), &mcptool.Call{Ask: func(context.Context, string, string, json.RawMessage) (json.RawMessage, error) {
		return nil, &jsonrpc.Error{Code: -1, Message: "User rejected", Data: json.RawMessage(`{"why":9007199254740993}`)}
	}}), t, one, `{}`)
	all := strings.Join(replies, "\n")
	for _, want := range []string{`"roots":[{"uri":"file:///w"}],"n":9007199254740993`, `"error":{"code":-1,"message":"User rejected","data":{"why":9007199254740993}}`} {
		if !strings.Contains(all, want) {
			t.Errorf("the server did not get %s: %s", want, all)
		}
	}
	if r.result.Err != nil {
		t.Error(r.result.Err)
	}
	r.replays(t, one)
}

// What a server over HTTP answers in place of a message is told, and recorded with the run.
func TestHTTPAnswersThatAreNone(t *testing.T) {
	for _, c := range []struct {
		status           int
		kind, body, want string
	}{
		{500, "application/json", `{"jsonrpc":"2.0","id":$ID,"error":{"code":-7,"message":"db is down","data":{"n":9007199254740993}}}`, "db is down\n" + `{"n":9007199254740993}`},
		{503, "text/plain", "upstream restarting", "the server answered with 503 Service Unavailable, text/plain: upstream restarting"},
		{429, "application/json", `{"slow":"down"}`, `the server answered with 429 Too Many Requests, application/json: {"slow":"down"}`},
		{404, "application/json", `{"error":{"code":-32601,"message":"no"}}`, "no"},
		{200, "text/html", "<p>Sign in</p>", "the server answered with 200 OK, text/html: <p>Sign in</p>"},
		{202, "", "", "the server answered with 202 Accepted"},
	} {
		sent := 0
		at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var m struct {
				ID     json.RawMessage
				Method string
			}
			_ = json.NewDecoder(r.Body).Decode(&m)
			say := func(status int, kind, text string) {
				w.Header().Set("Content-Type", kind)
				w.WriteHeader(status)
				fmt.Fprint(w, strings.ReplaceAll(text, "$ID", string(m.ID)))
			}
			switch {
			case m.Method == "initialize":
				say(200, "application/json", greets)
			case m.Method == "tools/list":
				say(200, "application/json", `{"jsonrpc":"2.0","id":$ID,"result":`+oneTool+`}`)
			case m.Method == "tools/call":
				sent++
				say(c.status, c.kind, c.body)
			case m.ID != nil:
				say(200, "application/json", `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"no"}}`)
			case r.Method == http.MethodPost:
				w.WriteHeader(202)
			default:
				w.WriteHeader(405)
			}
		}))
		client := open(t)(mcptool.NewHTTP(t.Context(), at.URL, mcptool.Options{Timeout: 500 * time.Millisecond, HTTP: http.DefaultTransport}))
		r := record(t.Context(), t, find(t, client, "t"), `{}`)
		if !strings.Contains(r.result.Error, c.want) || sent != 1 {
			t.Errorf("%d: %q, sent %d times", c.status, r.result.Error, sent)
		}
		r.replays(t, find(t, client, "t"))
		_ = client.Close()
		at.Close()
	}
}
