//go:build !wasip1

package starlingtest

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/starling-host/starling/abi"
	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/internal/hostcall"
)

// Host answers the imports of the tools under test. The zero value is a fixed
// clock, a fixed sequence of random numbers, and no network.
//
// It does not affect the standard library: time.Now, time.Sleep and crypto/rand
// are the machine's. In the bubble of [testing/synctest.Test] the former stand
// still until the tool sleeps, and sleeping takes no time.
type Host struct {
	// Now is the first reading of starling.Now in each call; every further
	// reading is a microsecond later. Zero: midnight UTC on 1 January 2026.
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
	Output    string     // the output, as JSON; empty after a failure
	Failure   *abi.Error // nil when the tool succeeded
	Exchanges []Exchange // the HTTP exchanges, in their order
}

// Exchange is one HTTP exchange that reached the host.
type Exchange struct {
	Effect string // the name under which it would be recorded
	Method string
	URL    string
}

// Call calls a tool of the program under test with a JSON document as input. A
// failure of the tool is part of the result; t fails only when the tool does
// not exist or the input is not JSON.
func (h Host) Call(t testing.TB, tool, input string) Result {
	t.Helper()
	envelope, err := json.Marshal(abi.Input{Tool: tool, Input: abi.JSON(input), Context: h.context()})
	if err != nil {
		t.Fatalf("starlingtest: input %q: %v", input, err)
	}
	w := h.world()
	guest, release := hostcall.Use(w)
	defer release()
	if !describes(t, guest, tool) {
		t.Fatalf("starlingtest: the program registers no tool %q", tool)
	}
	var answer struct {
		Output json.RawMessage
		Error  *abi.Error
	}
	decode(t, guest.Execute(envelope), &answer)
	return Result{Output: string(answer.Output), Failure: answer.Error, Exchanges: w.exchanges}
}

// Describe returns how the program under test describes its tools.
func Describe(t testing.TB) abi.Description {
	t.Helper()
	guest, release := hostcall.Use(noWorld{})
	defer release()
	return description(t, guest)
}

func description(t testing.TB, guest hostcall.Guest) abi.Description {
	t.Helper()
	var d abi.Description
	decode(t, guest.Describe(), &d)
	return d
}

func describes(t testing.TB, guest hostcall.Guest, tool string) bool {
	t.Helper()
	for _, d := range description(t, guest).Tools {
		if d.Name == tool {
			return true
		}
	}
	return false
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

func (h Host) context() abi.Context {
	c := abi.Context{RunID: h.Info.RunID, CallID: h.Info.CallID, Attempt: h.Info.Attempt, Variables: h.Info.Variables}
	if c.RunID == "" {
		c.RunID = "run"
	}
	if c.CallID == "" {
		c.CallID = "call"
	}
	c.Attempt = max(c.Attempt, 1)
	return c
}

func (h Host) world() *world {
	w := &world{now: h.Now, random: h.Random, handler: h.HTTP}
	if w.now.IsZero() {
		w.now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if w.random == nil {
		w.random = rand.NewPCG(0, 0).Uint64
	}
	return w
}
