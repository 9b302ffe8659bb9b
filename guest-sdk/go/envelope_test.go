package starling

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// answers are the handlers of the tools in this file's envelopes, by tool name.
var answers = map[string]func(call *Call, input []byte) ([]byte, error){
	"t_echo":    func(_ *Call, input []byte) ([]byte, error) { return input, nil },
	"t_nothing": func(*Call, []byte) ([]byte, error) { return nil, nil },
	"t_call":    func(c *Call, _ []byte) ([]byte, error) { return json.Marshal(c) },
	"t_clobber": func(c *Call, input []byte) ([]byte, error) {
		_ = append(input, strings.Repeat("x", 64)...)
		return c.Variables, nil
	},
	"t_plain":     func(*Call, []byte) ([]byte, error) { return nil, errors.New("no \"luck\"\n") },
	"t_transient": func(*Call, []byte) ([]byte, error) { return nil, Transient(errors.New("busy")) },
	"t_cancel":    func(*Call, []byte) ([]byte, error) { return nil, Cancel(errors.New("forbidden")) },
	"t_snooze":    func(*Call, []byte) ([]byte, error) { return nil, Snooze(1500, errors.New("rate limit")) },
	"t_wrapped": func(*Call, []byte) ([]byte, error) {
		return nil, fmt.Errorf("lookup: %w", Discard(Transient(errors.New("bad id"))))
	},
	"t_joined": func(*Call, []byte) ([]byte, error) {
		return nil, errors.Join(errors.New("first"), fmt.Errorf("x: %w", Transient(errors.New("second"))))
	},
	"t_denied":  func(*Call, []byte) ([]byte, error) { return nil, fmt.Errorf("get: %w", &HTTPError{Reason: ErrDenied}) },
	"t_timeout": func(*Call, []byte) ([]byte, error) { return nil, &HTTPError{Reason: ErrTimeout, Text: "30s"} },
	"t_large":   func(*Call, []byte) ([]byte, error) { return nil, &HTTPError{Reason: ErrTooLarge} },
}

func init() {
	for name, fn := range answers {
		Register(Tool{Name: name, Execute: fn})
	}
}

func TestExecuteAnswersEnvelopes(t *testing.T) {
	const context = `"context":{"run_id":"r","call_id":"c","attempt":2,"variables":{"tenant":"t1"}}`
	for _, c := range []struct{ name, envelope, want string }{
		{"the input comes back", `{"tool":"t_echo","input":{"a":[1, 2.50]},` + context + `}`, `{"output":{"a":[1, 2.50]}}`},
		{"members may come in any order", `{` + context + `,"input":1,"tool":"t_echo"}`, `{"output":1}`},
		{"unknown members are passed over", `{"tool":"t_echo","later":[{}],"input":1,` + context + `}`, `{"output":1}`},
		{"what the host escapes", `{"tool":"t_call","input":"a\"]}","context":{"call_id":"a\u003c\"\\","run_id":"é","attempt":1}}`, `{"output":{"RunID":"é","CallID":"a\u003c\"\\","Attempt":1,"Variables":null}}`},
		{"no output is null", `{"tool":"t_nothing","input":{},` + context + `}`, `{"output":null}`},
		{"the context arrives", `{"tool":"t_call","input":{},` + context + `}`, `{"output":{"RunID":"r","CallID":"c","Attempt":2,"Variables":"eyJ0ZW5hbnQiOiJ0MSJ9"}}`},
		{"appending to the input leaves the variables alone", `{"tool":"t_clobber","input":1,` + context + `}`, `{"output":{"tenant":"t1"}}`},
		{"a plain error", `{"tool":"t_plain","input":{},` + context + `}`, `{"error":{"kind":"tool","message":"no \"luck\"\u000a"}}`},
		{"transient", `{"tool":"t_transient","input":{},` + context + `}`, `{"error":{"kind":"transient","message":"busy"}}`},
		{"cancel", `{"tool":"t_cancel","input":{},` + context + `}`, `{"error":{"kind":"cancel","message":"forbidden"}}`},
		{"snooze", `{"tool":"t_snooze","input":{},` + context + `}`, `{"error":{"kind":"snooze","message":"rate limit","retry_after_ms":1500}}`},
		{"the outermost mark decides", `{"tool":"t_wrapped","input":{},` + context + `}`, `{"error":{"kind":"discard","message":"lookup: bad id"}}`},
		{"a mark below a join is found", `{"tool":"t_joined","input":{},` + context + `}`, `{"error":{"kind":"transient","message":"first\u000ax: second"}}`},
		{"a denial cancels", `{"tool":"t_denied","input":{},` + context + `}`, `{"error":{"kind":"cancel","message":"get: http: denied"}}`},
		{"a timeout is transient", `{"tool":"t_timeout","input":{},` + context + `}`, `{"error":{"kind":"transient","message":"http: timeout: 30s"}}`},
		{"too large is a failure of the tool", `{"tool":"t_large","input":{},` + context + `}`, `{"error":{"kind":"tool","message":"http: too large"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(execute([]byte(c.envelope))); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestUnknownToolIsDiscarded(t *testing.T) {
	got := string(execute([]byte(`{"tool":"nosuch","input":{},"context":{}}`)))
	if !strings.HasPrefix(got, `{"error":{"kind":"discard","message":"starling: the module has no tool named nosuch, it has `) || !strings.Contains(got, "t_echo") {
		t.Error(got)
	}
}

func TestDescriptionIsTheContracts(t *testing.T) {
	full := Tool{
		Name: "full", Description: "All of it: \"quotes\", é.", InputSchema: `{"type":"object","properties":{}}`, OutputSchema: `{"type":"string"}`,
		Effects: []string{"api.example.com", "b.example.com:8443"}, Idempotent: true,
		Limits: Limits{Fuel: 1 << 60, MemoryBytes: 1 << 20, TimeoutMs: 1500},
	}
	for _, c := range []struct {
		tool Tool
		want string
	}{
		{full, `{"name":"full","description":"All of it: \"quotes\", é.","input_schema":{"type":"object","properties":{}},"output_schema":{"type":"string"},` +
			`"effects":["api.example.com","b.example.com:8443"],"idempotent":true,"limits":{"fuel":1152921504606846976,"memory_bytes":1048576,"timeout_ms":1500}}`},
		{Tool{Name: "bare"}, `{"name":"bare","description":"","input_schema":{"type":"object"}}`},
		{Tool{Name: "one", Limits: Limits{TimeoutMs: 1}, Effects: []string{"a"}},
			`{"name":"one","description":"","input_schema":{"type":"object"},"effects":["a"],"limits":{"timeout_ms":1}}`},
	} {
		if got := string(c.tool.appendDescription(nil)); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
