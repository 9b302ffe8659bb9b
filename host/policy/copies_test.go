package policy

import (
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// scheduled and exchanged make the events of a run that was left twice.
func scheduled(t *testing.T, call, key string, attempt uint32) event.Event {
	t.Helper()
	return made(t, event.KindToolCallScheduled, event.ToolCallScheduled{
		CallID: call, TurnID: "t", ToolName: "shop", Args: canon.Raw{0xa0}, Attempt: attempt, IdempKey: key,
	})
}

func exchanged(t *testing.T, call, path, answer string) event.Event {
	t.Helper()
	value, err := canon.Marshal(event.Exchange{Response: []byte(answer), Decision: event.Verdicts{{Policy: make([]byte, 32), Side: Operator, Rule: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	request := "GET https://a.test" + path + " HTTP/1.1\r\n\r\n"
	return made(t, event.KindSideEffectRecorded, event.SideEffectRecorded{Name: path, CallID: call, Request: []byte(request), Value: value})
}

func made[P event.Payload](t *testing.T, kind event.Kind, p P) event.Event {
	t.Helper()
	payload, err := event.EncodePayload(p)
	if err != nil {
		t.Fatal(err)
	}
	return event.Event{RunID: "r", Seq: 1, Kind: kind, Payload: payload}
}

func TestUsesOfTheBuiltInFetch(t *testing.T) {
	fetch := func(url string, failed *event.EffectError) event.Event {
		value, err := canon.Marshal(map[string]any{"url": url, "status": 200, "body": "x"})
		if err != nil {
			t.Fatal(err)
		}
		return made(t, event.KindSideEffectRecorded, event.SideEffectRecorded{Name: "fetch", CallID: "a", Request: []byte(url), Value: value, Error: failed})
	}
	uses, err := Uses([]event.Event{scheduled(t, "a", "", 1), fetch("https://a.test/x?y", nil), fetch("https://b.test/", &event.EffectError{Type: "discard"})})
	if err != nil || len(uses) != 2 || uses[1].Request.Host != "a.test" || uses[1].Request.Path != "/x" {
		t.Errorf("%+v, %v", uses, err)
	}
}

// What a call was told that another one took the place of is recorded again, and
// counts once.
func TestCopiesCountOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []event.Event
		want   uint64
	}{
		{"one call", []event.Event{scheduled(t, "a", "", 1), exchanged(t, "a", "/1", "x"), exchanged(t, "a", "/1", "x")}, 2},
		{"made again", []event.Event{
			scheduled(t, "a", "", 1), exchanged(t, "a", "/1", "x"), exchanged(t, "a", "/2", "y"),
			scheduled(t, "b", "a", 1), exchanged(t, "b", "/1", "x"), exchanged(t, "b", "/2", "y"), exchanged(t, "b", "/3", "z"),
		}, 3},
		{"made again twice", []event.Event{
			scheduled(t, "a", "", 1), exchanged(t, "a", "/1", "x"),
			scheduled(t, "b", "a", 1), exchanged(t, "b", "/1", "x"), exchanged(t, "b", "/2", "y"),
			scheduled(t, "c", "a", 1), exchanged(t, "c", "/1", "x"), exchanged(t, "c", "/2", "y"), exchanged(t, "c", "/2", "y"),
		}, 3},
		{"another way", []event.Event{
			scheduled(t, "a", "", 1), exchanged(t, "a", "/1", "x"), exchanged(t, "a", "/2", "y"),
			scheduled(t, "b", "a", 1), exchanged(t, "b", "/2", "y"), exchanged(t, "b", "/2", "y"),
		}, 4},
		{"another attempt", []event.Event{
			scheduled(t, "a", "", 1), exchanged(t, "a", "/1", "x"), scheduled(t, "a", "", 2), exchanged(t, "a", "/1", "x"),
		}, 2},
		{"two calls", []event.Event{
			scheduled(t, "a", "", 1), scheduled(t, "b", "", 1), exchanged(t, "a", "/1", "x"), exchanged(t, "b", "/1", "x"),
		}, 2},
	} {
		run := NewRun(nil, nil, nil)
		if err := run.Resume(c.events); err != nil {
			t.Fatal(err)
		}
		if got := run.used[Place{Operator, 1}].Calls; got != c.want {
			t.Errorf("%s: %d requests, want %d", c.name, got, c.want)
		}
		uses, err := Uses(c.events)
		requests := uint64(0)
		for _, use := range uses {
			if use.Request != nil {
				requests++
			}
		}
		if err != nil || requests != c.want {
			t.Errorf("%s: %d uses, want %d (%v)", c.name, requests, c.want, err)
		}
	}
}
