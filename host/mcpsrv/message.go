package mcpsrv

import (
	"encoding/json"
	"errors"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// errID means that a request has an id with which it could not be answered.
var errID = errors.New("an id is a text or an integer, above 2^53 one that a double holds")

// decode reads a message. The SDK takes the number of an id for a float64 and makes an
// integer of that, so that some numbers would be answered under another one, for which
// nobody waits, or somebody else does. They are errID.
func decode(text []byte) (jsonrpc.Message, error) {
	msg, err := jsonrpc.DecodeMessage(text)
	if err != nil {
		return nil, err
	}
	if asked, ok := msg.(*jsonrpc.Request); ok {
		if id, ok := asked.ID.Raw().(int64); ok && !isNumber(idOf(text), id) {
			return nil, errID
		}
	}
	return msg, nil
}

// idOf returns the id of a message as it is written, nothing if there is none.
func idOf(text []byte) json.RawMessage {
	var asked struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(text, &asked) != nil {
		return nil
	}
	return asked.ID
}

// isNumber reports whether a number of JSON is n, however it is written.
func isNumber(text json.RawMessage, n int64) bool {
	const most = 1 << 53 // up to here each integer has a float64 of its own
	if f, err := strconv.ParseFloat(string(text), 64); err != nil || f != float64(n) {
		return false
	}
	return -most < n && n < most || string(text) == strconv.FormatInt(n, 10)
}

// refusal is the response to what is no message, with the id that it has nevertheless.
func refusal(text []byte, why string) json.RawMessage {
	code := jsonrpc.CodeInvalidRequest
	if !json.Valid(text) {
		code = jsonrpc.CodeParseError
	}
	id := idOf(text)
	var value any
	if json.Unmarshal(id, &value) != nil {
		id = nil
	} else if known, err := jsonrpc.MakeID(value); err != nil || !known.IsValid() {
		id = nil
	}
	doc, _ := json.Marshal(map[string]any{ // texts and a number
		"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": bounded(plain(why), maxError)},
	})
	return doc
}
