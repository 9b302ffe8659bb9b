package mcptool_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/runtime/mcptool"
)

// loginChild tells this test binary that it has the proxy and the certificate of
// [TestWhereALoginLeads]: a process reads both once.
const loginChild = "MCPTOOL_TEST_LOGIN"

// TestWhereALoginLeads logs in at a public server that leads to a server on this machine, in each
// address that it chooses. The public server is example.com, behind a proxy for it.
func TestWhereALoginLeads(t *testing.T) {
	if os.Getenv(loginChild) == "" {
		stage := newStage(t)
		dir := t.TempDir()
		cert := filepath.Join(dir, "ca.pem")
		if err := os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: stage.outer.Certificate().Raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestWhereALoginLeads$", "-test.v")
		cmd.Env = append(os.Environ(), loginChild+"="+stage.proxy.URL+" "+stage.outer.URL+" "+stage.inner.URL, "HTTPS_PROXY="+stage.proxy.URL, "HTTP_PROXY="+stage.proxy.URL, "NO_PROXY=", "no_proxy=", "SSL_CERT_FILE="+cert)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	parts := strings.Fields(os.Getenv(loginChild))
	inner := parts[2]
	const outer = "https://example.com"
	steps := []string{"resource", "server", "register", "token", "authorize"}
	for _, step := range append(steps, "none") {
		for _, redirected := range []bool{false, true} {
			if redirected && (step == "none" || step == "authorize" || step == "register" || step == "token") {
				continue // a redirect of these is not followed at all
			}
			name := fmt.Sprintf("%s-%v", step, redirected)
			asked, err := login(t, outer, inner, name)
			if step == "none" {
				if err != nil || asked != 0 {
					t.Errorf("a login at a public server alone: %v, %d requests inside", err, asked)
				}
			} else if err == nil && step != "resource" || asked != 0 { // without that document a server is its own authorization server
				t.Errorf("%s: a public server made %d requests inside: %v", name, asked, err)
			}
		}
	}
	if asked, err := login(t, inner, inner, "none-false"); err != nil || asked == 0 {
		t.Errorf("the user's own server: %v", err)
	}
}

// stage is the servers of the test, which run in the parent.
type stage struct{ proxy, outer, inner *httptest.Server }

// login connects to a server whose step of the plan leads inside, and returns how many requests came
// there.
func login(t *testing.T, endpoint, inner, plan string) (asked int64, err error) {
	direct := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsOf(t), DisableKeepAlives: true}}
	set := func(path string) string {
		resp, err := direct.Get(inner + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return string(text)
	}
	set("/stage/plan?" + plan)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tokens := filepath.Join(t.TempDir(), "tokens.json")
	client, err := mcptool.NewHTTP(ctx, endpoint+"/mcp", mcptool.Options{Tokens: tokens, Login: &mcptool.Login{Show: func(address string) {
		u, _ := url.Parse(address)
		q := u.Query()
		back := q.Get("redirect_uri") + "?" + url.Values{"code": {"secret-code"}, "state": {q.Get("state")}}.Encode()
		if strings.HasPrefix(address, inner) && endpoint != inner {
			set("/authorize") // as a browser would
		}
		if resp, err := direct.Get(back); err == nil {
			resp.Body.Close()
		}
	}}})
	if client != nil {
		client.Close()
	}
	if _, missing := os.Stat(tokens); missing == nil {
		err = nil // the server of this test is no MCP server beyond its login
	} else if err == nil {
		err = missing
	}
	fmt.Sscan(set("/stage/asked"), &asked)
	return asked, err
}

func newStage(t *testing.T) *stage {
	s := &stage{}
	var asked atomic.Int64
	var plan atomic.Value
	plan.Store("none-false")
	answer := func(w http.ResponseWriter, code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	serve := func(self func() string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			step, redirected, _ := strings.Cut(plan.Load().(string), "-")
			to := func(name string) string {
				if name == step && redirected == "false" {
					return s.inner.URL
				}
				return self()
			}
			leaves := func(name string) bool {
				if name != step || redirected != "true" || self() == s.inner.URL {
					return false
				}
				http.Redirect(w, r, s.inner.URL+r.URL.Path, http.StatusTemporaryRedirect)
				return true
			}
			switch {
			case r.URL.Path == "/mcp":
				w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+to("resource")+`/resource"`)
				w.WriteHeader(http.StatusUnauthorized)
			case r.URL.Path == "/resource" && !leaves("resource"):
				answer(w, 200, map[string]any{"resource": self() + "/mcp", "authorization_servers": []string{to("server")}})
			case r.URL.Path == "/.well-known/oauth-authorization-server" && !leaves("server"):
				answer(w, 200, map[string]any{
					"issuer": self(), "authorization_endpoint": to("authorize") + "/authorize", "token_endpoint": to("token") + "/token", "registration_endpoint": to("register") + "/register",
					"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"none"},
				})
			case r.URL.Path == "/register":
				var client map[string]any
				_ = json.NewDecoder(r.Body).Decode(&client)
				client["client_id"] = "client"
				answer(w, 201, client)
			case r.URL.Path == "/token":
				answer(w, 200, map[string]any{"access_token": "access", "token_type": "Bearer", "expires_in": 3600})
			case r.Header.Get("Location") == "" && w.Header().Get("Location") == "":
				http.NotFound(w, r)
			}
		})
	}
	inner := serve(func() string { return s.inner.URL })
	s.inner = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/stage/plan":
			plan.Store(r.URL.RawQuery)
			asked.Store(0)
		case "/stage/asked":
			fmt.Fprint(w, asked.Load())
		default:
			asked.Add(1)
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.inner.Close)
	s.outer = httptest.NewTLSServer(serve(func() string { return "https://example.com" }))
	t.Cleanup(s.outer.Close)
	s.proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != "example.com:443" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		there, err := net.Dial("tcp", s.outer.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		here, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(here, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { io.Copy(there, here); there.Close() }()
		go func() { io.Copy(here, there); here.Close() }()
	}))
	t.Cleanup(s.proxy.Close)
	return s
}

func tlsOf(t *testing.T) *tls.Config {
	data, err := os.ReadFile(os.Getenv("SSL_CERT_FILE"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(data)
	return &tls.Config{RootCAs: roots}
}
