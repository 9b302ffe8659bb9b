package inspect_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/inspect"
)

// weather is a tool that looks at the clock.
func weather() tool.Tool {
	type in struct {
		City string `json:"city"`
	}
	return tool.Typed("weather", "The weather of a city.", func(ctx context.Context, in in) (string, error) {
		return "mild in " + in.City + " in " + step.Now(ctx).UTC().Format("2006"), nil
	})
}

// record makes a run of one call.
func record(t testing.TB, log eventlog.EventLog, id, input string) {
	t.Helper()
	if _, err := (agent.Direct{Log: log, Tool: weather()}).RunWithID(t.Context(), id, json.RawMessage(input)); err != nil {
		t.Fatal(err)
	}
}

// appendEvent appends the next event of a run.
func appendEvent(t testing.TB, log *store.MemoryLog, id string, kind event.Kind, payload any) {
	t.Helper()
	raw, err := canon.Marshal(payload)
	if err != nil {
		t.Fatal(err)
	}
	ev := event.Event{RunID: id, Seq: 1, Timestamp: 1_800_000_000_000_000_000, Kind: kind, Payload: raw}
	if run, err := log.Run(t.Context(), id); err == nil {
		ev.Seq, ev.PrevHash = run.LastSeq+1, run.Head[:]
		ev.Timestamp += int64(ev.Seq) * 1e6
	}
	if ev.Seq == 1 {
		log.Adopt(ev) // the log may be another program's, and the id any text
	} else if err := log.Append(t.Context(), id, ev); err != nil {
		t.Fatal(err)
	}
}

// long makes an open run with so many events.
func long(t testing.TB, log *store.MemoryLog, id string, n int) {
	t.Helper()
	appendEvent(t, log, id, event.KindRunStarted, event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "go on and on"})
	for i := 2; i <= n; i++ {
		appendEvent(t, log, id, event.KindUserMessageAppended, event.UserMessageAppended{Content: "again"})
	}
}

// viewOf is a view that replays with the tool of this file.
func viewOf(log eventlog.EventLog, namespace string) eventview.View {
	return eventview.View{Log: log, Namespace: namespace, Title: "test", Replayer: func(ctx context.Context, runID string) (agent.Verdict, error) {
		events, err := log.Read(ctx, runID)
		if err != nil {
			return agent.Verdict{}, err
		}
		return agent.Replay(ctx, events, func(context.Context, event.ToolSchemaRef) (tool.Tool, error) { return weather(), nil }, agent.ReplayOptions{})
	}}
}

// browser is a client with cookies that loads pages of a server.
type browser struct {
	t      testing.TB
	base   string
	client *http.Client
}

// open serves a configuration and returns a browser for it.
func open(t testing.TB, c inspect.Config) *browser {
	t.Helper()
	s, err := inspect.New(c)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t, server.URL, &http.Client{Jar: jar}}
}

func openView(t testing.TB, v eventview.View) *browser {
	t.Helper()
	return open(t, inspect.Config{Scope: inspect.Only(v, "")})
}

// get loads a page.
func (b *browser) get(path string) (code int, body string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.base+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.do(req)
}

// post sends a form.
func (b *browser) post(path string, form url.Values) (code int, body string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(req)
}

func (b *browser) do(req *http.Request) (code int, body string) {
	b.t.Helper()
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// wants fails the test unless a page has all of these words.
func (b *browser) wants(path string, words ...string) string {
	b.t.Helper()
	code, body := b.get(path)
	if code != http.StatusOK {
		b.t.Fatalf("%s: %d", path, code)
	}
	for _, word := range words {
		if !strings.Contains(body, word) {
			b.t.Errorf("%s has no %q", path, word)
		}
	}
	return body
}
