package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// secretWords is in everything of alice's that could be shown to somebody else.
const secretWords = "canary-of-alice"

// attack is how somebody else's things are asked for by one route: by what stands
// in its path, or, where nothing does, by what is in the request.
type attack struct {
	kind  string // of what is named: run, module or tool; empty for none
	body  string // $NAME is a thing of that kind, where the path has none
	query string // the same
	finds bool   // what is absent is an empty answer and not 404
}

// attacks has every route that is a tenant's. A route that is not in it fails the
// test: nobody has said how it is kept apart.
var attacks = map[string]attack{
	"POST /api/v1/runs":              {kind: "tool", body: `{"tool":$NAME}`},
	"GET /api/v1/runs":               {kind: "run", query: "q=$NAME", finds: true},
	"GET /api/v1/runs/{id}":          {kind: "run"},
	"GET /api/v1/runs/{id}/events":   {kind: "run"},
	"GET /api/v1/runs/{id}/stream":   {kind: "run"},
	"GET /api/v1/runs/{id}/export":   {kind: "run"},
	"GET /api/v1/runs/{id}/receipt":  {kind: "run"},
	"GET /api/v1/receipts":           {}, // testdata/receipts.http has bob ask for alice's result
	"POST /api/v1/runs/{id}/cancel":  {kind: "run"},
	"POST /api/v1/runs/{id}/replay":  {kind: "run"},
	"POST /api/v1/modules":           {},
	"GET /api/v1/modules":            {},
	"GET /api/v1/modules/{name}":     {kind: "module"},
	"DELETE /api/v1/modules/{name}":  {kind: "module"},
	"GET /api/v1/tools":              {},
	"GET /api/v1/tools/{name}":       {kind: "tool"},
	"POST /api/v1/tools/{name}/call": {kind: "tool", body: `{}`},
	"GET /api/v1/agents":             {},
	"GET /api/v1/policy":             {},
	"GET /api/v1/usage":              {},
	"PUT /api/v1/policy":             {},
	"DELETE /api/v1/policy":          {},
	"/mcp":                           {},
}

// TestTenantsAreKeptApart asks, as bob, each route for what alice has, and for 5,000
// things that nobody has. The answers are the same, byte for byte. Routes that are no
// tenant's show nothing of hers, either.
func TestTenantsAreKeptApart(t *testing.T) {
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) {
		c.MCP = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who, _ := daemon.AccountOf(r.Context())
			fmt.Fprintf(w, "you are %s", who.ID)
		})
		signing(c, nil)
	})
	foreign := aliceHas(t, w)
	n := treetest.Count(500, 500, 5_000)
	for _, r := range daemon.Routes() {
		how, known := attacks[r.Pattern()]
		if !known && r.Access == daemon.ForTenants {
			t.Errorf("nobody has said how %s keeps tenants apart", r.Pattern())
			continue
		}
		if how.kind == "" {
			showsNothing(t, w, r, how)
			continue
		}
		showsNothing(t, w, r, how)
		isAbsent(t, w, r, how, slices.Concat(foreign[how.kind], guesses(how.kind, n)))
	}
	for kind, route := range map[string]string{"run": "GET /api/v1/runs/{id}", "module": "GET /api/v1/modules/{name}", "tool": "GET /api/v1/tools/{name}"} {
		if got := w.ask("alice", routeOf(route), foreign[kind][0], attack{}); !strings.HasPrefix(got, "200\n") {
			t.Errorf("alice has lost her %s: %s", kind, got)
		}
	}
	if got := w.ask("alice", routeOf("GET /api/v1/policy"), "", attack{}); !strings.HasSuffix(got, secretWords) {
		t.Errorf("alice has lost her policy: %s", got)
	}
}

var absentIDs = map[string]string{"run": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "module": "absent", "tool": "absent"}

// aliceHas gives alice a module, runs and an answer for a key, and returns what
// they are called.
func aliceHas(t *testing.T, w *world) map[string][]string {
	t.Helper()
	upload := w.do("alice", "POST", "/api/v1/modules?name="+secretWords, "application/wasm", answering(secretWords, `{"type":"object"}`, `{"output":"`+secretWords+`"}`))
	if upload.Code != http.StatusCreated {
		t.Fatalf("%d %s", upload.Code, upload.Body)
	}
	if _, err := w.tenants.SetPolicy(t.Context(), "alice", "version: \"1.0\"\n# "+secretWords, false); err != nil {
		t.Fatal(err)
	}
	things := map[string][]string{"module": {secretWords}, "tool": {secretWords}}
	for _, body := range []string{`{"tool":"` + secretWords + `","wait":20}`, `{"goal":"` + secretWords + `","wait":20}`} {
		var run struct {
			ID     string `json:"run_id"`
			Status string `json:"status"`
		}
		answer := w.do("alice", "POST", "/api/v1/runs", "application/json", []byte(body))
		if err := json.Unmarshal(answer.Body.Bytes(), &run); err != nil || run.Status != "completed" {
			t.Fatalf("%d %s", answer.Code, answer.Body)
		}
		things["run"] = append(things["run"], run.ID, "alice/"+run.ID, "bob/../alice/"+run.ID, strings.ToLower(run.ID), run.ID[:25], run.ID+"0", "%"+run.ID)
	}
	return things
}

// isAbsent asks a route for things, of which it says what it says of an absent one.
func isAbsent(t *testing.T, w *world, r daemon.Route, how attack, ids []string) {
	t.Helper()
	absent := w.ask("bob", r, absentIDs[how.kind], how)
	if strings.HasPrefix(absent, "404\n") == how.finds {
		t.Errorf("%s: %s", r.Pattern(), absent)
	}
	for _, id := range ids {
		if got := w.ask("bob", r, id, how); got != absent {
			t.Errorf("%s with %q: got\n%s\nand for what is absent\n%s", r.Pattern(), id, got, absent)
			return
		}
	}
}

// guesses are n things that nobody has.
func guesses(kind string, n int) []string {
	const letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	random := rand.New(rand.NewPCG(1, 2))
	ids := []string{"0", "-", "*", "%", "'", "alice", "bob", "..%2f", "a b", "\u202e", "\x00", strings.Repeat("a", 4000), "null", "1 OR 1=1"}
	for len(ids) < n {
		id := []byte(event.NewID())
		for i := 10 + random.IntN(15); i < len(id); i++ {
			id[i] = letters[random.IntN(len(letters))]
		}
		if kind != "run" {
			id = bytes.ToLower(id[16:])
			id[0] = 'a'
		}
		ids = append(ids, string(id))
	}
	return ids
}

// showsNothing asks for what has no name, and looks for anything of alice's.
func showsNothing(t *testing.T, w *world, r daemon.Route, how attack) {
	t.Helper()
	got := w.ask("bob", r, "", attack{})
	if strings.Contains(got, secretWords) || strings.Contains(got, "alice") {
		t.Errorf("%s shows what is alice's: %s", r.Pattern(), got)
	}
}

func routeOf(pattern string) daemon.Route {
	i := slices.IndexFunc(daemon.Routes(), func(r daemon.Route) bool { return r.Pattern() == pattern })
	return daemon.Routes()[i]
}

// ask makes a request of a route, with an id where the route or the attack has one, and
// returns all of the answer.
func (w *world) ask(who string, r daemon.Route, id string, how attack) string {
	method := orElse(r.Method, "POST")
	path := strings.NewReplacer("{id}", url.PathEscape(id), "{name}", url.PathEscape(id)).Replace(r.Path)
	if how.query != "" {
		path += "?" + strings.ReplaceAll(how.query, "$NAME", url.QueryEscape(id))
	}
	quoted, err := json.Marshal(id)
	if err != nil {
		w.t.Fatal(err)
	}
	answer := w.do(who, method, path, "application/json", []byte(strings.ReplaceAll(how.body, "$NAME", string(quoted))))
	var headers bytes.Buffer
	if err := answer.Header().Write(&headers); err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprintf("%d\n%s\n%s", answer.Code, &headers, answer.Body)
}

// do makes a request as a tenant, without a network.
func (w *world) do(who, method, path, contentType string, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, bytes.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+w.keys[who])
	if len(body) > 0 {
		r.Header.Set("Content-Type", contentType)
	}
	answer := httptest.NewRecorder()
	w.daemon.ServeHTTP(answer, r)
	return answer
}

// TestMetricsAreNotForTenants asks for them where the operator has a key, where nobody has
// set one, and where they are open, which shows that there is something to be seen.
func TestMetricsAreNotForTenants(t *testing.T) {
	for _, c := range []struct {
		key  string
		open bool
	}{{"operator", false}, {"", false}, {"", true}} {
		w := newWorld(t, func(d *daemon.Config, _ *queue.Config) { d.OperatorKey, d.OpenMetrics = c.key, c.open })
		aliceHas(t, w)
		for _, who := range []string{"bob", "nobody"} { // who has an empty key
			got := w.ask(who, routeOf("GET /metrics"), "", attack{})
			if c.open != strings.Contains(got, secretWords) || c.open == strings.HasPrefix(got, "401\n") {
				t.Errorf("%+v, as %s: %.200s", c, who, got)
			}
		}
	}
}

// TestHostHeaderIsCheckedOnEveryRoute sends requests that name another host, as a page of
// another site makes a browser send them, to a host for this machine alone.
func TestHostHeaderIsCheckedOnEveryRoute(t *testing.T) {
	w := newWorld(t, func(d *daemon.Config, _ *queue.Config) {
		d.OpenMetrics, d.Hosts = true, []string{"127.0.0.1:8300"}
		d.Inspector, d.MCP = http.NotFoundHandler(), http.NotFoundHandler()
	})
	for _, route := range daemon.Routes() {
		for host, refused := range map[string]bool{"rebound.example:8300": true, "127.0.0.1:8300": false} {
			path := strings.NewReplacer("{$}", "", "{id}", "x", "{name}", "x", "{tenant}", "x", "{host}", "x", "{what}", "drain").Replace(route.Path)
			r := httptest.NewRequestWithContext(t.Context(), orElse(route.Method, http.MethodGet), path, nil)
			r.Host = host
			answer := httptest.NewRecorder()
			w.daemon.ServeHTTP(answer, r)
			if got := strings.Contains(answer.Body.String(), "does not serve the name"); got != refused {
				t.Errorf("%s of %s: %d %.200s", route.Pattern(), host, answer.Code, answer.Body)
			}
		}
	}
}

// TestAPIInvalidKeysAreIndistinguishable: nobody learns from an answer whether a key was
// ever valid, or whether there is anything where they look.
func TestAPIInvalidKeysAreIndistinguishable(t *testing.T) {
	w := newWorld(t, nil)
	foreign := aliceHas(t, w)
	w.addTenant("carol", tenant.Limits{})
	if err := w.tenants.Suspend(t.Context(), "carol"); err != nil {
		t.Fatal(err)
	}
	w.keys["nobody"] = "sth_" + strings.Repeat("a", 16) + "_" + strings.Repeat("a", 52)
	w.keys["nonsense"] = "x"
	for _, r := range daemon.Routes() {
		if r.Access != daemon.ForTenants || r.Method == "" {
			continue
		}
		kind := orElse(attacks[r.Pattern()].kind, "run")
		want := w.ask("nonsense", r, absentIDs[kind], attack{})
		for _, who := range []string{"nonsense", "nobody", "carol", "nothing at all"} {
			for _, id := range []string{foreign[kind][0], absentIDs[kind], "*"} {
				if got := w.ask(who, r, id, attack{}); got != want || !strings.HasPrefix(got, "401\n") {
					t.Errorf("%s as %s with %s: %s", r.Pattern(), who, id, got)
				}
			}
		}
	}
}

// TestSecretsStayInside gives alice a secret and a policy that nearly lets it out,
// and looks for it in everything that the daemon says and writes.
func TestSecretsStayInside(t *testing.T) {
	var logged syncBuffer
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) {
		c.Logger = logged.logger()
		c.Policy = func() *policy.Policy { return nil }
	})
	if err := w.tenants.SetSecret(t.Context(), "alice", tenant.Secret{Name: "TOKEN", Audience: []string{"api.example.com"}, Place: tenant.PlaceHeader},
		tenant.NewValue("s3cr3t-"+secretWords)); err != nil {
		t.Fatal(err)
	}
	upload := w.do("alice", "POST", "/api/v1/modules?name=greet", "application/wasm", testModules["greet"]())
	if upload.Code != http.StatusCreated {
		t.Fatal(upload.Body)
	}
	var seen strings.Builder
	for _, path := range []string{"/api/v1/runs", "/api/v1/modules", "/api/v1/tools", "/api/v1/agents", "/api/v1/readyz"} {
		seen.WriteString(w.do("alice", "GET", path, "", nil).Body.String())
	}
	seen.WriteString(w.do("alice", "POST", "/api/v1/tools/greet/call", "application/json", []byte(`{"input":{"name":"{{secret:TOKEN}}"}}`)).Body.String())
	w.keys["operator"] = "operator"
	seen.WriteString(w.do("operator", "GET", "/metrics", "", nil).Body.String())
	seen.WriteString(logged.String())
	if strings.Contains(seen.String(), "s3cr3t") {
		t.Error("the secret is in what the daemon says")
	}
}

// TestTextOfTenantsIsNotLogged makes runs that succeed and fail, and looks in the
// host's log for what went into them and came out.
func TestTextOfTenantsIsNotLogged(t *testing.T) {
	var logged syncBuffer
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) { c.Logger = logged.logger() })
	for _, name := range []string{"greet", "fail"} {
		if upload := w.do("alice", "POST", "/api/v1/modules?name="+name, "application/wasm", testModules[name]()); upload.Code != http.StatusCreated {
			t.Fatal(upload.Body)
		}
		w.do("alice", "POST", "/api/v1/tools/"+name+"/call", "application/json", []byte(`{"input":{"name":"Ada Lovelace"}}`))
	}
	w.stop() // so that the workers have written their last records
	w.start()
	records := map[string]int{}
	for line := range strings.Lines(logged.String()) {
		for _, msg := range []string{"run started", "tool ended", "run ended"} {
			if strings.Contains(line, `"`+msg+`" run_id=alice/`) {
				records[msg]++
			}
		}
		for _, text := range []string{"Lovelace", "hello", "it does not work"} {
			if strings.Contains(line, text) {
				t.Errorf("the log repeats %q: %s", text, line)
			}
		}
	}
	if diff := cmp.Diff(map[string]int{"run started": 2, "tool ended": 2, "run ended": 2}, records); diff != "" {
		t.Errorf("records of the runs (-want +got):\n%s\n%s", diff, logged.String())
	}
}
