package dap

import "testing"

// The author of a client reads which argument must be what.
func TestWrongArguments(t *testing.T) {
	for text, want := range map[string]string{
		`{"frameId":"one"}`:               "frameId must be a whole number, not string",
		`{"frameId":1.5}`:                 "frameId must be a whole number, not number 1.5",
		`{"fuel":-1}`:                     "fuel must be a whole number of at least 0, not number -1",
		`{"expression":["a"]}`:            "expression must be a string, not array",
		`{"breakpoints":{}}`:              "breakpoints must be an array, not object",
		`{"breakpoints":[{"line":true}]}`: "breakpoints.line must be a whole number, not bool",
		`[]`:                              "the message must be an object, not array",
	} {
		if err := decode([]byte(text), &arguments{}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
