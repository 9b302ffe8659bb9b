package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/tool"
)

// TestScopeOfTheWebView asks, as callers with several rights, for the pages of every run: each sees the
// runs of its namespace and nothing of the others, the name of the file included.
func TestScopeOfTheWebView(t *testing.T) {
	log, err := store.OpenFile(t.Context(), filepath.Join(t.TempDir(), "log.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	echo := tool.Typed("echo", "Echo.", func(_ context.Context, in struct{}) (struct{}, error) { return in, nil })
	owner := map[string]string{"ALPHA": "a", "BETA": "b", "GAMMA": ""} // of runs
	full := func(run string) string { return strings.TrimPrefix(owner[run]+"/"+run, "/") }
	for run := range owner {
		if _, err := (agent.Direct{Log: log, Tool: echo}).RunWithID(t.Context(), full(run), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	view, err := NewWebView(t.Context(), Database{Log: log, Name: "/secret/place.db"}, WebOptions{Token: "unused", Scope: func(r *http.Request) (string, bool) {
		namespace, ok := r.Header["Namespace"]
		return strings.Join(namespace, ""), ok
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	ask := func(method, path string, header http.Header) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, nil)
		r.Header = header
		w := httptest.NewRecorder()
		view.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	pages := []string{"", "/events", "/requests", "/conversation", "/raw/1", "/validate", "/replay", "/bundle", "/receipts"}
	for _, namespace := range []string{"a", "b", "c", ""} {
		as := func() http.Header { return http.Header{"Namespace": {namespace}, "Authorization": {"Bearer unused"}} }
		_, list := ask("GET", "/", as())
		for run, of := range owner {
			may := namespace == "" || namespace == of
			if strings.Contains(list, run) != may {
				t.Errorf("%q: the list has %s: %v", namespace, run, !may)
			}
			name := run
			if namespace == "" {
				name = full(run)
			}
			if code, page := ask("GET", "/runs/"+strings.ReplaceAll(name, "/", "%2F"), as()); code == http.StatusOK != may {
				t.Errorf("%q: %s is answered with %d: %.200s", namespace, name, code, page)
			}
			for _, page := range pages {
				for _, id := range []string{run, "..%2F" + full(run), strings.ReplaceAll(full(run), "/", "%2F"), full(run)} {
					code, text := ask("GET", "/runs/"+id+page, as())
					if !may && code == http.StatusOK || namespace != "" && strings.Contains(text, "place.db") {
						t.Errorf("%q: %s%s is answered with %d: %.200s", namespace, id, page, code, text)
					}
				}
			}
		}
		if named := strings.Contains(list, "place.db"); named != (namespace == "") {
			t.Errorf("%q: the list names the file: %v", namespace, named)
		}
	}
	for _, path := range []string{"/", "/runs/ALPHA", "/runs/GAMMA", "/queue"} {
		for _, header := range []http.Header{{}, {"Authorization": {"Bearer unused"}}, {"Cookie": {"session=unused"}}} {
			if code, page := ask("GET", path, header); code == http.StatusOK || strings.Contains(page, "GAMMA") && path != "/runs/GAMMA" {
				t.Errorf("nobody's %s is answered with %d", path, code)
			}
		}
	}
}
