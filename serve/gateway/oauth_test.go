package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// oauthServer is an MCP server with its authorization server. A refresh token is good for one
// time, and each answer that refuses one has it in its text.
type oauthServer struct {
	*httptest.Server

	mu      sync.Mutex
	seconds int               // that a token lives; guarded by mu, and so are the next ones
	clients map[string]string // redirect addresses, by client
	codes   map[string]url.Values
	access  map[string]bool // tokens that are accepted
	refresh map[string]bool
	issued  []string // all codes and tokens
	deny    bool     // the user denies
}

func newOAuthServer(t *testing.T) *oauthServer {
	s := &oauthServer{seconds: 3600, clients: map[string]string{"mine": ""}, codes: map[string]url.Values{}, access: map[string]bool{}, refresh: map[string]bool{}}
	server := mcp.NewServer(&mcp.Implementation{Name: "guarded", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "hello"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello"}}}, nil, nil
	})
	mux := http.NewServeMux()
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.access[token] {
			return nil, fmt.Errorf("%w: nobody knows it", auth.ErrInvalidToken)
		}
		return &auth.TokenInfo{Expiration: time.Now().Add(time.Hour), UserID: "user"}, nil
	}
	const about = "/.well-known/oauth-protected-resource/mcp"
	guard := auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{ResourceMetadataURL: s.URL + about, Scopes: nil})
	mux.Handle("/mcp", guard(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)))
	mux.Handle(about, auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{Resource: s.URL + "/mcp", AuthorizationServers: []string{s.URL}}))
	answer := func(w http.ResponseWriter, code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 200, map[string]any{
			"issuer": s.URL, "authorization_endpoint": s.URL + "/authorize", "token_endpoint": s.URL + "/token", "registration_endpoint": s.URL + "/register",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"none"},
		})
	})
	mux.HandleFunc("POST /register", func(w http.ResponseWriter, r *http.Request) {
		var asked map[string]any
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		id := fmt.Sprint("client-", len(s.clients))
		asked["client_id"], s.clients[id] = id, asked["redirect_uris"].([]any)[0].(string)
		answer(w, 201, asked)
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		q := r.URL.Query()
		if to, ok := s.clients[q.Get("client_id")]; !ok || to != "" && to != q.Get("redirect_uri") || q.Get("code_challenge_method") != "S256" || q.Get("resource") != s.URL+"/mcp" {
			t.Errorf("asked to authorize %v", q)
		}
		code := s.secret("code")
		s.codes[code] = q
		back := url.Values{"state": {q.Get("state")}, "code": {code}, "iss": {s.URL}}
		if s.deny {
			back = url.Values{"state": {q.Get("state")}, "error": {"access_denied"}, "error_description": {"the user says no"}}
		}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = r.ParseForm()
		refuse := func(why string) {
			answer(w, 400, map[string]any{"error": "invalid_grant", "error_description": why})
		}
		switch r.Form.Get("grant_type") {
		case "authorization_code":
			asked, ok := s.codes[r.Form.Get("code")]
			delete(s.codes, r.Form.Get("code"))
			sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
			if !ok || base64.RawURLEncoding.EncodeToString(sum[:]) != asked.Get("code_challenge") || r.Form.Get("redirect_uri") != asked.Get("redirect_uri") {
				refuse("bad code " + r.Form.Get("code"))
				return
			}
		case "refresh_token":
			old := r.Form.Get("refresh_token")
			if !s.refresh[old] {
				refuse("bad token " + old)
				return
			}
			delete(s.refresh, old)
		}
		clear(s.access)
		access, refresh := s.secret("access"), s.secret("refresh")
		s.access[access], s.refresh[refresh] = true, true
		answer(w, 200, map[string]any{"access_token": access, "refresh_token": refresh, "token_type": "Bearer", "expires_in": s.seconds})
	})
	return s
}

// secret returns a new one. The caller holds mu.
func (s *oauthServer) secret(kind string) string {
	one := fmt.Sprintf("%s-%032d", kind, len(s.issued))
	s.issued = append(s.issued, one)
	return one
}

// set changes the server.
func (s *oauthServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// hidden fails the test if a text has a secret.
func (s *oauthServer) hidden(t *testing.T, where, text string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range s.issued {
		if strings.Contains(text, secret) {
			t.Errorf("%s has %s: %s", where, secret, text)
		}
	}
}

// gateway is one process with the server behind it.
type gateway struct {
	t     *testing.T
	db    *starling.DB
	tools *session
	path  string
}

func newGateway(t *testing.T, server Server, pins Pins, warn func(string)) *gateway {
	g := &gateway{t: t, path: filepath.Join(t.TempDir(), "runs.db")}
	g.db = starling.Must(starling.Open(t.Context(), g.path, starling.Options{}))
	tools := NewTools(g.db, starling.ToolOptions{}, warn)
	t.Cleanup(func() { tools.Close(); g.db.Close() })
	if err := tools.AddServer(server, pins); err != nil {
		t.Fatal(err)
	}
	g.tools = greeted(tools)
	if err := g.tools.Settle(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	return g
}

// hello returns the output of the server's tool, or why its call failed.
func (g *gateway) hello() string {
	g.t.Helper()
	result, err := g.tools.Call(g.t.Context(), mcpsrv.Call{Name: "guarded_hello", Arguments: []byte("{}")})
	if err != nil {
		g.t.Fatal(err)
	}
	return string(result.Output) + result.Error
}

// browse opens an address as a browser does, and returns the page.
func browse(t *testing.T, address string) string {
	resp, err := http.Get(address)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", string(page))
}

// TestLoginToAServer logs in, calls a tool over two processes that share the token, with tokens
// that expire and are revoked, until there is nothing left to refresh.
func TestLoginToAServer(t *testing.T) {
	s := newOAuthServer(t)
	pins := Pins{filepath.Join(t.TempDir(), "starling-host", "servers.json")}
	server := Server{Name: "guarded", MCP: agentfile.MCP{URL: s.URL + "/mcp"}}
	text := "guarded=" + server.URL

	warned := make(chan string, 1)
	newGateway(t, server, pins, func(text string) { warned <- text })
	want := "the server guarded is down: the server asks for a login, and there is no token for it; hint: starling-host mcp login " + server.URL
	if got := <-warned; got != want {
		t.Errorf("without a token: %s", got)
	}

	for range 2 { // the second one in place of the first
		name, err := pins.Login(t.Context(), text, mcptool.Login{Show: func(address string) {
			u, _ := url.Parse(address)
			if page := browse(t, u.Query().Get("redirect_uri")+"?code=evil&state=guessed"); !strings.HasPrefix(page, "400 This is not the login") {
				t.Errorf("with a wrong state: %s", page)
			}
			go browse(t, address)
		}})
		if name != "guarded" || err != nil {
			t.Fatal(name, err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(pins.Path), "tokens", "127.0.0.1-*.json"))
	if len(files) != 1 {
		t.Fatal(files)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}

	var log strings.Builder
	var mu sync.Mutex
	warn := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		log.WriteString(text)
	}
	const hello = `{"content":[{"text":"hello","type":"text"}]}`
	one, two := newGateway(t, server, pins, warn), newGateway(t, server, pins, warn)
	call := func(when string) {
		t.Helper()
		for _, g := range []*gateway{one, two} {
			if got := g.hello(); got != hello {
				t.Errorf("%s: %s", when, got)
			}
		}
	}
	call("with a token")
	s.set(func() { clear(s.access) })
	call("after the token was revoked")
	s.set(func() { s.seconds = 1; clear(s.access) })
	call("with tokens that expire")
	call("with tokens that have expired")
	s.set(func() { clear(s.access); clear(s.refresh) })
	if got, want := one.hello(), "guarded_hello: the server asks for a login, and the token was not refreshed: "+
		"the authorization server answered 400 Bad Request, invalid_grant: bad token [hidden]; hint: starling-host mcp login "+server.URL; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, g := range []*gateway{one, two} {
		states, _ := json.Marshal(g.tools.states())
		s.hidden(t, "list_servers", string(states))
		g.tools.Close()
		g.db.Close()
		for _, file := range []string{g.path, g.path + "-wal"} {
			doc, _ := os.ReadFile(file)
			s.hidden(t, file, string(doc))
		}
	}
	doc, err := os.ReadFile(pins.Path)
	s.hidden(t, "the pins", string(doc)+log.String())
	if err != nil || !strings.Contains(string(doc), "hello") {
		t.Error(string(doc), err)
	}
}

// TestLoginThatFails is about logins that bring no token.
func TestLoginThatFails(t *testing.T) {
	s := newOAuthServer(t)
	open := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return notesServer("open") }, nil))
	t.Cleanup(open.Close)
	for _, c := range []struct {
		name, server, want string
		change             func()
		show               func(address string, end func())
	}{
		{"the user denies", s.URL + "/mcp", "the authorization server refused: access_denied the user says no", func() { s.deny = true }, nil},
		{"the browser is never redirected", s.URL + "/mcp", "the user has gone", func() {}, func(_ string, end func()) { end() }},
		{"the code is no good", s.URL + "/mcp", "the authorization server answered 400 Bad Request, invalid_grant: bad code [hidden]", func() { s.deny = false }, func(address string, _ func()) {
			u, _ := url.Parse(address)
			s.set(func() { s.secret("code") })
			go browse(t, u.Query().Get("redirect_uri")+"?code="+s.issued[len(s.issued)-1]+"&iss="+s.URL+"&state="+u.Query().Get("state"))
		}},
		{"no login is needed", open.URL, "does not ask for a login", func() {}, nil},
		{"a command", "ls", "this is a command; only a URL has a login", func() {}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.change()
			pins := Pins{filepath.Join(t.TempDir(), "servers.json")}
			ctx, end := context.WithCancelCause(t.Context())
			_, err := pins.Login(ctx, c.server, mcptool.Login{Show: func(address string) {
				if c.show == nil {
					go browse(t, address)
					return
				}
				c.show(address, func() { end(fmt.Errorf("the user has gone")) })
			}})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(pins.Path), "tokens")); err == nil {
				t.Error("there is a token")
			}
		})
	}
}
