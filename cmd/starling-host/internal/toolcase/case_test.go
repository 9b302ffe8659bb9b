package toolcase

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/egress"
)

// TestFormat checks that a case survives its file.
func TestFormat(t *testing.T) {
	c := &Case{
		Name: "all", Path: "cases/all.txtar", Comment: "What it shows.\n", Tool: "lookup", Input: []byte(`{"id": 7}`),
		Effects: []Effect{
			{Now: "2026-01-02T03:04:05.000000678Z"}, {Random: "00000000000000ff"}, {Seed: strings.Repeat("0a", 32)},
			{
				Request:  &Request{Method: "POST", URL: "http://a.test/<x>?y=1&z={{secret:KEY}}", Effect: "create", Headers: Headers{"Accept": {"a", "b"}, "Content-Type": {"application/json"}}, Body: newBody([]byte(`{"a":"<\u2028>"}`))},
				Response: &Response{Status: 200, Headers: Headers{}, Body: newBody([]byte("a\nb"))},
			},
			{Request: &Request{Method: "GET", URL: "http://a.test/", Body: newBody([]byte{0xff})}, Failure: &Failure{"network", "connection refused"}},
		},
		Output: []byte(`{"a":1,"b":[true]}`), Fuel: Band{1, 1_500_000},
	}
	text := c.Format()
	got, err := Parse(c.Path, text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for i := range got.Effects { // only the indentation may differ
		if r := got.Effects[i].Request; r != nil && r.JSON != nil {
			r.Body = newBody(r.bytes())
		}
	}
	if diff := cmp.Diff(c, got); diff != "" {
		t.Errorf("%s\n%s", diff, text)
	}
	if again := got.Format(); string(again) != string(text) {
		t.Errorf("written again:\n%s", cmp.Diff(string(text), string(again)))
	}
}

// TestRecordedExchange checks that the tool gets, byte for byte, the response that was recorded.
func TestRecordedExchange(t *testing.T) {
	for _, c := range []struct{ name, request, response string }{
		{"text", "GET http://a.test/ HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: text/plain\r\n\r\nhello"},
		{"JSON", "POST http://a.test/ HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 201 Created\r\nContent-Length: 9\r\nX: 1\r\nX: 2\r\n\r\n{\"a\":\"<\"}"},
		{"JSON with spaces", "GET http://a.test/ HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{\"a\": 1}"},
		{"bytes", "GET http://a.test/ HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\x00"},
		{"nothing", "DELETE http://a.test/ HTTP/1.1\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n"},
		{"a head", "HEAD http://a.test/ HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"},
		{"a head without a length", "HEAD http://a.test/ HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found\r\n\r\n"},
		{"an unknown status", "GET http://a.test/ HTTP/1.1\r\n\r\n", "HTTP/1.1 299 \r\nContent-Length: 0\r\n\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			recorded := event.SideEffectRecorded{Name: "effect", Request: []byte(c.request), Value: marshal(t, event.Exchange{Response: []byte(c.response)}), DurationUs: 1_500_250}
			e, err := newEffect(recorded, nil)
			if err != nil {
				t.Fatal(err)
			}
			text := encodeEffects([]Effect{*e})
			var read []Effect
			if err := json.Unmarshal(text, &read); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			a := &answers{left: read}
			value, took, err := a.answer("effect", []byte(c.request))
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if diff := cmp.Diff(string(recorded.Value), string(value)); diff != "" || took != 1_500_250*time.Microsecond {
				t.Errorf("it took %v", took)
				t.Errorf("%s\n%s", diff, text)
			}
			if got := strings.Contains(string(text), "Content-Length"); got != (c.name == "a head") {
				t.Errorf("it has a Content-Length: %v\n%s", got, text)
			}
		})
	}
}

func marshal(t *testing.T, v any) canon.Raw {
	t.Helper()
	raw, err := canon.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestAnswers checks what is an answer to what.
func TestAnswers(t *testing.T) {
	get := func(path, headers string) []byte {
		return []byte("GET http://a.test" + path + " HTTP/1.1\r\n" + headers + "\r\n")
	}
	recorded := []Effect{
		{Now: "2026-01-02T03:04:05Z"},
		{Request: &Request{Method: "GET", URL: "http://a.test/1"}, Response: &Response{Status: 200}},
		{Now: "2026-01-02T03:04:06Z"},
		{Request: &Request{Method: "GET", URL: "http://a.test/2", Headers: Headers{"A": {"b"}}}, Failure: &Failure{"timeout", "late"}},
	}
	a := &answers{left: recorded}
	for i, ask := range []struct {
		name    string
		request []byte
		want    any
	}{
		{"now", nil, int64(1767323045_000000000)},
		{"now", nil, int64(1767323046_000000000)}, // although requests stand between them
		{"x", get("/1", "Any: header\r\n"), event.Exchange{Response: []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")}},
		{"x", get("/2", "A: b\r\n"), event.Exchange{Status: (&egress.Error{Status: -3}).Status, Text: "late"}},
	} {
		value, _, err := a.answer(ask.name, ask.request)
		if err != nil || string(value) != string(marshal(t, ask.want)) {
			t.Errorf("answer %d is %x, %v", i, value, err)
		}
	}
	for _, ask := range []struct {
		name    string
		left    []Effect
		request []byte
		want    string
	}{
		{"now", recorded[1:2], nil, "the tool reads the clock more often than the case records"},
		{"rand", recorded, nil, "the tool draws more random numbers than the case records"},
		{"seed", recorded, nil, "the tool draws a seed, and the case records none"},
		{"x", recorded[:1], get("/1", ""), "the tool requests GET http://a.test/1, and the case records no more requests"},
		{"x", recorded, get("/2", "A: b\r\n"), "the tool makes another request than the case records"},
		{"x", recorded[2:], get("/2", "A: c\r\n"), "the tool makes another request than the case records"},
		{"x", recorded[2:], get("/2", ""), "the tool makes another request than the case records"},
	} {
		if _, _, err := (&answers{left: ask.left}).answer(ask.name, ask.request); err == nil || err.Error() != ask.want {
			t.Errorf("%s %s: %v, want %s", ask.name, ask.request, err, ask.want)
		}
	}
}

// TestParseRefuses checks the messages about files that are not cases.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "it has no input.json"},
		{"-- input.json --\n{\n", "input.json: line 1, column 2: "},
		{"-- input.json --\n{}\n-- input.json --\n{}\n", "input.json: this part is not known, or there twice"},
		{"-- input.json --\n{}\n-- output.json --\n1\n-- error.txt --\nno\n", "it has both output.json and error.txt"},
		{"-- input.json --\n{}\n-- fuel --\n10\n", `fuel: "10" is not a range such as 200k..400k`},
		{"-- input.json --\n{}\n-- fuel --\n10..5\n", "is not a range"},
		{"-- input.json --\n{}\n-- effects.json --\n[{}]\n", "effects.json: effect 1: it must be one of now, random, seed, request and call"},
		{"-- input.json --\n{}\n-- effects.json --\n[{\"now\":\"today\"}]\n", `effect 1: now: "today" is not a time`},
		{"-- input.json --\n{}\n-- effects.json --\n[\n{\"noww\":\"\"}]\n", `unknown field "noww"`},
		{"-- input.json --\n{}\n-- effects.json --\n[\n{\"random\":\"12\"}]\n", "random has 16 hexadecimal digits"},
		{"-- input.json --\n{}\n-- effects.json --\n[{\"request\":{\"method\":\"GET\",\"url\":\"http://a.test\"}}]\n", "a request has a response or a failure"},
		{"-- input.json --\n{}\n-- effects.json --\n[{\"call\":{\"tool\":\"a\",\"input\":{}},\"response\":{\"status\":200}}]\n", "a call has an output or a failure"},
		{"-- input.json --\n{}\n-- effects.json --\n[{\"call\":{\"tool\":\"a\"},\"output\":1}]\n", "the input of a call: "},
		{"-- input.json --\n{}\n-- effects.json --\n[{\"call\":{\"tool\":\"a\",\"input\":{}},\"failure\":{\"status\":\"timeout\"}}]\n", "a call does not fail with the status \"timeout\": tool, panic, fuel, limit"},
		{"-- input.json --\n{}\n-- effects.json --\n[{\"request\":{},\"failure\":{\"status\":\"gone\"}}]\n", `"gone" is not a status`},
		{"-- input.json --\n{}\n-- effects.json --\n[{\"request\":{},\"response\":{\"status\":99}}]\n", "from 200 to 999, not 99"},
		{"-- input.json --\n{}\n-- effects.json --\n[{\"request\":{\"headers\":{\"A\":1}},\"response\":{\"status\":200}}]\n", `header "A" is not a string of one line`},
	} {
		if _, err := Parse("cases/x.txtar", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
}

func TestAround(t *testing.T) {
	for fuel, want := range map[uint64]string{1: "1..1", 455_543: "340k..570k", 1_000_000: "700k..1300k", 9_999: "7400..12500"} {
		if b := around(fuel); b.String() != want || b.Min > fuel || b.Max < fuel {
			t.Errorf("around %d: %v, want %s", fuel, b, want)
		}
	}
}
