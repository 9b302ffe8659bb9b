// The tools that spec/tck requires of an SDK.
package main

import (
	"encoding/json"
	"errors"
	"strconv"

	starling "github.com/starling-host/starling/guest-sdk/go"
)

func init() {
	starling.Register(
		starling.Tool{Name: "echo", Description: "Returns its input and its context.", Execute: echo},
		starling.Tool{Name: "fail", Description: "Fails as it is told.", Execute: fail},
		starling.Tool{Name: "effects", Description: "Reads the clock and draws a random number.", Execute: effects},
		starling.Tool{Name: "fetch", Description: "Makes one request.", Execute: fetch},
	)
}

func main() {}

func echo(call *starling.Call, input []byte) ([]byte, error) {
	return json.Marshal(map[string]any{
		"input": json.RawMessage(input), "run_id": call.RunID, "call_id": call.CallID, "attempt": call.Attempt,
		"variables": json.RawMessage(call.Variables),
	})
}

func fail(_ *starling.Call, input []byte) ([]byte, error) {
	var in struct{ Kind, Message string }
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	err := errors.New(in.Message)
	switch in.Kind {
	case "transient":
		return nil, starling.Transient(err)
	case "cancel":
		return nil, starling.Cancel(err)
	case "discard":
		return nil, starling.Discard(err)
	case "snooze":
		return nil, starling.Snooze(1500, err)
	}
	return nil, err
}

func effects(*starling.Call, []byte) ([]byte, error) {
	now := starling.Now()
	return json.Marshal(map[string]any{"now_ms": now / 1e6, "random": strconv.FormatUint(starling.Random(), 10)})
}

func fetch(_ *starling.Call, input []byte) ([]byte, error) {
	var in struct{ URL, Method, Body, Effect string }
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	request := starling.Request{Method: in.Method, URL: in.URL, Body: []byte(in.Body)}
	if in.Effect != "" {
		request.Header = starling.Header{{"Starling-Effect", in.Effect}}
	}
	response, err := starling.Do(request)
	for name, reason := range map[string]error{
		"denied": starling.ErrDenied, "network": starling.ErrNetwork, "timeout": starling.ErrTimeout,
		"too_large": starling.ErrTooLarge, "malformed": starling.ErrMalformed,
	} {
		if errors.Is(err, reason) {
			return json.Marshal(map[string]any{"failed": name})
		}
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"status": response.Status, "body": string(response.Body)})
}
