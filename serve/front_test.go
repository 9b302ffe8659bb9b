package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

func TestMain(m *testing.M) {
	guest.WorkerMain()
	os.Exit(m.Run())
}

// canary is in everything of alice's.
const canary = "canary-of-alice"

// world is a daemon with a web view and an MCP server, and the tenants alice and
// bob.
type world struct {
	t      *testing.T
	url    string
	keys   map[string]string
	config daemon.Config // of the daemon
}

func newWorld(t *testing.T, adjust ...func(*daemon.Config)) *world {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	log, err := store.OpenFile(ctx, filepath.Join(t.TempDir(), "host.db"), store.FileOptions{})
	must(err)
	t.Cleanup(func() { log.Close() })
	tenants, err := tenant.Open(ctx, log, tenant.Options{Masters: []tenant.MasterKey{tenant.NewMasterKey()}})
	must(err)
	engine, err := sandbox.New(ctx, sandbox.Config{CacheDir: starling.CodeCacheFolder()})
	must(err)
	t.Cleanup(func() { engine.Close(ctx) })
	q, err := queue.Open(ctx, log, queue.Config{Host: "test", Grace: time.Second, Poll: 5 * time.Millisecond})
	must(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	w := &world{t: t, url: "http://" + listener.Addr().String(), keys: map[string]string{}}
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	h := &Host{file: &File{Origins: []string{w.url}}, logger: logger}
	c := daemon.Config{Log: log, Tenants: tenants, Queue: q, Inline: guest.Inline(engine), Logger: logger, OperatorKey: "the operator's"}
	c.Requests.Wait = 20 * time.Second
	w.keys["operator"] = c.OperatorKey
	c.Inspector, err = h.webView()
	must(err)
	c.MCP, err = h.mcp()
	must(err)
	for _, adjust := range adjust {
		adjust(&c)
	}
	h.daemon, err = daemon.New(ctx, c)
	must(err)
	t.Cleanup(h.daemon.Close)
	w.config = c
	w.serve(h.daemon, listener)
	for _, id := range []string{"alice", "bob"} {
		_, err := tenants.Create(ctx, tenant.Tenant{ID: id, Limits: tenant.Limits{RequestsPerSecond: -1}})
		must(err)
		_, key, err := tenants.CreateKey(ctx, id, "")
		must(err)
		w.keys[id] = key.Reveal()
	}
	return w
}

// another returns the same world as a second host on its database shows it.
func (w *world) another() *world {
	w.t.Helper()
	c, second, h := w.config, *w, &Host{file: &File{}, logger: w.config.Logger}
	var err error
	if c.MCP, err = h.mcp(); err != nil {
		w.t.Fatal(err)
	}
	if h.daemon, err = daemon.New(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(h.daemon.Close)
	server := httptest.NewServer(h.daemon)
	w.t.Cleanup(server.Close)
	second.url = server.URL
	return &second
}

// serve has the daemon listen until the test ends.
func (w *world) serve(d *daemon.Daemon, l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx, l) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			w.t.Errorf("the daemon stopped: %v", err)
		}
	})
}

// upload gives a tenant a tool that always says the same.
func (w *world) upload(who, name, says string) {
	w.t.Helper()
	w.load(who, name, wasmtest.Saying(name, says))
}

// load gives a tenant a module.
func (w *world) load(who, name string, module []byte) {
	w.t.Helper()
	req, err := http.NewRequest(http.MethodPost, w.url+"/api/v1/modules?name="+name, bytes.NewReader(module))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.keys[who])
	req.Header.Set("Content-Type", "application/wasm")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusCreated {
		w.t.Fatalf("upload: %d, %s", resp.StatusCode, text)
	}
}

// assistant returns a tenant's session with the MCP server.
func (w *world) assistant(who string) *mcp.ClientSession {
	w.t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(w.t.Context(), &mcp.StreamableClientTransport{
		Endpoint: w.url + "/mcp", HTTPClient: &http.Client{Transport: withKey(w.keys[who])}, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { session.Close() })
	return session
}

type withKey string

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(k))
	return http.DefaultTransport.RoundTrip(r)
}

// asks calls a tool of the MCP server and returns the run of the call and what it
// said.
func asks(t *testing.T, s *mcp.ClientSession, name, arguments string) (run, said string) {
	t.Helper()
	result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
	if err != nil {
		return "", err.Error()
	}
	run, _ = result.Meta["starling/run_id"].(string)
	return run, result.Content[0].(*mcp.TextContent).Text
}

// browser is one that a tenant has signed in with.
type browser struct {
	w      *world
	client *http.Client
}

func (w *world) browser(who string) *browser {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	b := &browser{w: w, client: &http.Client{Jar: jar}}
	code, page := b.load(http.MethodPost, "/inspect/sign-in", url.Values{"token": {w.keys[who]}})
	if code != http.StatusOK || !strings.Contains(page, "Sign out") {
		w.t.Fatalf("%s cannot sign in: %d, %s", who, code, page)
	}
	return b
}

func (b *browser) load(method, path string, form url.Values) (code int, page string) {
	b.w.t.Helper()
	req, err := http.NewRequestWithContext(b.w.t.Context(), method, b.w.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.w.t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.client.Do(req)
	if err != nil {
		b.w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.w.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestTenantSeesItsRunsOverMCPAndWebView calls a tool over MCP, and looks at the run with the tools
// over the log and in the browser.
func TestTenantSeesItsRunsOverMCPAndWebView(t *testing.T) {
	w := newWorld(t)
	w.upload("alice", "say", canary)
	alice := w.assistant("alice")
	run, said := asks(t, alice, "say", `{}`)
	if said != canary || run == "" {
		t.Fatalf("the tool said %q in run %q", said, run)
	}
	const refused = "input does not match the schema: (document): "
	if run, said := asks(t, alice, "say", `{"louder":true}`); run != "" || !strings.HasPrefix(said, refused) || !strings.Contains(said, "louder") {
		t.Errorf("what is wrong with arguments is told as %q", said)
	}
	for name, arguments := range map[string]string{
		"list_runs": `{}`, "get_run": `{"run_id":"` + run + `"}`, "summarize_run": `{"run_id":"` + run + `"}`,
		"search_runs": `{"query":"` + canary + `"}`, "diff_runs": `{"a":"` + run + `","b":"` + run + `"}`, "get_event": `{"run_id":"` + run + `","seq":1}`,
	} {
		if _, said := asks(t, alice, name, arguments); !strings.Contains(said, run) && !strings.Contains(said, `"same":true`) && !strings.Contains(said, `"say"`) {
			t.Errorf("%s: %s", name, said)
		}
	}
	if _, said := asks(t, alice, "validate_run", `{"run_id":"`+run+`"}`); !strings.Contains(said, `"ok":true`) {
		t.Errorf("validate_run: %s", said)
	}
	b := w.browser("alice")
	for path, want := range map[string]string{
		"/inspect/": run, "/inspect/runs/" + run: "<rect ", "/inspect/runs/" + run + "/events": canary, "/inspect/runs/" + run + "/events/3": canary,
	} {
		if code, page := b.load(http.MethodGet, path, nil); code != http.StatusOK || !strings.Contains(page, want) || strings.Contains(page, "alice/") {
			t.Errorf("%s: %d, %s", path, code, page)
		}
	}
	for what, want := range map[string]string{"validate": "were unchanged", "replay": "byte for byte.</p>"} {
		if code, page := b.load(http.MethodPost, "/inspect/runs/"+run+"/"+what, nil); code != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%s: %d, %s", what, code, page)
		}
	}
}

// TestHostShowsNothingWithoutAKey nobody sees anything.
func TestHostShowsNothingWithoutAKey(t *testing.T) {
	w := newWorld(t)
	b := &browser{w: w, client: http.DefaultClient}
	for _, path := range []string{"/inspect/", "/inspect/runs/x", "/inspect/diff", "/inspect/runs/x/live", "/mcp"} {
		if code, _ := b.load(http.MethodGet, path, nil); code != http.StatusUnauthorized {
			t.Errorf("%s: %d", path, code)
		}
	}
}
