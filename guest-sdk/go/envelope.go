package starling

import (
	"errors"
	"strconv"
)

// request is the envelope that the host hands to starling_execute:
//
//	{"tool":"dice","input":{"rolls":2},"context":{"run_id":"01J..","call_id":"01J..","attempt":1}}
type request struct {
	tool  string
	input []byte
	call  Call
}

// execute answers one envelope with another. It never fails: a failure is an
// answer too. The host checks that an output is JSON.
func execute(envelope []byte) []byte {
	req := parseRequest(envelope)
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
	answer := make([]byte, 0, len(output)+len(`{"output":}`))
	answer = append(answer, `{"output":`...)
	answer = append(answer, output...)
	return append(answer, '}')
}

func failure(err error) []byte {
	kind, afterMs := classify(err)
	answer := appendString([]byte(`{"error":{"kind":`), string(kind))
	answer = appendString(append(answer, `,"message":`...), err.Error())
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

// parseRequest parses an envelope. It ignores unknown members, which hosts of
// a later minor version may add.
func parseRequest(envelope []byte) (req request) {
	eachMember(envelope, func(name string, value []byte) {
		switch name {
		case "tool":
			req.tool = unquote(value)
		case "input":
			req.input = value
		case "context":
			req.call = parseContext(value)
		}
	})
	return req
}

func parseContext(context []byte) (call Call) {
	eachMember(context, func(name string, value []byte) {
		switch name {
		case "run_id":
			call.RunID = unquote(value)
		case "call_id":
			call.CallID = unquote(value)
		case "attempt":
			n, _ := strconv.ParseUint(string(value), 10, 32)
			call.Attempt = uint32(n)
		case "variables":
			call.Variables = value
		}
	})
	return call
}
