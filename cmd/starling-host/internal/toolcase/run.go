package toolcase

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/step"
)

// Problem is one way in which a tool differs from its case.
type Problem struct {
	What string   `json:"what"`
	Diff []string `json:"diff,omitempty"` // lines, see [display.LineDifference]
}

// Error is for a problem that ends a call, which asks for something that its case does not answer.
func (p *Problem) Error() string { return p.What }

// Verdict is the outcome of a case.
type Verdict struct {
	Case     string    `json:"case"`
	Passed   bool      `json:"passed"`
	Fuel     uint64    `json:"fuel"`
	Effects  int       `json:"effects"`
	Problems []Problem `json:"problems,omitempty"`
}

// Run calls the tool with the input of the case, and compares. The effects of the case answer the
// call, and there is no network. Requests are matched in their order by method, URL, name, body and,
// if the case has them, headers, and calls of other tools by name and input. Readings of the clock,
// random numbers and seeds are each answered in their order. The call may ask for nothing else, and
// must make all requests and calls.
func (c *Case) Run(ctx context.Context, t Trial) (Verdict, error) {
	v := Verdict{Case: c.Name}
	differs := func(diff []string, format string, args ...any) {
		v.Problems = append(v.Problems, Problem{fmt.Sprintf(format, args...), diff})
	}
	if c.Output == nil && c.Error == "" {
		differs(nil, "it expects nothing yet: it has neither %s nor %s", fileOutput, fileError)
		return v, nil
	}
	a := &answers{left: c.Effects}
	run, failure, err := t.Call(step.WithAnswers(ctx, a.answer), c.Tool, c.Input, a.others())
	if run != nil {
		v.Fuel, v.Effects = run.Meter.Fuel, run.Meter.Effects
	}
	if other, ok := errors.AsType[*Problem](err); ok {
		a.wrong = cmp.Or(a.wrong, other)
	} else if err != nil && a.wrong == nil {
		return v, err
	}
	if a.wrong != nil {
		v.Problems = []Problem{*a.wrong}
		return v, nil
	}
	var output []byte
	if run != nil && failure == "" {
		output = run.Result
	}
	switch {
	case c.Output != nil && output == nil:
		differs(nil, "the tool failed, and %s is expected: %s", fileOutput, failure)
		if run != nil && run.Log != "" {
			differs(strings.Split("  "+strings.ReplaceAll(strings.TrimSpace(run.Log), "\n", "\n  "), "\n"), "before that it wrote")
		}
	case c.Output == nil && output != nil:
		differs(display.LineDifference(c.Error, Pretty(output)), "the tool did not fail as %s says", fileError)
	case c.Output != nil && !bytes.Equal(c.Output, output):
		differs(display.LineDifference(Pretty(c.Output), Pretty(output)), "the output differs")
	case c.Error != failure:
		differs(display.LineDifference(c.Error, failure), "it fails with another message")
	}
	for i := range a.left {
		if r := a.left[i].Request; r != nil {
			differs(nil, "it no longer requests %s %s", r.Method, r.URL)
		} else if other := a.left[i].Call; other != nil {
			differs(nil, "it no longer calls %s", other.Tool)
		}
	}
	if b := c.Fuel; b != (Band{}) && run != nil && (v.Fuel < b.Min || v.Fuel > b.Max) {
		differs(nil, "fuel %s is outside of %s", display.Digits(v.Fuel), b)
	}
	v.Passed = len(v.Problems) == 0
	return v, nil
}

func pretty(v any) string { return strings.TrimSpace(string(encode(v))) }

// Pretty returns a JSON document with a line for each value.
func Pretty(doc []byte) string { return pretty(json.RawMessage(doc)) }

// answers are those of a case that are left.
type answers struct {
	left  []Effect
	took  time.Duration // by the last call of another tool
	wrong *Problem      // the first call of another tool that was not answered
}

// take removes the next answer of a kind, or returns nil.
func (a *answers) take(kind func(*Effect) bool) *Effect {
	for i := range a.left {
		if e := &a.left[i]; kind(e) {
			a.left = append(append([]Effect{}, a.left[:i]...), a.left[i+1:]...)
			return e
		}
	}
	return nil
}

// answer is a [step.Answer].
func (a *answers) answer(name string, raw []byte) (canon.Raw, time.Duration, error) {
	if strings.HasPrefix(name, event.NestedCallPrefix) && raw == nil {
		took := a.took
		a.took = 0 // a call that is refused takes none
		return nil, took, nil
	}
	kind := func(e *Effect) bool { return e.Request != nil }
	asked := "the tool makes another request than the case records"
	switch name {
	case event.EffectNow:
		kind, asked = func(e *Effect) bool { return e.Now != "" }, "the tool reads the clock more often than the case records"
	case event.EffectRandom:
		kind, asked = func(e *Effect) bool { return e.Random != "" }, "the tool draws more random numbers than the case records"
	case event.EffectSeed:
		kind, asked = func(e *Effect) bool { return e.Seed != "" }, "the tool draws a seed, and the case records none"
	}
	next := a.take(kind)
	if raw == nil {
		if next == nil {
			return nil, 0, &Problem{What: asked}
		}
		return next.answer()
	}
	made, err := newRequest(raw)
	if err != nil {
		return nil, 0, err
	}
	if next == nil {
		return nil, 0, &Problem{What: fmt.Sprintf("the tool requests %s %s, and the case records no more requests", made.Method, made.URL)}
	}
	recorded := *next.Request
	recorded.Body = newBody(recorded.bytes())
	if recorded.Headers == nil {
		made.Headers = nil
	}
	if diff := display.LineDifference(pretty(recorded), pretty(made)); diff != nil {
		return nil, 0, &Problem{asked, diff}
	}
	return next.answer()
}
