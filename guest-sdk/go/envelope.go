package starling

import (
	"errors"
	"strconv"

	"github.com/starling-host/starling/guest-sdk/go/internal/jsonscan"
)

// request is the envelope that the host hands to starling_execute:
//
//	{"tool":"dice","input":{"rolls":2},"context":{"run_id":"01J..","call_id":"01J..","attempt":1}}
type request struct {
	tool  string
	input []byte // nil: absent
	call  Call
}

// execute answers one envelope with another. It never fails: what goes wrong
// is an answer too.
func execute(envelope []byte) []byte {
	req, err := parseRequest(envelope)
	if err != nil {
		return failure(errors.New("starling: input envelope: " + err.Error()))
	}
	tool := find(req.tool)
	if tool == nil {
		return failure(Discard(errors.New("starling: the module has no tool named " + req.tool + ", it has " + names())))
	}
	output, err := tool.Execute(&req.call, req.input)
	if err != nil {
		return failure(err)
	}
	if len(output) == 0 {
		output = []byte("null")
	}
	if err := jsonscan.Check(output); err != nil {
		return failure(errors.New("starling: the output of " + tool.Name + " is not JSON: " + err.Error()))
	}
	answer := make([]byte, 0, len(output)+len(`{"output":}`))
	answer = append(answer, `{"output":`...)
	answer = append(answer, output...)
	return append(answer, '}')
}

func failure(err error) []byte {
	kind, afterMs := classify(err)
	answer := jsonscan.AppendString([]byte(`{"error":{"kind":`), string(kind))
	answer = jsonscan.AppendString(append(answer, `,"message":`...), err.Error())
	if afterMs > 0 {
		answer = strconv.AppendInt(append(answer, `,"retry_after_ms":`...), afterMs, 10)
	}
	return append(answer, `}}`...)
}

func names() string {
	if len(tools) == 0 {
		return "none"
	}
	list := tools[0].Name
	for _, t := range tools[1:] {
		list += ", " + t.Name
	}
	return list
}

// parseRequest takes an envelope apart. Members that it does not know are left
// to hosts of a later minor version, which may add some.
func parseRequest(envelope []byte) (request, error) {
	var req request
	var context []byte
	seen := members{}
	err := jsonscan.Object(envelope, func(name string, value []byte) (err error) {
		switch name {
		case "tool":
			req.tool, err = jsonscan.String(value)
		case "input":
			req.input = value
		case "context":
			context = value
		default:
			return nil
		}
		return seen.add(name, err)
	})
	switch {
	case err != nil:
		return request{}, err
	case req.tool == "":
		return request{}, errors.New("no tool is named")
	case req.input == nil:
		return request{}, errors.New("there is no input")
	case context == nil:
		return request{}, errors.New("there is no context")
	}
	req.call, err = parseContext(context)
	return req, err
}

func parseContext(context []byte) (Call, error) {
	var call Call
	seen := members{}
	err := jsonscan.Object(context, func(name string, value []byte) (err error) {
		switch name {
		case "run_id":
			call.RunID, err = jsonscan.String(value)
		case "call_id":
			call.CallID, err = jsonscan.String(value)
		case "attempt":
			call.Attempt, err = jsonscan.Uint32(value)
		case "variables":
			call.Variables = value
		default:
			return nil
		}
		return seen.add(name, err)
	})
	return call, err
}

// members are those names of an object that have a meaning, a handful.
type members []string

// add passes err on, with the member's name, and refuses a name that has been
// there before.
func (m *members) add(name string, err error) error {
	if err != nil {
		return errors.New(name + ": " + err.Error())
	}
	for _, other := range *m {
		if other == name {
			return errors.New(name + " is there twice")
		}
	}
	*m = append(*m, name)
	return nil
}
