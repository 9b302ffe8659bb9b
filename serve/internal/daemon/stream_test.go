package daemon_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
)

// TestAStreamSaysWhyItEnds before its run: no event of the run tells of what happened
// to it, to the key of who looks on, or to the host. What it says has no id, so that a
// client goes on after the last event that it has.
func TestAStreamSaysWhyItEnds(t *testing.T) {
	for what, test := range map[string]struct {
		end     func(*world) error
		problem string
	}{
		"the run is removed": {func(w *world) error {
			_, err := w.log.PruneRuns(t.Context(), eventlog.PruneOptions{IncludeOpen: true})
			return err
		}, "removed"},
		"the tenant is suspended": {func(w *world) error { return w.tenants.Suspend(t.Context(), "alice") }, "unauthorized"},
		"the host stops":          {func(w *world) error { w.end(); return nil }, "unavailable"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, func(c *daemon.Config, q *queue.Config) {
				c.Heartbeat = time.Millisecond
				q.Limits = func(string) queue.Limits { return queue.Limits{Paused: true} }
			})
			id := w.accept(`{"goal":"Guess."}`)
			ctx, cancel := context.WithTimeout(t.Context(), awaitTime)
			defer cancel()
			stream := w.follow(ctx, id)
			if err := test.end(w); err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(stream)
			if err != nil {
				t.Fatal(err)
			}
			endsWith(t, string(text), test.problem)
		})
	}
}

// TestAStreamOfALogThatIsCorrupt has the events before, and says that the host has
// failed, as every other answer about the rest of them does.
func TestAStreamOfALogThatIsCorrupt(t *testing.T) {
	w := newWorld(t, nil)
	id := w.accept(`{"goal":"Guess."}`)
	w.awaitEnd(id)
	db, err := sql.Open("sqlite", w.path+"?_pragma=busy_timeout(30000)") // the host may be writing
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "UPDATE eventlog_events SET ts = ts + 1 WHERE run_id = ? AND seq = 3", "alice/"+id); err != nil {
		t.Fatal(err)
	}
	text := w.do("alice", "GET", "/api/v1/runs/"+id+"/stream", "", nil).Body.String()
	if !strings.HasPrefix(text, "id: 1\n") || !strings.Contains(text, "\nid: 2\n") {
		t.Errorf("it does not have what was before: %s", text)
	}
	endsWith(t, text, "internal")
}

// endsWith looks for a problem at the end of a stream, which tells of nothing else.
func endsWith(t *testing.T, text, problem string) {
	t.Helper()
	before, last, _ := strings.Cut(text, "event: error\n")
	if strings.Contains(text, "event: done") || strings.Contains(last, "event:") || !strings.HasSuffix(before, "\n\n") ||
		!strings.HasPrefix(last, "data: {\"type\":") || !strings.Contains(last, "problems.md#"+problem+`"`) || !strings.HasSuffix(last, "}\n\n") {
		t.Errorf("want the problem %s at the end, and got\n%s", problem, text)
	}
}

// TestAStreamSaysWhereARunStands that waits, and that it has begun; of one that waits
// for nothing it says neither.
func TestAStreamSaysWhereARunStands(t *testing.T) {
	var going atomic.Bool
	w := newWorld(t, func(c *daemon.Config, q *queue.Config) {
		q.Limits = func(string) queue.Limits { return queue.Limits{Paused: !going.Load()} }
	})
	w.accept(`{"goal":"Guess."}`)
	id := w.accept(`{"goal":"Guess."}`)
	stream := w.follow(t.Context(), id)
	waiting := fmt.Sprintf("event: status\ndata: {\"run_id\":%q,\"status\":\"open\",\"waiting\":true,\"position\":2,\"job\":{\"state\":\"waiting\",\"attempt\":0,\"max_attempts\":5}}\n\nid: 1\nevent: event\n", id)
	got := make([]byte, len(waiting))
	if _, err := io.ReadFull(stream, got); err != nil || string(got) != waiting {
		t.Fatalf("the stream of a run that waits begins with\n%s\n%v", got, err)
	}
	going.Store(true)
	w.accept(`{"goal":"Guess."}`) // has the queue look
	text, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	begun := fmt.Sprintf("\n\nevent: status\ndata: {\"run_id\":%q,\"status\":\"open\",\"waiting\":false}\n\nid: 2\nevent: event\n", id)
	if !strings.Contains(string(text), begun) || strings.Count(string(text), "event: status") != 1 || !strings.Contains(string(text), "event: done") {
		t.Errorf("it goes on with\n%s", text)
	}
	if again := w.do("alice", "GET", "/api/v1/runs/"+id+"/stream", "", nil).Body.String(); strings.Contains(again, "event: status") {
		t.Errorf("the stream of a run that has ended\n%s", again)
	}
}

// TestARunThatNeverBegins, since it is cancelled while it waits, is not said to have.
func TestARunThatNeverBegins(t *testing.T) {
	w := newWorld(t, func(c *daemon.Config, q *queue.Config) {
		q.Limits = func(string) queue.Limits { return queue.Limits{MaxRunning: 1} }
	})
	if upload := w.do("alice", "POST", "/api/v1/modules?name=spin", "application/wasm", testModules["spin"]()); upload.Code != http.StatusCreated {
		t.Fatalf("%d %s", upload.Code, upload.Body)
	}
	first := w.accept(`{"tool":"spin"}`)
	w.awaitEvents(first, 2)
	id := w.accept(`{"goal":"Guess."}`)
	stream := w.follow(t.Context(), id)
	for _, run := range []string{id, first} {
		if answer := w.do("alice", "POST", "/api/v1/runs/"+run+"/cancel", "", nil); answer.Code != http.StatusAccepted {
			t.Fatalf("%d %s", answer.Code, answer.Body)
		}
	}
	text, err := io.ReadAll(stream)
	if err != nil || strings.Contains(string(text), `"waiting":false`) || !strings.Contains(string(text), `"status":"cancelled"`) {
		t.Errorf("%v\n%s", err, text)
	}
}

// follow returns the stream of a run of alice's.
func (w *world) follow(ctx context.Context, id string) io.Reader {
	w.t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", w.url+"/api/v1/runs/"+id+"/stream", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.keys["alice"])
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		w.t.Fatalf("%v %v", answer, err)
	}
	w.t.Cleanup(func() { answer.Body.Close() })
	return answer.Body
}
