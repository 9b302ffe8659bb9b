package guest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/step"
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
