package guest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/schema"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// imports implements the imports of a guest. Each is one call of step, which acts and
// records in a live run and answers from the log in a replay; the guest cannot tell which.
type imports struct {
	egress *egress.Client
	policy *policy.Run // nil: from the context, or else the client alone
	calls  bool        // the tool may call other tools

	attempt *step.Attempt // of the call
	tool    string        // its name in the run
}

// Now is the import starling:v1.now.
func (i imports) Now(ctx context.Context) int64 {
	now := step.Now(ctx)
	i.endAsRecorded()
	return now.UnixNano()
}

// Random is the import starling:v1.random.
func (i imports) Random(ctx context.Context) uint64 {
	bits := step.Random(ctx)
	i.endAsRecorded()
	return bits
}

// Seed feeds the generator behind WASI's random_get, once in a call.
func (i imports) Seed(ctx context.Context) [32]byte {
	seed := step.Seed(ctx)
	i.endAsRecorded()
	return seed
}

// endAsRecorded ends the guest of a replay as an effect returns, if the record of the call
// ends there.
func (i imports) endAsRecorded() {
	if stop, ok := i.attempt.RecordedEnd(); ok {
		panic(stopError(stop))
	}
}

// HTTP is the import starling:v1.http: one exchange, one recorded effect. A denial or a
// network failure is an answer like any other. The deadline of the call, or the end of the
// log, panics and so ends the guest. A request to [abi.NestedTarget] is a call of another
// tool.
func (i imports) HTTP(ctx context.Context, request []byte) ([]byte, abi.Status, time.Duration) {
	if rest, nested := bytes.CutPrefix(request, nestedRequest); nested {
		return i.call(ctx, rest)
	}
	req, err := egress.ParseRequest(request)
	if err != nil { // a function of the bytes alone: nothing to record
		ex, _ := record(nil, err)
		return answer(ex, 0)
	}
	effect := step.Effect{Name: req.Effect, Request: request, Unsafe: !req.Safe()}
	ex, err := step.Do(ctx, effect, func(ctx context.Context, key string) (event.Exchange, error) {
		if run := cmp.Or(i.policy, policy.From(ctx)); run != nil {
			return i.exchange(ctx, run.Exchange(i.tool, len(request)), req, key)
		}
		response, err := i.egress.Do(ctx, req, key)
		return record(response, err)
	})
	if err != nil {
		panic(err)
	}
	i.endAsRecorded()
	return answer(ex, i.attempt.Took())
}

// exchange carries out a request, if the client and the policies of the run allow it.
func (i imports) exchange(ctx context.Context, x *policy.Exchange, req *egress.Request, key string) (event.Exchange, error) {
	response, err := i.egress.And(x).Do(ctx, req, key)
	if err == nil {
		err = x.Settle(response)
	}
	ex, err := record(response, err)
	ex.Decision = x.Verdicts()
	return ex, err
}

// record turns the outcome of an exchange into its value. Errors outside the exchange stay
// errors.
func record(response []byte, err error) (event.Exchange, error) {
	var failure *egress.Error
	switch {
	case err == nil:
		return event.Exchange{Response: response}, nil
	case errors.As(err, &failure):
		return event.Exchange{Status: failure.Status, Text: failure.Text}, nil
	}
	return event.Exchange{}, err
}

// answer returns the guest's answer for an exchange that took some time.
func answer(ex event.Exchange, took time.Duration) ([]byte, abi.Status, time.Duration) {
	if ex.Status != 0 {
		return []byte(ex.Text), ex.Status, took
	}
	return ex.Response, 0, took
}

// Calling returns the tool with the right to call the other tools of its run, by requests
// to [abi.NestedTarget]. Such requests of other tools are denied.
func (t *Tool) Calling() *Tool {
	calling := *t
	calling.imports.calls = true
	return &calling
}

var (
	errNoCalls = errors.New("this tool may not call other tools")
	errSelf    = errors.New("a tool does not call itself")
)

// nestedRequest is the first line of a request to call another tool.
var nestedRequest = []byte("POST " + abi.NestedTarget + " HTTP/1.1\r\n")

// call answers a request for a nested call; rest is the request after its first line. A
// malformed request is answered without a record, like any other.
func (i imports) call(ctx context.Context, rest []byte) ([]byte, abi.Status, time.Duration) {
	// Otherwise the request has the form of a request to a server.
	req, err := egress.ParseRequest(append([]byte("POST http://tool/ HTTP/1.1\r\n"), rest...))
	if err != nil {
		ex, _ := record(nil, err)
		return answer(ex, 0)
	}
	var asked struct {
		Tool  string          `json:"tool"`
		Input json.RawMessage `json:"input"`
	}
	if err := schema.Decode(req.Body, &asked); err != nil || asked.Input == nil {
		return []byte(`the body must be {"tool": NAME, "input": VALUE}`), abi.StatusMalformed, 0
	}
	var refuse error
	switch {
	case !i.calls:
		refuse = errNoCalls
	case asked.Tool == i.tool:
		refuse = errSelf
	}
	result, err := step.CallFrom(ctx, asked.Tool, asked.Input, refuse)
	var refused *step.EffectError
	switch {
	case errors.Is(err, step.ErrInvalidCall):
		return []byte(err.Error()), abi.StatusMalformed, 0
	case errors.As(err, &refused) && !errors.Is(err, tool.ErrTimeout) && !errors.Is(err, tool.ErrCancelled):
		i.endAsRecorded()
		return []byte(refused.Message), abi.StatusDenied, i.attempt.Took()
	case err != nil:
		panic(err)
	}
	i.endAsRecorded()
	return response(result), 0, i.attempt.Took()
}

// response returns the answer to a nested call with an outcome: the document of the called
// tool, except that a failure has the type in the log.
func response(r step.ToolResult) []byte {
	document := map[string]any{"output": r.Result}
	if r.Err != nil {
		failure := map[string]string{"type": "tool", "message": r.Err.Error()}
		if failed, ok := errors.AsType[*step.CallError](r.Err); ok {
			failure["type"] = failed.Failed.ErrorType
		}
		document = map[string]any{"error": failure}
	}
	body, err := display.JSON(document, "")
	if err != nil {
		panic(err) // the result is canonical JSON
	}
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Type: application/json\r\n\r\n%s", len(body), body)
}
