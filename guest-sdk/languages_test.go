// Package guestsdk_test compares the SDKs of all languages.
package guestsdk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/treetest"
)

// world is what a tool sees of the outside: answers to its requests, in order.
type world struct {
	answers  []string
	requests []string
	took     time.Duration // by each exchange
}

func (*world) Now(context.Context) int64     { return 1_767_323_045_678_000_000 }
func (*world) Random(context.Context) uint64 { return 5 }
func (*world) Seed(context.Context) [32]byte { return [32]byte{1} }

func (w *world) HTTP(_ context.Context, request []byte) ([]byte, abi.Status, time.Duration) {
	w.requests = append(w.requests, string(request))
	if len(w.answers) < len(w.requests) || w.answers[len(w.requests)-1] == "" {
		return []byte("no route"), abi.StatusNetwork, w.took
	}
	return []byte(w.answers[len(w.requests)-1]), 0, w.took
}

const (
	ada     = "HTTP/1.1 200 OK\r\nContent-Length: 51\r\nContent-Type: application/json\r\n\r\n" + `{"id":"7","name":"Ad\u00e4","plan":"pro","more":[]}`
	busy    = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy"
	unknown = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
)

// calls are the calls of the three tools that guest-sdk has in every language.
var calls = []struct {
	tool, input string
	answers     []string
	want        string // the output, or the error
	requests    int
}{
	{tool: "hello", input: `{"name":"Ada"}`, want: `{"output":{"greeting":"Hello, Ada."}}`},
	{tool: "hello", input: `{"name":"\"ä\"\n😀"}`, want: `{"output":{"greeting":"Hello, \"ä\"\n😀."}}`},
	{tool: "transform", input: `{"text":""}`, want: `{"output":{"words":0,"upper":"","counts":{}}}`},
	{tool: "transform", input: `{"text":"To be, or not to be: 2 ß-b 2"}`,
		want: `{"output":{"words":9,"upper":"TO BE, OR NOT TO BE: 2 ß-B 2","counts":{"2":2,"b":1,"be":2,"not":1,"or":1,"to":2}}}`},
	{tool: "lookup", input: `{"id":"7","base_url":"http://h"}`, answers: []string{ada}, requests: 1, want: `{"output":{"id":"7","name":"Adä","plan":"pro"}}`},
	{tool: "lookup", input: `{"id":"a/ä b","base_url":"http://h/v1"}`, answers: []string{busy, ada}, requests: 2, want: `{"output":{"id":"7","name":"Adä","plan":"pro"}}`},
	{tool: "lookup", input: `{"id":"7","base_url":"http://h"}`, answers: []string{busy, busy, ada}, requests: 2, want: `{"error":{"kind":"transient","message":"the service answers 503"}}`},
	{tool: "lookup", input: `{"id":"8","base_url":"http://h"}`, answers: []string{unknown}, requests: 1, want: `{"error":{"kind":"discard","message":"there is no customer 8"}}`},
}

// language is an SDK with its three tools.
type language struct {
	name   string
	needs  func(t *testing.T)
	module func(t *testing.T, tool string) []byte
	slow   bool // its start-up takes ten seconds without a compiler
}

func languages() []language {
	found := func(t *testing.T, ref string) []byte {
		t.Helper()
		source, err := guest.Find(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		return source.Wasm
	}
	none := func(*testing.T) {}
	all := []language{
		{"Go", none, func(t *testing.T, tool string) []byte { return found(t, filepath.Join(goSDK, "examples", tool)) }, false},
		{"JavaScript", none, func(t *testing.T, tool string) []byte { return found(t, filepath.Join("guest-sdk/js/examples", tool)) }, false},
		{"Python", none, func(t *testing.T, tool string) []byte {
			return found(t, filepath.Join("guest-sdk/python/examples", tool))
		}, true},
	}
	for _, l := range treetest.Native {
		all = append(all, language{l.Name, l.Needs, func(t *testing.T, tool string) []byte {
			return found(t, l.Folder(t, filepath.Join("examples", tool)))
		}, false})
	}
	return all
}

// TestTheSameToolInEveryLanguage calls the three tools of each SDK on both engines. Outputs and
// requests are equal across languages, and fuel is equal on both engines.
func TestTheSameToolInEveryLanguage(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	engines := map[string]*sandbox.Engine{}
	for name, config := range map[string]sandbox.Config{"compiler": {CacheDir: starling.CodeCacheFolder()}, "machine": {Machine: true}} {
		engine, err := sandbox.New(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = engine.Close(context.Background()) })
		engines[name] = engine
	}
	for _, l := range languages() {
		t.Run(l.name, func(t *testing.T) {
			l.needs(t)
			names := []string{"compiler", "machine"}
			if l.slow && os.Getenv("STARLING_NIGHTLY") == "" {
				names = names[:1]
			}
			modules := map[string]map[string]*sandbox.Module{}
			for _, tool := range []string{"hello", "lookup", "transform"} {
				wasm := l.module(t, tool)
				modules[tool] = map[string]*sandbox.Module{}
				for _, name := range names {
					m, err := engines[name].Load(t.Context(), wasm, sandbox.DefaultLimits())
					if err != nil {
						t.Fatalf("%s: %v", tool, err)
					}
					modules[tool][name] = m
				}
			}
			for _, c := range calls {
				var fuel uint64
				for _, engine := range names {
					w := &world{answers: c.answers}
					got, err := modules[c.tool][engine].Call(t.Context(), sandbox.Call{Tool: c.tool, Input: []byte(
						`{"tool":"` + c.tool + `","input":` + c.input + `,"context":{"run_id":"r","call_id":"c","attempt":1}}`)}, w)
					if err != nil || !sameJSON(t, got.Output, []byte(c.want)) {
						t.Errorf("%s %s, %s: got %s (%v), want %s", c.tool, c.input, engine, got.Output, err, c.want)
					}
					checkRequests(t, c.input, w.requests, c.requests)
					if fuel != 0 && fuel != got.Meter.Fuel {
						t.Errorf("%s %s: the compiler spent %d, the %s %d", c.tool, c.input, fuel, engine, got.Meter.Fuel)
					}
					fuel = got.Meter.Fuel
				}
			}
		})
	}
}

// checkRequests checks that a tool made n requests, all the same, as the tool lookup must.
func checkRequests(t *testing.T, input string, requests []string, n int) {
	t.Helper()
	if len(requests) != n {
		t.Errorf("%s: %d requests, want %d", input, len(requests), n)
	}
	var in struct {
		ID      string
		BaseURL string `json:"base_url"`
	}
	if err := json.Unmarshal([]byte(input), &in); err != nil {
		t.Fatal(err)
	}
	for _, request := range requests {
		first, rest, _ := strings.Cut(request, "\r\n")
		id := strings.NewReplacer("/", "%2F", "ä", "%C3%A4", " ", "%20").Replace(in.ID)
		if want := "GET " + in.BaseURL + "/customers/" + id + " HTTP/1.1"; first != want {
			t.Errorf("%s: got %q, want %q", input, first, want)
		}
		for _, want := range []string{"authorization: bearer {{secret:customer_token}}\r\n", "starling-effect: customer/" + in.ID + "\r\n"} {
			if !strings.Contains(strings.ToLower(rest), want) {
				t.Errorf("%s: the request has no %q: %q", input, want, rest)
			}
		}
	}
}

func sameJSON(t *testing.T, got, want []byte) bool {
	t.Helper()
	var documents [2]any
	for i, text := range [][]byte{got, want} {
		if err := json.Unmarshal(text, &documents[i]); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	a, _ := json.Marshal(documents[0])
	b, _ := json.Marshal(documents[1])
	return bytes.Equal(a, b)
}
