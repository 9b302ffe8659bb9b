package systemtest

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/starling-host/starling/serve/tenant"
)

// canaries are secrets of two tenants, by tenant and name, which nobody may see.
type canaries map[string]map[string]string

// places are where the secrets stand in requests, by name.
var places = map[string]tenant.Place{"HEAD": tenant.PlaceHeader, "QUERY": tenant.PlaceQuery, "BODY": tenant.PlaceBody}

func newCanaries(tenants ...string) canaries {
	all := canaries{}
	for _, who := range tenants {
		all[who] = map[string]string{}
		for name := range places {
			all[who][name] = fmt.Sprintf("%s+%016x/%016x", name, rand.Uint64(), rand.Uint64())
		}
	}
	return all
}

// forms are how a secret is looked for.
func (c canaries) forms() (forms []string) {
	for _, secrets := range c {
		for _, v := range secrets {
			digits := hex.EncodeToString([]byte(v))
			backwards := []byte(v)
			slices.Reverse(backwards)
			forms = append(forms, v, v[5:25], v[22:], url.QueryEscape(v), digits, strings.ToUpper(digits), string(backwards))
			for before := range 3 {
				whole := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), v...))
				forms = append(forms, whole[4:len(whole)-4])
			}
		}
	}
	return forms
}

// parrot is a server that says what it was told, in the way that its path names.
type parrot struct {
	mu    sync.Mutex
	heard []string
}

func (p *parrot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	said := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + "|" + r.URL.Query().Get("key") + "|" + string(body)
	p.mu.Lock()
	p.heard = append(p.heard, said)
	p.mu.Unlock()
	switch how := strings.Trim(r.URL.Path, "/"); how {
	case "header":
		w.Header().Set("X-Echo", strings.ReplaceAll(said, "\n", " "))
	case "split":
		for _, b := range []byte(said) {
			w.Write([]byte{b})
			w.(http.Flusher).Flush()
		}
	case "gzip":
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, said)
		z.Close()
	case "away":
		w.Header().Set("Location", "/plain?key="+url.QueryEscape(said))
		w.WriteHeader(http.StatusFound)
	case "broken":
		w.Header().Set("Content-Length", "10000")
		io.WriteString(w, said)
	case "failure":
		w.WriteHeader(http.StatusInternalServerError)
		io.WriteString(w, said)
	default:
		io.WriteString(w, spellings[how](said))
	}
}

// spellings are how the parrot repeats what it hears.
var spellings = map[string]func(string) string{
	"plain":   func(s string) string { return s },
	"base64":  func(s string) string { return base64.StdEncoding.EncodeToString([]byte("x" + s)) },
	"hex":     func(s string) string { return hex.EncodeToString([]byte(s)) },
	"percent": func(s string) string { return spelled(s, "%%%02X") },
	"json":    func(s string) string { return `{"echo":"` + spelled(s, `\u%04x`) + `"}` },
	"html":    func(s string) string { return spelled(s, "&#%d;") },
}

func spelled(s, format string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

// hears reports whether the parrot was ever told a secret.
func (p *parrot) hears(value string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.heard, func(said string) bool { return strings.Contains(said, value) })
}

// TestSecretsAreInNoOutputOfAHost binds secrets of two tenants to a server that repeats
// what it hears, has tools send them in every way that there is, and looks for them
// in everything that the host answers, prints and stores.
func TestSecretsAreInNoOutputOfAHost(t *testing.T) {
	t.Parallel()
	bound, thief := new(parrot), new(parrot)
	friend, otherServer := httptest.NewServer(bound), httptest.NewServer(thief)
	t.Cleanup(friend.Close)
	t.Cleanup(otherServer.Close)
	all := newCanaries("alice", "bob")
	c := newCluster(t, canaryPolicy(friend, otherServer), "alice", "bob")
	c.askFreely("alice", "bob")
	c.withStore(func(s *tenant.Store) {
		for who, secrets := range all {
			for name, value := range secrets {
				c.must(s.SetSecret(t.Context(), who, tenant.Secret{Name: name, Audience: []string{strings.TrimPrefix(friend.URL, "http://")}, Place: places[name]}, tenant.NewValue(value)))
			}
		}
	})
	c.env = []string{"OTEL_EXPORTER_OTLP_HEADERS=x-team=hosting"}
	to := newCollector(t)
	c.start("metrics: {open: true}\ntraces: {endpoint: "+to.URL+"}\n", nil)
	c.upload("alice", "bob")
	seen := &evidence{c: c}
	for who := range all {
		for _, e := range exchanges(friend.URL, otherServer.URL) {
			status, text, err := c.call(who, "send", e)
			c.must(err)
			if status != http.StatusOK {
				t.Errorf("%v: %d %s", e, status, text)
			}
			seen.add("answer to "+fmt.Sprint(e), text)
		}
		seen.ask(who)
	}
	for who, secrets := range all {
		for name, value := range secrets {
			if !bound.hears(value) {
				t.Errorf("%s of %s was never sent, so nothing is proved", name, who)
			}
			if thief.hears(value) {
				t.Errorf("%s of %s was sent to another server", name, who)
			}
		}
	}
	seen.files()
	c.stop()
	seen.add("stderr", []byte(c.stderr.String()))
	seen.add("spans", bytes.Join(to.heard, nil))
	seen.search(all.forms())
}

// canaryPolicy lets tools ask both servers, and binds the secrets to the first.
func canaryPolicy(friend, otherServer *httptest.Server) string {
	port := func(s *httptest.Server) string { _, p, _ := net.SplitHostPort(s.Listener.Addr().String()); return p }
	at := fmt.Sprintf("audience: [\"127.0.0.1:%s\"]", port(friend))
	return fmt.Sprintf("version: \"1.0\"\npermissions:\n  network:\n    allow:\n      - {host: 127.0.0.1, ports: [%s, %s], schemes: [http], private: true, methods: [GET, POST]}\n"+
		"secrets:\n  - {name: HEAD, %s, header: Authorization}\n  - {name: QUERY, %s, query: key}\n  - {name: BODY, %s, body: true}\n", port(friend), port(otherServer), at, at, at)
}

// exchanges are what the tools try.
func exchanges(friend, otherServer string) (all []map[string]any) {
	post := func(base, how string, more map[string]any) {
		e := map[string]any{
			"Method": "POST", "URL": base + "/" + how + "?key={{secret:QUERY}}", "Body": "{{secret:BODY}}",
			"Header": [][2]string{{"Authorization", "Bearer {{secret:HEAD}}"}, {"Content-Type", "text/plain"}},
		}
		for k, v := range more {
			e[k] = v
		}
		all = append(all, e)
	}
	for _, how := range []string{"plain", "base64", "hex", "percent", "json", "html", "header", "split", "gzip", "away", "broken", "failure"} {
		post(friend, how, nil)
	}
	post(friend, "plain", map[string]any{"Fail": true})
	post(friend, "plain", map[string]any{"Times": 3})
	post(friend, "plain", map[string]any{"Body": `{"a":"{{secret:BODY}}"}`, "Header": [][2]string{{"Content-Type", "application/json"}}})
	post(friend, "plain", map[string]any{"Header": [][2]string{{"Authorization", "{{secret:HEAD}}"}, {"Accept-Encoding", "gzip"}, {"Range", "bytes=3-9"}}})
	for _, wrong := range []map[string]any{
		{"URL": friend + "/{{secret:QUERY}}"}, {"URL": friend + "/plain?other={{secret:QUERY}}"}, {"URL": friend + "/plain?key={{secret:HEAD}}"},
		{"URL": friend + "/plain?key={{secret:NONE}}"}, {"Body": "{{secret:HEAD}}"}, {"Body": "{{secret:BODY"}, {"Header": [][2]string{{"X-Other", "{{secret:HEAD}}"}}},
	} {
		post(friend, "plain", wrong)
	}
	post(otherServer, "plain", nil)
	post(strings.Replace(friend, "127.0.0.1", "localhost", 1), "plain", nil)
	return all
}

// evidence is everything that somebody could see.
type evidence struct {
	c     *cluster
	names []string
	texts [][]byte
}

func (e *evidence) add(name string, text []byte) {
	e.names, e.texts = append(e.names, name), append(e.texts, text)
}

// ask asks every route that shows something for what a tenant has.
func (e *evidence) ask(who string) {
	e.c.t.Helper()
	get := func(method, path string) []byte {
		status, text, err := e.c.ask(who, method, path, "", nil)
		e.c.must(err)
		if status != http.StatusOK {
			e.c.t.Errorf("%s %s: %d %s", method, path, status, text)
		}
		e.add(method+" "+path+" of "+who, text)
		return text
	}
	var page struct {
		Items []struct {
			ID string `json:"run_id"`
		}
	}
	e.c.must(json.Unmarshal(get("GET", "/api/v1/runs?limit=100"), &page))
	for _, path := range []string{"/metrics", "/api/v1/modules", "/api/v1/modules/rogue", "/api/v1/tools", "/api/v1/tools/send", "/api/v1/agents", "/api/v1/readyz"} {
		get("GET", path)
	}
	inspect := e.browser(who)
	inspect("/inspect/")
	for _, run := range page.Items {
		for _, what := range []string{"", "/events", "/stream", "/export"} {
			get("GET", "/api/v1/runs/"+run.ID+what)
		}
		get("POST", "/api/v1/runs/"+run.ID+"/replay")
		for _, view := range []string{"", "/events", "/conversation", "/requests"} {
			inspect("/inspect/runs/" + run.ID + view)
		}
		for seq := 1; seq <= 4; seq++ {
			inspect(fmt.Sprintf("/inspect/runs/%s/events/%d", run.ID, seq))
		}
		for _, name := range []string{"get_run", "summarize_run"} {
			e.mcp(who, name, map[string]any{"run_id": run.ID})
		}
		e.mcp(who, "get_event", map[string]any{"run_id": run.ID, "seq": 2})
	}
	e.mcp(who, "send", map[string]any{"Method": "GET", "URL": "http://127.0.0.1:1/{{secret:HEAD}}"})
}

// browser signs in to the inspector and returns what loads a page.
func (e *evidence) browser(who string) func(path string) {
	jar, err := cookiejar.New(nil)
	e.c.must(err)
	client := &http.Client{Jar: jar}
	load := func(answer *http.Response, err error) string {
		e.c.t.Helper()
		e.c.must(err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		e.c.must(err)
		if answer.StatusCode != http.StatusOK {
			e.c.t.Errorf("%s: %s", answer.Request.URL, answer.Status)
		}
		e.add("page "+answer.Request.URL.Path, text)
		return string(text)
	}
	load(client.Get(e.c.url + "/inspect/sign-in"))
	load(client.PostForm(e.c.url+"/inspect/sign-in", url.Values{"token": {e.c.keys[who]}}))
	return func(path string) { e.c.t.Helper(); load(client.Get(e.c.url + path)) }
}

// mcp calls a tool of the MCP server.
func (e *evidence) mcp(who, name string, arguments map[string]any) {
	e.c.t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": name, "arguments": arguments}})
	e.c.must(err)
	status, text, err := e.c.askWith(e.c.t.Context(), who, "POST", "/mcp", body, "Content-Type", "application/json", "Accept", "application/json, text/event-stream")
	e.c.must(err)
	if status != http.StatusOK || !bytes.Contains(text, []byte(`"result"`)) {
		e.c.t.Errorf("MCP %s: %d %s", name, status, text)
	}
	e.add("MCP "+name, text)
}

// files adds the database, what the command line makes of it, and all else that the
// host has written.
func (e *evidence) files() {
	e.c.t.Helper()
	for _, args := range [][]string{
		{"backup", "host.db", "copy.db"}, {"archive", "host.db", "archive.ndjson"},
		{"export", "host.db", "@last", "--key-file", "host.key"}, {"show", "host.db", "@last", "--key-file", "host.key"},
	} {
		e.add(strings.Join(args, " "), []byte(e.c.command(args...)))
	}
	e.c.must(filepath.Walk(e.c.dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		e.add(path, text)
		return err
	}))
}

// search looks for the secrets in all of it.
func (e *evidence) search(forms []string) {
	e.c.t.Helper()
	size := 0
	for i, text := range e.texts {
		size += len(text)
		for _, form := range forms {
			if at := bytes.Index(text, []byte(form)); at >= 0 {
				e.c.t.Errorf("%s has %q: %q", e.names[i], form, text[max(at-100, 0):min(at+100, len(text))])
				break
			}
		}
	}
	e.c.t.Logf("searched %d texts, %d bytes, for %d forms", len(e.texts), size, len(forms))
}
