package toolcase

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/tool"
)

// Effect is an answer of the world: one of Now, Random and Seed, a Request with its Response or
// Failure, or a Call with its Output or Failure. The last two took some time, a Go duration.
type Effect struct {
	Now      string          `json:"now,omitempty"`    // RFC 3339
	Random   string          `json:"random,omitempty"` // 16 hexadecimal digits
	Seed     string          `json:"seed,omitempty"`   // 64 of them
	Request  *Request        `json:"request,omitempty"`
	Response *Response       `json:"response,omitempty"`
	Call     *Nested         `json:"call,omitempty"`
	Output   json.RawMessage `json:"output,omitempty"`
	Failure  *Failure        `json:"failure,omitempty"`
	Took     string          `json:"took,omitempty"`
}

// Nested is a call of another tool.
type Nested struct {
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input"`
}

// Request is a request as the tool makes it, with the placeholders of secrets.
type Request struct {
	Method  string  `json:"method"`
	URL     string  `json:"url"`
	Effect  string  `json:"effect,omitempty"` // the name that the tool gives it; empty for the usual one
	Headers Headers `json:"headers,omitzero"` // nil: not compared
	Body
}

// Response is a response as the tool gets it.
type Response struct {
	Status  int     `json:"status"`
	Headers Headers `json:"headers,omitzero"`
	Body
}

// Failure is an exchange without a response, or a call without an output.
type Failure struct {
	Status string `json:"status"` // a name of an [abi.Status]; for a call the type of its failure
	Text   string `json:"text"`
}

// Body is the body of a message: at most one field is set. JSON stands for its compact text.
type Body struct {
	JSON   json.RawMessage `json:"json,omitempty"`
	Text   string          `json:"body,omitempty"`
	Base64 []byte          `json:"base64,omitempty"`
}

func newBody(b []byte) Body {
	var compact bytes.Buffer
	switch {
	case !utf8.Valid(b):
		return Body{Base64: b}
	case len(b) > 0 && (b[0] == '{' || b[0] == '[') && json.Compact(&compact, b) == nil && bytes.Equal(compact.Bytes(), b):
		return Body{JSON: b}
	}
	return Body{Text: string(b)}
}

func (b Body) bytes() []byte {
	if b.JSON != nil {
		var compact bytes.Buffer
		_ = json.Compact(&compact, b.JSON) // it was parsed
		return compact.Bytes()
	}
	return append([]byte(b.Text), b.Base64...)
}

// Headers are the headers of a message by canonical name. In JSON a name with one value has a string.
type Headers map[string][]string

// MarshalJSON implements [json.Marshaler].
func (h Headers) MarshalJSON() ([]byte, error) {
	short := map[string]any{}
	for name, values := range h {
		if short[name] = values; len(values) == 1 {
			short[name] = values[0]
		}
	}
	return bytes.TrimSpace(encode(short)), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (h *Headers) UnmarshalJSON(text []byte) error {
	var short map[string]any
	if err := json.Unmarshal(text, &short); err != nil {
		return err
	}
	*h = Headers{}
	for name, value := range short {
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		for _, v := range list {
			text, ok := v.(string)
			if !ok || !abi.IsToken(name) || !abi.IsFieldValue(text) {
				return fmt.Errorf("header %q is not a string of one line, or a list of them", name)
			}
			(*h)[name] = append((*h)[name], text)
		}
	}
	return nil
}

// check returns the reason why an effect of a file cannot be used, or nil.
func (e *Effect) check() error {
	count := func(set ...bool) (n int) {
		for _, is := range set {
			if is {
				n++
			}
		}
		return n
	}
	answers := count(e.Response != nil, e.Output != nil, e.Failure != nil)
	took, err := e.duration()
	switch {
	case err != nil:
		return err
	case took < 0 || took != 0 && e.Request == nil && e.Call == nil:
		return errors.New("took is a positive time, of a request or a call")
	case count(e.Now != "", e.Random != "", e.Seed != "", e.Request != nil, e.Call != nil) != 1:
		return errors.New("it must be one of now, random, seed, request and call")
	case e.Request != nil && (answers != 1 || e.Output != nil):
		return errors.New("a request has a response or a failure")
	case e.Call != nil && (answers != 1 || e.Response != nil):
		return errors.New("a call has an output or a failure")
	case e.Request == nil && e.Call == nil && answers != 0:
		return errors.New("a response, an output or a failure belongs to a request or a call")
	case e.Response != nil && (e.Response.Status < 200 || e.Response.Status > 999):
		return fmt.Errorf("the status of a response is from 200 to 999, not %d", e.Response.Status)
	case e.Call == nil:
		_, err := e.value()
		return err
	case e.Failure != nil && !slices.Contains(failures, e.Failure.Status):
		return fmt.Errorf("failure: a call does not fail with the status %q: %s", e.Failure.Status, strings.Join(failures, ", "))
	}
	doc, err := canon.Parse(e.Call.Input)
	if err != nil {
		return fmt.Errorf("the input of a call: %w", err)
	}
	e.Call.Input = doc.JSON
	return nil
}

// duration returns the time that a request or a call took.
func (e *Effect) duration() (time.Duration, error) {
	if e.Took == "" {
		return 0, nil
	}
	took, err := time.ParseDuration(e.Took)
	if err != nil {
		err = fmt.Errorf("took: %q is not a time such as 1.5s or 300ms", e.Took)
	}
	return took, err
}

// answer returns the answer, and the time that it took.
func (e *Effect) answer() (canon.Raw, time.Duration, error) {
	value, err := e.value()
	took, _ := e.duration() // which was checked
	return value, took, err
}

// value returns the answer as the log records it.
func (e *Effect) value() (canon.Raw, error) {
	switch {
	case e.Now != "":
		at, err := time.Parse(time.RFC3339Nano, e.Now)
		if err != nil {
			return nil, fmt.Errorf("now: %q is not a time such as 2006-01-02T15:04:05Z", e.Now)
		}
		return canon.Marshal(at.UnixNano())
	case e.Random != "", e.Seed != "":
		b, err := hex.DecodeString(cmp.Or(e.Random, e.Seed))
		if want := map[bool]int{true: 8, false: 32}[e.Random != ""]; err != nil || len(b) != want {
			return nil, fmt.Errorf("random has 16 hexadecimal digits, and seed 64")
		}
		if e.Seed != "" {
			return canon.Marshal(b)
		}
		return canon.Marshal(binary.BigEndian.Uint64(b))
	case e.Failure != nil:
		for status := abi.StatusDenied; status >= abi.StatusMalformed; status-- {
			if status.String() == e.Failure.Status {
				return canon.Marshal(event.Exchange{Status: status, Text: e.Failure.Text})
			}
		}
		return nil, fmt.Errorf("failure: %q is not a status: denied, network, timeout, too_large or malformed", e.Failure.Status)
	}
	return canon.Marshal(event.Exchange{Response: e.message()})
}

// message returns the response as the tool gets it.
func (e *Effect) message() []byte {
	r := egress.Response{Status: e.Response.Status, Header: map[string][]string(e.Response.Headers), Body: e.Response.bytes()}
	return r.Message(e.Request.Method)
}

// newRequest returns the request of a recorded effect.
func newRequest(raw []byte) (*Request, error) {
	r, err := egress.ParseRequest(raw)
	if err != nil {
		return nil, err
	}
	request := &Request{Method: r.Method, URL: r.URL, Headers: Headers(r.Header), Body: newBody(r.Body)}
	if usual := r.Method + " " + r.URL; !strings.HasPrefix(usual, strings.TrimSuffix(r.Effect, "...")) { // long ones are cut
		request.Effect = r.Effect
	}
	return request, nil
}

// errRefused means that a recorded call of another tool was refused.
var errRefused = errors.New("the call was refused")

// newEffect returns a recorded effect as cases have it. It is nil for an effect of the runtime. calls
// has the calls of the run by their ids.
func newEffect(effect event.SideEffectRecorded, calls map[string]*recorded) (e *Effect, err error) {
	defer func() {
		if e != nil && effect.DurationUs > 0 {
			e.Took = (time.Duration(effect.DurationUs) * time.Microsecond).String()
		}
	}()
	other, isCall := strings.CutPrefix(effect.Name, event.NestedCallPrefix)
	isCall = isCall && len(effect.Request) == 0
	switch {
	case !effect.IsHostCall():
		return nil, nil
	case effect.Error != nil && isCall:
		return nil, fmt.Errorf("tool %q: %w: %s", other, errRefused, effect.Error.Message)
	case effect.Error != nil:
		return nil, fmt.Errorf("the effect %q was interrupted: %s", effect.Name, effect.Error.Message)
	case isCall:
		return newCall(effect.Value, calls)
	}
	switch effect.Name {
	case event.EffectNow:
		var ns int64
		err := canon.Unmarshal(effect.Value, &ns)
		return &Effect{Now: time.Unix(0, ns).UTC().Format(time.RFC3339Nano)}, err
	case event.EffectRandom:
		var bits uint64
		err := canon.Unmarshal(effect.Value, &bits)
		return &Effect{Random: fmt.Sprintf("%016x", bits)}, err
	case event.EffectSeed:
		var seed []byte
		err := canon.Unmarshal(effect.Value, &seed)
		return &Effect{Seed: hex.EncodeToString(seed)}, err
	}
	request, err := newRequest(effect.Request)
	if err != nil {
		return nil, err
	}
	var ex event.Exchange
	if err := canon.Unmarshal(effect.Value, &ex); err != nil {
		return nil, err
	}
	if ex.Status != 0 {
		return &Effect{Request: request, Failure: &Failure{ex.Status.String(), ex.Text}}, nil
	}
	response, err := egress.ParseResponse(request.Method, ex.Response)
	if err != nil {
		return nil, err
	}
	e = &Effect{Request: request, Response: &Response{response.Status, Headers(response.Header), newBody(response.Body)}}
	// The length of the body need not be written, unless it says something else.
	kept := e.Response.Headers["Content-Length"]
	delete(e.Response.Headers, "Content-Length")
	if !bytes.Equal(e.message(), ex.Response) {
		e.Response.Headers["Content-Length"] = kept
	}
	return e, nil
}

// failures are the types of the failures of calls that a case can repeat.
var failures = []string{event.ErrorTool, event.ErrorPanic, event.ErrorFuel, event.ErrorLimit}

// newCall returns the recorded call of another tool.
func newCall(value canon.Raw, calls map[string]*recorded) (*Effect, error) {
	var named event.NestedCall
	if err := canon.Unmarshal(value, &named); err != nil {
		return nil, err
	}
	call := calls[named.CallID]
	if call == nil {
		return nil, fmt.Errorf("the run has no call %s", named.CallID)
	}
	input, err := canon.ToJSON(call.args)
	if err != nil {
		return nil, err
	}
	e := &Effect{Call: &Nested{call.tool, json.RawMessage(input)}}
	if call.outcome == nil {
		output, err := canon.ToJSON(call.result)
		e.Output = json.RawMessage(output)
		return e, err
	}
	if !slices.Contains(failures, call.outcome.Type) {
		return nil, fmt.Errorf("the call of the tool %q was interrupted (%s), which no case can repeat", call.tool, call.outcome.Type)
	}
	e.Failure = &Failure{call.outcome.Type, call.outcome.Message}
	return e, nil
}

// others returns the tools that the case answers for.
func (a *answers) others() (all []*starling.Tool) {
	named := map[string]bool{}
	for _, e := range a.left {
		if e.Call != nil && !named[e.Call.Tool] {
			named[e.Call.Tool] = true
			all = append(all, &starling.Tool{Tool: other{a, e.Call.Tool}})
		}
	}
	return all
}

// other is a tool for which a case answers.
type other struct {
	*answers
	name string
}

func (o other) Name() string          { return o.name }
func (other) Description() string     { return "" }
func (other) Schema() json.RawMessage { return json.RawMessage("{}") }

// Execute implements [tool.Tool]. The first call that the case does not answer is the verdict, even
// if the tool handles its failure.
func (o other) Execute(_ context.Context, input json.RawMessage) (json.RawMessage, error) {
	next, made := o.take(func(e *Effect) bool { return e.Call != nil }), &Nested{o.name, input}
	var problem *Problem
	if next == nil {
		problem = &Problem{What: fmt.Sprintf("the tool calls %s, and the case records no more calls", o.name)}
	} else if diff := display.LineDifference(pretty(next.Call), pretty(made)); diff != nil {
		problem = &Problem{"the tool makes another call than the case records", diff}
	}
	if problem != nil {
		if o.wrong == nil {
			o.wrong = problem
		}
		return nil, problem
	}
	o.took, _ = next.duration() // which was checked
	if next.Failure != nil {
		return nil, failed(*next.Failure)
	}
	return next.Output, nil
}

// failed is a recorded failure of a call.
type failed Failure

func (f failed) Error() string { return f.Text }

// Unwrap returns the class of the failure.
func (f failed) Unwrap() error {
	return map[string]error{event.ErrorPanic: tool.ErrPanicked, event.ErrorFuel: tool.ErrFuel, event.ErrorLimit: tool.ErrLimit}[f.Status]
}
