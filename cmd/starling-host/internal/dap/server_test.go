package dap

import (
	"cmp"
	"strings"
	"testing"

	"github.com/google/go-dap"

	"github.com/starling-host/starling/host/debug"
)

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

// TestVariablesWithoutAnAddress: what is not in memory, such as a variable that is optimized out, has
// no reference to memory and cannot be watched, whatever its address says.
func TestVariablesWithoutAnAddress(t *testing.T) {
	v := &server{groups: [][]debug.Variable{{
		{Name: "nowhere", Value: "<optimized out>"}, {Name: "local", Value: "7"}, {Name: "stale", Value: "7", Address: 16},
		{Name: "here", Value: "7", Address: 16, Size: 4}, {Name: "first", Value: "7", Size: 4},
	}}}
	for name, want := range map[string]string{ // of the data, or why there is none
		"nowhere": "nowhere is <optimized out> here", "local": "local has no address", "stale": "stale has no address", "here": "16:4", "first": "0:4",
	} {
		answer, err := handlers["dataBreakpointInfo"](v, t.Context(), arguments{VariablesReference: 1, Name: name})
		info, ok := answer.(dap.DataBreakpointInfoResponseBody)
		if err != nil || !ok {
			t.Fatal(name, err)
		}
		id, _ := info.DataId.(string)
		if got := cmp.Or(id, info.Description); !strings.HasPrefix(got, want) || id != "" && id != want {
			t.Errorf("%s: %+v, want %s", name, info, want)
		}
	}
	answer, err := handlers["variables"](v, t.Context(), arguments{VariablesReference: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range answer.(dap.VariablesResponseBody).Variables {
		if inMemory := x.Name == "here" || x.Name == "first"; (x.MemoryReference != "") != inMemory {
			t.Errorf("%s has the reference %q", x.Name, x.MemoryReference)
		}
	}
}
