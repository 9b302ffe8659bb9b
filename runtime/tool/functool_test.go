package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/runtime/tool"
)

// task is the schema that uses every constraint there is.
var task = tool.ToolSchema{
	Type: "object",
	Properties: map[string]tool.PropertyDef{
		"title":    {Type: "string", Description: "Task title", MinLength: new(3), MaxLength: new(10), Pattern: "^[A-Z]"},
		"priority": {Type: "string", Enum: []string{"low", "high"}, Default: "low"},
		"score":    {Type: "number", Minimum: new(0.0), Maximum: new(0.5)},
		"count":    {Type: "integer", Minimum: new(1.0)},
		"urgent":   {Type: "boolean", Default: true},
		"tags":     {Type: "array", Items: &tool.PropertyDef{Type: "string"}, MinItems: new(1), MaxItems: new(2)},
		"assignee": {
			Type: "object",
			Properties: map[string]tool.PropertyDef{
				"name":  {Type: "string"},
				"email": {Type: "string", Default: "<none>"},
			},
			Required: []string{"name"},
		},
	},
	Required:    []string{"title"},
	Description: "A task",
}

// echo answers with its input.
func echo(_ context.Context, input json.RawMessage) (string, error) { return string(input), nil }

func TestToolSchemaJSON(t *testing.T) {
	const want = `{"type":"object","description":"A task","properties":{
		"assignee":{"type":"object","properties":{"email":{"type":"string","default":"\u003cnone\u003e"},"name":{"type":"string"}},"required":["name"]},
		"count":{"type":"integer","minimum":1},
		"priority":{"type":"string","enum":["low","high"],"default":"low"},
		"score":{"type":"number","minimum":0,"maximum":0.5},
		"tags":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":2},
		"title":{"type":"string","description":"Task title","minLength":3,"maxLength":10,"pattern":"^[A-Z]"},
		"urgent":{"type":"boolean","default":true}},
		"required":["title"]}`
	for range 20 { // maps have no order
		got := string(tool.NewFuncTool("task", "", task, echo).Schema())
		if diff := cmp.Diff(strings.NewReplacer("\n", "", "\t", "").Replace(want), got); diff != "" {
			t.Fatal(diff)
		}
	}
	if got := string(tool.NewFuncTool("none", "", tool.ToolSchema{Type: "object"}, echo).Schema()); got != `{"type":"object","properties":{},"required":[]}` {
		t.Errorf("no parameters: %s", got)
	}
}

func TestFuncToolInputs(t *testing.T) {
	use := tool.NewFuncTool("task", "", task, echo)
	for _, c := range []struct{ name, input, want, wantErr string }{
		{"the least", `{"title":"Abc"}`, `{"priority":"low","title":"Abc","urgent":true}`, ""},
		{"what is there stays", `{"title":"Abc","priority":"high","urgent":false}`, `{"priority":"high","title":"Abc","urgent":false}`, ""},
		{"a default inside", `{"title":"Abc","assignee":{"name":"A"}}`, `{"assignee":{"email":"\u003cnone\u003e","name":"A"},"priority":"low","title":"Abc","urgent":true}`, ""},
		{"more than is named", `{"title":"Abc","other":[1]}`, `{"other":[1],"priority":"low","title":"Abc","urgent":true}`, ""},
		{"characters, not bytes", `{"title":"Äöü"}`, "", "/title: 'Äöü' does not match pattern"},
		{"a required one left out", `{}`, "", "(document): missing property 'title'"},
		{"a required one left out inside", `{"title":"Abc","assignee":{}}`, "", "/assignee: missing property 'name'"},
		{"too short", `{"title":"A"}`, "", "/title: minLength: got 1, want 3"},
		{"too long", `{"title":"ABCDEFGHIJK"}`, "", "/title: maxLength: got 11, want 10"},
		{"not in the enum", `{"title":"Abc","priority":"mid"}`, "", "/priority: value must be one of 'low', 'high'"},
		{"too large", `{"title":"Abc","score":0.75}`, "", "/score: got 0.75, want at most 0.5"},
		{"too small", `{"title":"Abc","count":0}`, "", "/count: got 0, want at least 1"},
		{"a fraction", `{"title":"Abc","count":1.5}`, "", "/count: got number, want integer"},
		{"too few", `{"title":"Abc","tags":[]}`, "", "/tags: minItems: got 0, want 1"},
		{"too many", `{"title":"Abc","tags":["a","b","c"]}`, "", "/tags: maxItems: got 3, want 2"},
		{"a wrong element", `{"title":"Abc","tags":["a",1]}`, "", "/tags/1: got number, want string"},
		{"all at once", `{"title":"A","count":0}`, "", "/count: got 0, want at least 1; /title: minLength: got 1, want 3"},
		{"null is not left out", `{"title":"Abc","priority":null}`, "", "/priority: "},
		{"an array", `[]`, "", "(document): got array, want object"},
		{"no JSON", `{"title":`, "", "input is not JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := use.Execute(t.Context(), json.RawMessage(c.input))
			var got string
			_ = json.Unmarshal(out, &got)
			if got != c.want || (err == nil) != (c.wantErr == "") || err != nil && !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("got %s, %v\nwant %s, %s", got, err, c.want, c.wantErr)
			}
			if kind, _ := tool.KindOf(err); err != nil && kind != abi.ErrorDiscard {
				t.Errorf("the error is of kind %s", kind)
			}
		})
	}
}

func TestSchemasThatAreNone(t *testing.T) {
	with := func(p tool.PropertyDef) tool.ToolSchema {
		return tool.ToolSchema{Type: "object", Properties: map[string]tool.PropertyDef{"p": p}}
	}
	endless := tool.PropertyDef{Type: "array"}
	endless.Items = &endless
	for _, c := range []struct {
		name   string
		schema tool.ToolSchema
		want   string
	}{
		{"nothing", tool.ToolSchema{}, `the type is "", and the input of a tool is an "object"`},
		{"a string", tool.ToolSchema{Type: "string"}, `the type is "string"`},
		{"required twice", tool.ToolSchema{Type: "object", Properties: map[string]tool.PropertyDef{"x": {Type: "string"}}, Required: []string{"x", "x"}}, "required"},
		{"a type that is none", with(tool.PropertyDef{Type: "text"}), "/properties/p/type: "},
		{"a wrong element", with(tool.PropertyDef{Type: "array", Items: &tool.PropertyDef{}}), "/properties/p/items/type: "},
		{"a length below zero", with(tool.PropertyDef{Type: "string", MinLength: new(-1)}), "minLength"},
		{"a pattern that is none", with(tool.PropertyDef{Type: "string", Pattern: "("}), "pattern"},
		{"a bound that is no number", with(tool.PropertyDef{Type: "number", Minimum: new(math.NaN())}), "NaN"},
		{"a default of another type", with(tool.PropertyDef{Type: "string", Default: 1}), "/p: default 1: (document): got number, want string"},
		{"a default that is not allowed", with(tool.PropertyDef{Type: "string", Enum: []string{"a"}, Default: "b"}), `/p: default "b": `},
		{"a default that is no JSON", with(tool.PropertyDef{Type: "string", Default: func() {}}), "unsupported type"},
		{"a definition of itself", with(endless), "cycle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if got, _ := recover().(string); !strings.HasPrefix(got, `tool: "bad": schema: `) || !strings.Contains(got, c.want) {
					t.Errorf("got %q, want %q in it", got, c.want)
				}
			}()
			tool.NewFuncTool("bad", "", c.schema, echo)
		})
	}
}

func TestFuncToolsThatAreNone(t *testing.T) {
	for name, make := range map[string]func(){
		"no function": func() { tool.NewFuncTool("t", "", tool.ToolSchema{Type: "object"}, nil) },
		"no name":     func() { tool.NewFuncTool("", "", tool.ToolSchema{Type: "object"}, echo) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it was made")
				}
			}()
			make()
		})
	}
}

func TestFuncToolOutcomes(t *testing.T) {
	no := errors.New("no")
	for _, c := range []struct {
		name string
		fn   func(context.Context, json.RawMessage) (string, error)
		want string
		is   error
	}{
		{"text", func(context.Context, json.RawMessage) (string, error) { return "a \"b\"", nil }, `"a \"b\""`, nil},
		{"nothing", func(context.Context, json.RawMessage) (string, error) { return "", nil }, `""`, nil},
		{"an error", func(context.Context, json.RawMessage) (string, error) { return "lost", no }, "", no},
		{"a panic", func(context.Context, json.RawMessage) (string, error) { panic("kaboom") }, "", tool.ErrPanicked},
	} {
		t.Run(c.name, func(t *testing.T) {
			use := tool.NewFuncTool("t", "d", tool.ToolSchema{Type: "object"}, c.fn)
			out, err := use.Execute(t.Context(), json.RawMessage(`{}`))
			if string(out) != c.want || !errors.Is(err, c.is) {
				t.Errorf("got %s, %v", out, err)
			}
			if use.Name() != "t" || use.Description() != "d" {
				t.Errorf("it is called %q: %q", use.Name(), use.Description())
			}
		})
	}
}

func TestTypedConstraints(t *testing.T) {
	type in struct {
		Title string   `json:"title" jsonschema:"minLength=3,maxLength=10,pattern=^[A-Z]" description:"Task title"`
		Level string   `json:"level" jsonschema:"enum=low,enum=high,default=low"`
		Score float64  `json:"score,omitempty" jsonschema:"minimum=0,maximum=0.5"`
		Tags  []string `json:"tags,omitempty" jsonschema:"minItems=1,maxItems=2"`
		Note  *string  `json:"note,omitempty"`
	}
	use := tool.Typed("task", "", func(_ context.Context, in in) (in2 any, err error) { return in, nil })
	if !strings.Contains(string(use.Schema()), `"title":{"type":"string","description":"Task title","minLength":3`) {
		t.Errorf("schema %s", use.Schema())
	}
	for _, c := range []struct{ name, input, want string }{
		{"the least", `{"title":"Abc"}`, `{"title":"Abc","level":"low"}`},
		{"a pointer", `{"title":"Abc","note":"n"}`, `{"title":"Abc","level":"low","note":"n"}`},
		{"too short", `{"title":"A"}`, "/title: minLength: got 1, want 3"},
		{"not in the enum", `{"title":"Abc","level":"mid"}`, "/level: value must be one of"},
		{"too large", `{"title":"Abc","score":1}`, "/score: got 1, want at most 0.5"},
		{"too few", `{"title":"Abc","tags":[]}`, "/tags: minItems: got 0, want 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := use.Execute(t.Context(), json.RawMessage(c.input))
			got := string(out)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestTypedPanicsForADefaultThatIsNotAllowed(t *testing.T) {
	defer func() {
		if got, _ := recover().(string); !strings.Contains(got, `/s: default "a": (document): `) {
			t.Errorf("got %q", got)
		}
	}()
	tool.Typed("t", "", nothing[struct {
		S string `json:"s" jsonschema:"default=a,minLength=2"`
	}])
}
