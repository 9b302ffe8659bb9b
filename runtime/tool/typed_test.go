package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/starling-host/starling/runtime/tool"
)

type weatherIn struct {
	City string `json:"city" jsonschema:"description=City name"`
}

type echoIn struct {
	A int    `json:"a"`
	B string `json:"b"`
}

func nothing[In any](context.Context, In) (any, error) { return nil, nil }

// TestTypedSchemaIsTheSeedRuntimes compares schemas with those that the Starling
// runtime hashed into its logs for the same structs.
func TestTypedSchemaIsTheSeedRuntimes(t *testing.T) {
	text, err := os.ReadFile("../../../shared/vectors/starling/ref.tools.json")
	if err != nil {
		t.Skip("SKIPPED: the Starling runtime's vectors are not beside this tree")
	}
	var recorded map[string]struct{ Schema string }
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]tool.Tool{
		"weather": tool.Typed("weather", "", nothing[weatherIn]),
		"echo":    tool.Typed("echo", "", nothing[echoIn]),
		"boom":    tool.Typed("boom", "", nothing[struct{}]),
	} {
		if want := recorded[name].Schema; string(got.Schema()) != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got.Schema(), want)
		}
	}
}

func TestTypedPanicsForWhatCannotBeDescribed(t *testing.T) {
	type loop struct{ Next *loop }
	for name, make := range map[string]func(){
		"a string":        func() { tool.Typed("t", "", nothing[string]) },
		"a map":           func() { tool.Typed("t", "", nothing[struct{ M map[string]int }]) },
		"an interface":    func() { tool.Typed("t", "", nothing[struct{ V any }]) },
		"a recursive one": func() { tool.Typed("t", "", nothing[loop]) },
		"two members of one name": func() {
			tool.Typed("t", "", nothing[struct {
				X int
				B int `json:"X"`
			}])
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it was described")
				}
			}()
			make()
		})
	}
}

func TestTypedExecute(t *testing.T) {
	divide := tool.Typed("divide", "", func(_ context.Context, in struct {
		A int `json:"a"`
		B int `json:"b"`
	}) (any, error) {
		if in.A < 0 {
			return nil, errors.New("negative")
		}
		if in.A == 0 {
			return nil, nil
		}
		return map[string]int{"quotient": in.A / in.B}, nil
	})
	for _, c := range []struct{ name, input, want, wantErr string }{
		{"a result", `{"a":6,"b":3}`, `{"quotient":2}`, ""},
		{"nothing is null", `{"a":0,"b":1}`, `null`, ""},
		{"an error", `{"a":-1,"b":1}`, "", "negative"},
		{"a panic", `{"a":1,"b":0}`, "", "divide by zero"},
		{"a member too many and one too few", `{"a":1,"c":0}`, "", "input does not match the schema: (document): additional properties 'c' not allowed; (document): missing property 'b'"},
		{"a wrong type", `{"a":"1","b":1}`, "", "/a: got string, want integer"},
		{"more than the type holds", `{"a":9223372036854775808,"b":1}`, "", "input: a: want an integer"},
		{"no object", `[1]`, "", "(document): got array, want object"},
		{"no JSON", `{`, "", "input is not JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := divide.Execute(t.Context(), json.RawMessage(c.input))
			if string(got) != c.want || (err == nil) != (c.wantErr == "") || (err != nil && !strings.Contains(err.Error(), c.wantErr)) {
				t.Errorf("got %s, %v", got, err)
			}
			if panicked := c.name == "a panic"; errors.Is(err, tool.ErrPanicked) != panicked {
				t.Errorf("panicked %v: %v", !panicked, err)
			}
		})
	}
}

func TestWrapRunsTheLastFirst(t *testing.T) {
	var order []string
	note := func(name string, stop bool) tool.Middleware {
		return func(inner func(context.Context, json.RawMessage) (json.RawMessage, error)) func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return func(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
				order = append(order, name)
				if stop {
					return nil, errors.New("unauthorized")
				}
				return inner(ctx, in)
			}
		}
	}
	base := tool.Typed("base", "described", func(context.Context, struct{}) (string, error) {
		order = append(order, "base")
		return "ok", nil
	})
	wrapped := tool.Wrap(base, note("timing", false), note("auth", false))
	out, err := wrapped.Execute(t.Context(), json.RawMessage(`{}`))
	if string(out) != `"ok"` || err != nil || strings.Join(order, " ") != "auth timing base" {
		t.Errorf("%s, %v, in the order %v", out, err, order)
	}
	if wrapped.Name() != "base" || wrapped.Description() != "described" || string(wrapped.Schema()) != string(base.Schema()) {
		t.Error("the wrapped tool describes itself differently")
	}
	order = nil
	if _, err := tool.Wrap(base, note("timing", false), note("auth", true)).Execute(t.Context(), json.RawMessage(`{}`)); err == nil || strings.Join(order, " ") != "auth" {
		t.Errorf("%v, in the order %v", err, order)
	}
	if unwrapped := wrapped.(tool.Wrapper).Unwrap(); unwrapped != base {
		t.Error("Unwrap returns another tool")
	}
}
