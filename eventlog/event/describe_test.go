package event_test

import (
	"testing"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// TestEvents has one line for each kind with its own description, and an error
// for a payload that does not fit its kind.
func TestEvents(t *testing.T) {
	encode := func(v any) canon.Raw {
		raw, err := canon.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	const get = "GET http://h/ HTTP/1.1\r\nAccept: */*\r\n\r\n"
	answered := event.Exchange{Response: []byte("HTTP/1.1 503 Service Unavailable\r\n\r\nlater")}
	for _, c := range []struct {
		kind    event.Kind
		payload any
		want    string
	}{
		{event.KindRunStarted, event.RunStarted{Goal: "find it", ModelID: "m", ProviderID: "p"}, "find it; p/m"},
		{event.KindUserMessageAppended, event.UserMessageAppended{Content: "go on"}, "go on"},
		{event.KindAssistantMessageCompleted, event.AssistantMessageCompleted{OutputTokens: 3, StopReason: "end_turn", Text: "all of it"}, "0 tokens in, 3 out; all of it"},
		{event.KindAssistantMessageCompleted, event.AssistantMessageCompleted{OutputTokens: 3, StopReason: "length", Text: "half"}, "0 tokens in, 3 out; stopped by length; half"},
		{event.KindToolCallScheduled, event.ToolCallScheduled{ToolName: "dice", Args: encode(map[string]int{"n": 2}), Attempt: 2}, `attempt 2: dice {"n":2}`},
		{event.KindToolCallCompleted, event.ToolCallCompleted{Result: encode(7), Meter: event.Meter{Fuel: 1200, PeakMemory: 1 << 20}}, "fuel 1,200, memory 1MiB; 7"},
		{event.KindToolCallFailed, event.ToolCallFailed{ErrorType: "tool", Error: "no"}, "tool: no"},
		{event.KindSideEffectRecorded, event.SideEffectRecorded{Name: event.EffectNow, Value: encode(int64(1e18))}, "now = 2001-09-09T01:46:40Z"},
		{event.KindSideEffectRecorded, event.SideEffectRecorded{Name: "GET http://h/", Request: []byte(get), Value: encode(answered)}, "GET http://h/ -> 503 Service Unavailable, 41B"},
		{event.KindSideEffectRecorded, event.SideEffectRecorded{Name: "rate/EUR/USD", Request: []byte(get), Value: encode(answered)}, "rate/EUR/USD: GET http://h/ -> 503 Service Unavailable, 41B"},
		{event.KindSideEffectRecorded, event.SideEffectRecorded{Name: "rate", Request: []byte(get), Value: encode(event.Exchange{Status: abi.StatusDenied, Text: "no"})}, "rate: GET http://h/ -> denied: no"},
		{event.KindSideEffectRecorded, event.SideEffectRecorded{Name: "rate", Request: []byte(get), Value: encode(7)}, "rate: GET http://h/ -> 7"},
		{event.KindSideEffectRecorded, event.SideEffectRecorded{Name: "mcp/search", Request: []byte(`{"q":1}`), Value: encode(7)}, `mcp/search "{\"q\":1}" = 7`},
		{event.KindSideEffectRecorded, event.SideEffectRecorded{Name: "call dice", Value: encode(event.NestedCall{CallID: "01CALL"})}, "called dice, as call 01CALL"},
		{event.KindSideEffectRecorded, event.SideEffectRecorded{Name: "call dice", Value: encode(7)}, "call dice = 7"},
		{event.KindSideEffectRecorded, event.SideEffectRecorded{Name: "call dice", Error: &event.EffectError{Type: "policy", Message: "no"}}, "call dice failed: policy: no"},
		{event.KindRunFailed, event.RunFailed{ErrorType: "fuel", Error: "spent"}, "fuel: spent"},
		{event.KindRunResumed, event.RunResumed{AtSeq: 4}, "after event 4"},
	} {
		got, err := event.Describe(event.Event{Kind: c.kind, Payload: encode(c.payload)})
		if got != c.want || err != nil {
			t.Errorf("%v: got %q, %v; want %q", c.kind, got, err, c.want)
		}
	}
	if got, err := event.Describe(event.Event{Kind: event.KindRunFailed, Payload: encode(7)}); err == nil {
		t.Errorf("a payload that is a number reads %q", got)
	}
}
