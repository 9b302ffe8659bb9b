package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/bench/guests"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/serve"
	"github.com/starling-host/starling/serve/gateway"
)

// open makes the ways: a guest and a server that answer with what they get.
func open(ctx context.Context, dir string) (ways []way, end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	ends := []func(){cancel}
	closeAll := func() {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i]()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	db, err := starling.Open(ctx, filepath.Join(dir, "runs.db"), starling.Options{})
	if err != nil {
		return nil, nil, err
	}
	ends = append(ends, func() { db.Close() })
	wasm, err := guests.Wasm.ReadFile("echo-large.wasm")
	if err != nil {
		return nil, nil, err
	}
	runs, err := running(ctx, db, wasm)
	if err != nil {
		return nil, nil, err
	}
	api, stop, err := overHTTP(ctx, filepath.Join(dir, "host"), wasm)
	if err != nil {
		return nil, nil, err
	}
	ends = append(ends, stop)
	gateway, err := throughGateway(ctx, db, dir)
	return append(runs, api, gateway), closeAll, err
}

// running makes runs in this process, and replays them. The guest's work is taken off.
func running(ctx context.Context, db *starling.DB, wasm []byte) ([]way, error) {
	engine, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		return nil, err
	}
	alone, err := engine.Load(ctx, wasm, sandbox.Limits{})
	if err != nil {
		return nil, err
	}
	module, err := db.LoadBytes(ctx, "echo-large.wasm", wasm, starling.ToolOptions{})
	if err != nil {
		return nil, err
	}
	var last string
	guest := func(ctx context.Context, doc []byte) error {
		_, err := alone.Call(ctx, sandbox.Call{Tool: "guest", Input: doc}, nil)
		return err
	}
	run := func(ctx context.Context, doc []byte) error {
		r, err := module.Call(ctx, string(doc))
		if err == nil {
			last = r.ID
		}
		return err
	}
	replay := func(ctx context.Context, _ []byte) error {
		v, err := db.Replay(ctx, last)
		if err == nil && !v.Identical() {
			err = errors.New(v.String())
		}
		return err
	}
	return []way{{"run", run, guest}, {"replay", replay, guest}}, nil
}

// overHTTP calls a tool of a host in this process, whose guests work in others.
func overHTTP(ctx context.Context, dir string, wasm []byte) (way, func(), error) {
	w := way{name: "API call", less: func(context.Context, []byte) error { return nil }}
	file, err := serve.ParseFile("host.yaml", fmt.Appendf(nil, "listen: 127.0.0.1:0\ndatabase: %s.db\nkey_file: %s.key\n", dir, dir))
	if err != nil {
		return w, nil, err
	}
	host, err := serve.Open(ctx, file, serve.Options{Development: true})
	if err != nil {
		return w, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- host.Serve(ctx) }()
	stop := func() { cancel(); <-served; host.Close() }
	send := func(ctx context.Context, path, contentType string, want int, body ...string) error {
		var all []io.Reader
		size := 0
		for _, part := range body {
			all, size = append(all, strings.NewReader(part)), size+len(part)
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, host.Origin+path, io.MultiReader(all...))
		if err != nil {
			return err
		}
		r.ContentLength = int64(size)
		r.Header.Set("Authorization", "Bearer "+host.Key)
		r.Header.Set("Content-Type", contentType)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		n, err := io.Copy(io.Discard, resp.Body)
		if err == nil && (resp.StatusCode != want || want == http.StatusOK && n < int64(size)) {
			err = fmt.Errorf("%s: %s: %d bytes", path, resp.Status, n)
		}
		return err
	}
	w.call = func(ctx context.Context, doc []byte) error {
		return send(ctx, "/api/v1/tools/guest/call", "application/json", http.StatusOK, `{"input":`, string(doc), `}`)
	}
	if err := send(ctx, "/api/v1/modules?name=guest", "application/wasm", http.StatusCreated, string(wasm)); err != nil {
		stop()
		return w, nil, err
	}
	return w, stop, nil
}

// throughGateway calls a tool of another server through the gateway. What the SDK takes for
// both of the connections is taken off: a server of it that passes the same call on.
func throughGateway(ctx context.Context, db *starling.DB, dir string) (way, error) {
	w := way{name: "gateway call"}
	echo := func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{}, StructuredContent: r.Params.Arguments}, nil
	}
	at, err := listen(ctx, echo)
	if err != nil {
		return w, err
	}
	direct, err := connect(ctx, &mcp.StreamableClientTransport{Endpoint: at})
	if err != nil {
		return w, err
	}
	relayed, err := overPipes(ctx, func(ctx context.Context, in io.Reader, out io.Writer) error {
		server := newServer(func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return direct.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: r.Params.Arguments})
		})
		return server.Run(ctx, &mcp.IOTransport{Reader: io.NopCloser(in), Writer: nopCloser{out}, MaxLineLength: 4 << 20})
	})
	if err != nil {
		return w, err
	}
	tools := gateway.NewTools(db, starling.ToolOptions{}, func(string) {})
	if err := tools.AddServer(gateway.Server{Name: "far", MCP: agentfile.MCP{URL: at}}, gateway.Pins{Path: filepath.Join(dir, "pins.json")}); err != nil {
		return w, err
	}
	relay, err := overPipes(ctx, func(ctx context.Context, in io.Reader, out io.Writer) error {
		return gateway.Service{Tools: tools}.Serve(ctx, in, out)
	})
	if err != nil {
		return w, err
	}
	calling := func(session *mcp.ClientSession, name string) func(context.Context, []byte) error {
		return func(ctx context.Context, doc []byte) error {
			r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(doc)})
			if err == nil && (r.IsError || r.StructuredContent == nil) {
				err = fmt.Errorf("the call of %s failed: %v", name, r.Content)
			}
			return err
		}
	}
	w.call, w.less = calling(relay, "far_echo"), calling(relayed, "echo")
	return w, nil
}

func newServer(call mcp.ToolHandler) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "echo", Description: "Answers with what it gets.", InputSchema: map[string]any{"type": "object"}}, call)
	return server
}

// listen serves a tool over HTTP and returns the address.
func listen(ctx context.Context, call mcp.ToolHandler) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := newServer(call)
	web := &http.Server{Handler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)}
	go web.Serve(l)
	context.AfterFunc(ctx, func() { web.Close() })
	return "http://" + l.Addr().String() + "/mcp", nil
}

// overPipes connects a client to what serves one over streams.
func overPipes(ctx context.Context, serving func(context.Context, io.Reader, io.Writer) error) (*mcp.ClientSession, error) {
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	go func() { out.CloseWithError(serving(ctx, in, out)) }()
	context.AfterFunc(ctx, func() { toServer.Close() })
	return connect(ctx, &mcp.IOTransport{Reader: fromServer, Writer: toServer, MaxLineLength: 8 << 20})
}

func connect(ctx context.Context, t mcp.Transport) (*mcp.ClientSession, error) {
	return mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, t, nil)
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
