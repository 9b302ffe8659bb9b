// Package incidenttest records an incident for tests of what shows runs: three hundred runs in the
// sandbox, thirty-six of which failed for three reasons.
package incidenttest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/sandbox"
)

// Runs is how many runs there are. The other numbers are those of the failed ones: an API answers
// 503, another one does not answer in time, and a tool computes until its fuel is spent.
const (
	Runs     = 300
	Broken   = 19
	Silent   = 11
	Spinning = 6
	Failed   = Broken + Silent + Spinning
)

// Record makes a database of the incident.
func Record(t testing.TB, path string) {
	t.Helper()
	leaving := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n, _ := strconv.Atoi(filepath.Base(r.URL.Path)); {
		case strings.HasPrefix(r.URL.Path, "/down/"):
			http.Error(w, "the database is gone", http.StatusServiceUnavailable)
		case strings.HasPrefix(r.URL.Path, "/slow/"):
			<-leaving
		case n == 3:
			http.NotFound(w, r)
		default:
			fmt.Fprint(w, "customer ", n)
		}
	}))
	defer api.Close()
	defer close(leaving)
	host := strings.TrimPrefix(api.URL, "http://")

	db, err := starling.Open(t.Context(), path, starling.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, source, _, _ := runtime.Caller(0)
	probe := filepath.Join(filepath.Dir(source), "..", "..", "cmd", "starling-host", "testdata", "tools", "probe")
	load := func(name string, limits sandbox.Limits) *starling.Tool {
		tool, err := db.Load(t.Context(), probe, starling.ToolOptions{Name: name, AllowHosts: []string{host}, AllowPrivate: true, Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		return tool
	}
	customers, echo := load("customers", sandbox.Limits{}), load("echo", sandbox.Limits{})
	get, spin := load("get", sandbox.Limits{TimeoutMs: 300}), load("spin", sandbox.Limits{Fuel: 5_000_000})

	// The failures come in the last two thirds, mixed with runs that complete.
	type order struct {
		tool  *starling.Tool
		input string
	}
	var orders []order
	for i := range Runs - Failed {
		o := order{customers, fmt.Sprintf(`{"url":%q,"count":%d}`, api.URL, 1+i%2)}
		switch i % 4 {
		case 1:
			o = order{echo, fmt.Sprintf(`{"order":%d,"note":"second attempt"}`, i)}
		case 2: // which answers 404
			o = order{get, fmt.Sprintf(`{"url":"%s/customers/3"}`, api.URL)}
		}
		orders = append(orders, o)
	}
	for i := range Failed {
		o := order{customers, fmt.Sprintf(`{"url":"%s/down","count":%d}`, api.URL, 1+i)}
		switch {
		case i%6 == 5:
			o = order{spin, fmt.Sprintf(`{"count":%d}`, i)}
		case i%3 == 1 && i < 33:
			o = order{get, fmt.Sprintf(`{"url":"%s/slow/%d"}`, api.URL, i)}
		}
		at := 100 + i*5
		orders = append(orders[:at], append([]order{o}, orders[at:]...)...)
	}
	var calls sync.WaitGroup
	slots := make(chan struct{}, 4)
	for _, o := range orders {
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			if run, err := o.tool.Call(t.Context(), o.input); run == nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()

}
