package sqlitelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/dblog"
	"github.com/starling-host/starling/eventlog/logtest"
)

// vandal changes a log's file behind its back.
type vandal struct {
	t testing.TB
	c *conn
}

func newVandal(t testing.TB, l *Log) vandal {
	t.Helper()
	c, err := connect(t.Context(), l.path, "mode=rw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	v := vandal{t, c}
	v.exec("PRAGMA synchronous=OFF")
	return v
}

func (v vandal) exec(query string, args ...any) {
	v.t.Helper()
	if err := v.c.exec(context.Background(), query, args...); err != nil {
		v.t.Fatal(err)
	}
}

// flips returns, for each byte of a value, the value with one bit of that byte
// changed. The bit varies with the position.
func flips(v any) []any {
	var out []any
	switch v := v.(type) {
	case int64:
		for i := range 8 {
			out = append(out, v^1<<(8*i+(i*3)%8))
		}
	case []byte:
		for i := range v {
			b := bytes.Clone(v)
			b[i] ^= 1 << (i * 3 % 8)
			out = append(out, b)
		}
	case string:
		for _, b := range flips([]byte(v)) {
			out = append(out, string(b.([]byte)))
		}
	case float64:
		out = append(out, v+1)
	case nil:
		out = append(out, []byte{0}, make([]byte, 32))
	}
	return out
}

// agentRun is a run with a turn, two attempts of a call and an effect.
func agentRun(runID string) []event.Event {
	c := logtest.Chain{RunID: runID, Clock: 1_700_000_000_123_456_789}
	args, _ := event.EncodePayload(map[string]string{"city": "Paris"})
	value, _ := event.EncodePayload(42)
	return []event.Event{
		c.Start("weather"),
		c.Next(event.TurnStarted{TurnID: "t1", InputTokens: 7}),
		c.Next(event.AssistantMessageCompleted{TurnID: "t1", Text: "hm", InputTokens: 9, CostUSD: 0.5}),
		c.Next(event.ToolCallScheduled{CallID: "c1", TurnID: "t1", ToolName: "w", Args: args, Attempt: 1}),
		c.Next(event.ToolCallFailed{CallID: "c1", Error: "no", ErrorType: event.ErrorTool, Attempt: 1}),
		c.Next(event.ToolCallScheduled{CallID: "c1", TurnID: "t1", ToolName: "w", Args: args, Attempt: 2}),
		c.Next(event.SideEffectRecorded{Name: event.EffectNow, Value: value, CallID: "c1"}),
		c.Next(event.ToolCallCompleted{CallID: "c1", Result: value, Attempt: 2}),
		c.Complete(),
	}
}

func TestEveryByteOfAnEventIsCovered(t *testing.T) {
	t.Parallel()
	for name, evs := range map[string][]event.Event{"finished": agentRun("run-1"), "open": agentRun("run-1")[:7]} {
		t.Run("a changed byte is reported at its event in a run that is "+name, func(t *testing.T) {
			l := open(t)
			storeAll(t, l, evs)
			v := newVandal(t, l)
			tried := 0
			for _, e := range evs {
				tried += flipEvent(t, l, v, e)
			}
			t.Logf("%d changed bytes, all noticed", tried)
			check := eventlog.CheckOptions{Strict: true, AllowOpen: true}
			if _, err := eventlog.CheckRun(t.Context(), l, "run-1", check); err != nil {
				t.Errorf("after everything was put back: %v", err)
			}
		})
	}
}

func flipEvent(t *testing.T, l *Log, v vandal, e event.Event) (tried int) {
	pos, err := v.c.integer(t.Context(), fmt.Sprintf("SELECT pos FROM eventlog_events WHERE seq = %d", e.Seq))
	if err != nil {
		t.Fatal(err)
	}
	columns := []string{"run_id", "seq", "prev_hash", "ts", "kind", "payload"}
	for i, good := range eventValues(e) {
		update := "UPDATE eventlog_events SET " + columns[i] + " = ? WHERE pos = ?"
		for _, bad := range flips(good) {
			if v.c.exec(t.Context(), update, bad, pos) != nil {
				continue // another event has that number
			}
			tried++
			_, err := eventlog.CheckRun(t.Context(), l, "run-1", eventlog.CheckOptions{AllowOpen: true})
			var corrupt *eventlog.CorruptError
			if !errors.As(err, &corrupt) || corrupt.RunID != "run-1" || corrupt.Seq != e.Seq {
				t.Errorf("event %d (%v): %s = %v: %v", e.Seq, e.Kind, columns[i], bad, err)
			}
			v.exec(update, good, pos)
		}
	}
	return tried
}

func TestEveryByteOfASummaryIsCovered(t *testing.T) {
	t.Parallel()
	l := open(t)
	storeAll(t, l, agentRun("run-1"))
	s, err := l.Run(t.Context(), "run-1")
	if err != nil {
		t.Fatal(err)
	}
	v := newVandal(t, l)
	columns := []string{"started", "last_seq", "head", "terminal", "turns", "tools", "input_tokens", "output_tokens", "cost_usd", "duration_ms", "run_id"}
	for i, good := range append(dblog.Values(s), "run-1") {
		for _, bad := range flips(good) {
			v.exec("UPDATE run SET "+columns[i]+" = ?", bad)
			if err := checkAll(t, l.path); !errors.Is(err, eventlog.ErrLogCorrupt) {
				t.Errorf("%s = %v: %v", columns[i], bad, err)
			}
			v.exec("UPDATE run SET "+columns[i]+" = ?", good)
		}
	}
}

// checkAll checks every run of a log, as a reader.
func checkAll(t *testing.T, path string) error {
	t.Helper()
	l, err := Open(t.Context(), path, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	runs, err := l.ListRuns(t.Context())
	for _, r := range runs {
		_, checkErr := eventlog.CheckRun(t.Context(), l, r.RunID, eventlog.CheckOptions{})
		err = errors.Join(err, checkErr)
	}
	return err
}

func TestAWrongSummaryIsNamed(t *testing.T) {
	t.Parallel()
	l := open(t)
	storeAll(t, l, agentRun("run-1"))
	newVandal(t, l).exec("UPDATE run SET input_tokens = 12345")
	_, err := eventlog.CheckRun(t.Context(), l, "run-1", eventlog.CheckOptions{})
	if err == nil || !strings.Contains(err.Error(), "InputTokens is 12345, by the events it is ") {
		t.Error(err)
	}
}

func TestMissingRowsAreNoticed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, damage string
		seq          uint64
	}{
		{"the first event", "DELETE FROM eventlog_events WHERE seq = 1", 1},
		{"one in the middle", "DELETE FROM eventlog_events WHERE seq = 4", 4},
		{"the last one", "DELETE FROM eventlog_events WHERE seq = 9", 9},
		{"all of them", "DELETE FROM eventlog_events", 1},
	} {
		l := open(t)
		storeAll(t, l, agentRun("run-1"))
		newVandal(t, l).exec(tc.damage)
		_, err := eventlog.CheckRun(t.Context(), l, "run-1", eventlog.CheckOptions{AllowOpen: true})
		var corrupt *eventlog.CorruptError
		if !errors.As(err, &corrupt) || corrupt.RunID != "run-1" || corrupt.Seq != tc.seq {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestAChangedModuleIsNoticed(t *testing.T) {
	t.Parallel()
	l := open(t)
	digest, err := l.PutModule(t.Context(), []byte("module"))
	if err != nil {
		t.Fatal(err)
	}
	newVandal(t, l).exec("UPDATE module SET wasm = ?", []byte("Module"))
	if _, err := l.Module(t.Context(), digest); !errors.Is(err, eventlog.ErrLogCorrupt) {
		t.Error(err)
	}
}
