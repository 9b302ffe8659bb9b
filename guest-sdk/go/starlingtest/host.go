//go:build !wasip1

package starlingtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/internal/hostcall"
)

// Host answers the imports of the tools under test. The zero value is a fixed
// clock, a fixed sequence of random numbers, and no network.
//
// A call runs in virtual time, as in a module: time.Now begins at the field Now,
// time.Sleep and timers take no real time, and an HTTP handler that sleeps is a
// slow server. It is the bubble of [testing/synctest.Test], so Go 1.25 is needed:
// with Go 1.24, and in a benchmark, package time is the machine's.
type Host struct {
	// Now is the first reading of starling.Now in each call; every further
	// reading is a microsecond later. It is also the first reading of time.Now,
	// if it is not before the year 2000, where virtual time begins. Zero:
	// midnight UTC on 1 January 2026.
	Now time.Time

	// Random is starling.Random. Nil: a sequence that begins anew in each call.
	Random func() uint64

	// HTTP answers requests. A handler that calls [Fail] makes the exchange
	// fail. Nil: every request is denied.
	HTTP http.Handler

	// Info is the tool's information about its call. Zero: run "run", call
	// "call", attempt 1.
	Info starling.Call
}

// Result is how a call ended.
type Result struct {
	Output    string          // the output, as JSON; empty after a failure
	Failure   *starling.Error // nil when the tool succeeded
	Exchanges []Exchange      // the HTTP exchanges, in their order
}

// Exchange is one HTTP exchange that reached the host.
type Exchange struct {
	Effect string // the name under which it would be recorded
	Method string
	URL    string
}

// The envelopes of starling_execute.
type (
	envelope struct {
		Tool    string          `json:"tool"`
		Input   json.RawMessage `json:"input"`
		Context callContext     `json:"context"`
	}
	callContext struct {
		RunID     string          `json:"run_id"`
		CallID    string          `json:"call_id"`
		Attempt   uint32          `json:"attempt"`
		Variables json.RawMessage `json:"variables,omitempty"`
	}
	answer struct {
		Output json.RawMessage `json:"output"`
		Error  *struct {
			Kind         starling.Kind `json:"kind"`
			Message      string        `json:"message"`
			RetryAfterMs int64         `json:"retry_after_ms"`
		} `json:"error"`
	}
)

// Call calls a tool of the program under test with a JSON document as input. A
// failure of the tool is part of the result; t fails only when the tool does
// not exist or never returns, or the input is not JSON.
func (h Host) Call(t testing.TB, tool, input string) Result {
	t.Helper()
	c := callContext{RunID: h.Info.RunID, CallID: h.Info.CallID, Attempt: max(h.Info.Attempt, 1), Variables: h.Info.Variables}
	if c.RunID == "" {
		c.RunID = "run"
	}
	if c.CallID == "" {
		c.CallID = "call"
	}
	doc, err := json.Marshal(envelope{Tool: tool, Input: json.RawMessage(input), Context: c})
	if err != nil {
		t.Fatalf("starlingtest: input %q: %v", input, err)
	}
	w := &world{now: h.Now, random: h.Random, handler: h.HTTP}
	if w.now.IsZero() {
		w.now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if w.random == nil {
		w.random = rand.NewPCG(0, 0).Uint64
	}
	guest, release := hostcall.Use(w)
	defer release()
	known := false
	for _, d := range description(t, guest) {
		known = known || d.Name == tool
	}
	if !known {
		t.Fatalf("starlingtest: the program registers no tool %q", tool)
	}
	var said []byte
	virtually(t, w, func() { said = guest.Execute(doc) })
	var a answer
	decode(t, said, &a)
	result := Result{Output: string(a.Output), Exchanges: w.exchanges}
	if e := a.Error; e != nil {
		result.Failure = &starling.Error{Kind: e.Kind, RetryAfterMs: e.RetryAfterMs, Err: errors.New(e.Message)}
	}
	return result
}

// Describe returns the tools of the program under test as the host sees them, which is
// without Execute.
func Describe(t testing.TB) []starling.Tool {
	t.Helper()
	guest, release := hostcall.Use(noWorld{})
	defer release()
	return description(t, guest)
}

func description(t testing.TB, guest hostcall.Guest) (tools []starling.Tool) {
	t.Helper()
	var d struct {
		Tools []struct {
			Name         string          `json:"name"`
			Description  string          `json:"description"`
			InputSchema  json.RawMessage `json:"input_schema"`
			OutputSchema json.RawMessage `json:"output_schema"`
			Effects      []string        `json:"effects"`
			Idempotent   bool            `json:"idempotent"`
			Limits       struct {
				Fuel        uint64 `json:"fuel"`
				MemoryBytes uint64 `json:"memory_bytes"`
				TimeoutMs   int64  `json:"timeout_ms"`
			} `json:"limits"`
		} `json:"tools"`
	}
	decode(t, guest.Describe(), &d)
	for _, tool := range d.Tools {
		tools = append(tools, starling.Tool{
			Name: tool.Name, Description: tool.Description, InputSchema: string(tool.InputSchema), OutputSchema: string(tool.OutputSchema),
			Effects: tool.Effects, Idempotent: tool.Idempotent, Limits: starling.Limits(tool.Limits),
		})
	}
	return tools
}

// decode reads a document of the SDK; a parse error is the SDK's fault.
func decode(t testing.TB, doc []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(doc))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("starlingtest: the SDK wrote %s: %v", doc, err)
	}
}
