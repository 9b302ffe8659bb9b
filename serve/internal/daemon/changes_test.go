package daemon_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// TestTenantChangesTakeEffectAtOnce: what another process changes of a tenant holds from
// the next request on, whatever this one remembers.
func TestTenantChangesTakeEffectAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	log, err := store.OpenFile(t.Context(), w.path, store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	other, err := tenant.Open(t.Context(), log, tenant.Options{Masters: []tenant.MasterKey{w.master}})
	if err != nil {
		t.Fatal(err)
	}
	greet := testModules["greet"]()
	if got := w.do("alice", "POST", "/api/v1/modules?name=greet", "application/wasm", greet); got.Code != http.StatusCreated {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	call := func() int {
		return w.do("alice", "POST", "/api/v1/tools/greet/call", "application/json", []byte(`{"input":{"name":"somebody"}}`)).Code
	}
	trusted := func() bool {
		return bytes.Contains(w.do("alice", "GET", "/api/v1/modules/greet", "", nil).Body.Bytes(), []byte(`"trusted":true`))
	}
	if got := call(); got != http.StatusOK || trusted() {
		t.Fatalf("a call is answered with %d", got)
	}
	const strict = "version: \"1.0\"\nresources: {limits: {input: 8}}\n"
	for _, change := range []struct {
		what string
		do   func() error
		code int
	}{
		{"a policy", func() error { _, err := other.SetPolicy(t.Context(), "alice", strict, true); return err }, http.StatusRequestEntityTooLarge},
		{"no policy", func() error { _, err := other.SetPolicy(t.Context(), "alice", "", true); return err }, http.StatusOK},
		{"trust", func() error { return other.TrustModule(t.Context(), "alice", "greet", canon.Sum(greet), true) }, http.StatusOK},
		{"no module", func() error { return other.RemoveModule(t.Context(), "alice", "greet") }, http.StatusNotFound},
		{"erasure", func() error { _, err := other.Erase(t.Context(), "alice", nil); return err }, http.StatusUnauthorized},
	} {
		if err := change.do(); err != nil {
			t.Fatalf("%s: %v", change.what, err)
		}
		if got := call(); got != change.code {
			t.Errorf("%s: a call is answered with %d, want %d", change.what, got, change.code)
		}
		if got, want := trusted(), change.what == "trust"; got != want {
			t.Errorf("%s: the module is trusted: %v", change.what, got)
		}
	}
}

// TestAnotherMasterKey: a host whose master key was changed serves nobody. It says that it
// is not ready, and to its operator why.
func TestAnotherMasterKey(t *testing.T) {
	logged := &syncBuffer{}
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) { c.Logger = logged.logger() })
	if got := w.do("", "GET", "/api/v1/readyz", "", nil); got.Code != http.StatusOK {
		t.Fatalf("before: %d %s", got.Code, got.Body)
	}
	if _, err := w.tenants.Rewrap(t.Context(), tenant.NewMasterKey()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := w.do("", "GET", "/api/v1/readyz", "", nil); got.Code != http.StatusServiceUnavailable || !bytes.Contains(got.Body.Bytes(), []byte(`"keys":"failed"`)) {
			t.Errorf("%d %s", got.Code, got.Body)
		}
	}
	const why = `msg="not ready" check=keys error="tenant: the master key does not match: `
	if got := strings.Count(logged.String(), why); got != 1 || strings.Count(logged.String(), "not ready") != 1 {
		t.Errorf("why it is not ready was logged %d times:\n%s", got, logged)
	}
	if got := w.do("alice", "GET", "/api/v1/modules", "", nil); got.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if !strings.Contains(logged.String(), "put the new one into the key file, and send SIGHUP") {
		t.Errorf("logged:\n%s", logged)
	}
}

// TestARunOfAnotherKey: every route of a run says of one that was imported, and that the
// key of its tenant does not open, what it is, and none that the host has failed.
func TestARunOfAnotherKey(t *testing.T) {
	logged := &syncBuffer{}
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) {
		c.Logger = logged.logger()
		signing(c, nil)
	})
	key, err := store.NewDataKey(bytes.Repeat([]byte{7}, store.DataKeySize))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := store.Encrypted(w.log, key, "alice")
	if err != nil {
		t.Fatal(err)
	}
	id := event.NewID()
	for _, e := range logtest.Finished("alice/"+id, 3) {
		if err := elsewhere.Append(t.Context(), e.RunID, e); err != nil {
			t.Fatal(err)
		}
	}
	if err := elsewhere.Sync(t.Context(), "alice/"+id); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, r := range daemon.Routes() {
		if !strings.Contains(r.Path, "/runs/{id}") {
			continue
		}
		asked++
		got := w.do("alice", r.Method, strings.Replace(r.Path, "{id}", id, 1), "", nil)
		if got.Code != http.StatusConflict || !strings.Contains(got.Body.String(), "problems.md#unreadable") || !strings.Contains(got.Body.String(), "another key") {
			t.Errorf("%s: %d %s", r.Pattern(), got.Code, got.Body)
		}
	}
	if got := w.do("alice", "GET", "/api/v1/runs", "", nil); asked < 6 || got.Code != http.StatusOK || !strings.Contains(got.Body.String(), id) {
		t.Errorf("%d routes, and the list: %d %s", asked, got.Code, got.Body)
	}
	if strings.Contains(logged.String(), "request failed") {
		t.Errorf("the host says that it has failed:\n%s", logged)
	}
}
