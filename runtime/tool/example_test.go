package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/starling-host/starling/runtime/tool"
)

type lookupIn struct {
	ID   string `json:"id" jsonschema:"description=Customer id,pattern=^C[0-9]+$"`
	Plan string `json:"plan" jsonschema:"enum=free,enum=pro,default=free"`
}

type lookupOut struct {
	Name string `json:"name"`
	Plan string `json:"plan"`
}

func ExampleTyped() {
	lookup := tool.Typed("customer_lookup", "Fetch a customer by id.",
		func(_ context.Context, in lookupIn) (lookupOut, error) {
			return lookupOut{Name: "Ada", Plan: in.Plan}, nil
		})
	fmt.Println(string(lookup.Schema()))

	ctx := context.Background()
	out, err := lookup.Execute(ctx, json.RawMessage(`{"id":"C7"}`))
	fmt.Println(string(out), err)
	_, err = lookup.Execute(ctx, json.RawMessage(`{"id":"7","plan":"gold"}`))
	fmt.Println(err)
	// Output:
	// {"type":"object","properties":{"id":{"type":"string","description":"Customer id","pattern":"^C[0-9]+$"},"plan":{"type":"string","enum":["free","pro"],"default":"free"}},"required":["id"],"additionalProperties":false}
	// {"name":"Ada","plan":"free"} <nil>
	// input does not match the schema: /id: '7' does not match pattern '^C[0-9]+$'; /plan: value must be one of 'free', 'pro'
}

func ExampleNewFuncTool() {
	shout := tool.NewFuncTool("shout", "Say it loudly.",
		tool.ToolSchema{
			Type: "object",
			Properties: map[string]tool.PropertyDef{
				"text":  {Type: "string", Description: "What to say", MinLength: new(1)},
				"times": {Type: "integer", Minimum: new(1.0), Maximum: new(3.0), Default: 1},
			},
			Required: []string{"text"},
		},
		func(_ context.Context, input json.RawMessage) (string, error) {
			var in struct {
				Text  string
				Times int
			}
			if err := json.Unmarshal(input, &in); err != nil {
				return "", tool.ToolDiscard(err)
			}
			return strings.Repeat(strings.ToUpper(in.Text)+"!", in.Times), nil
		})
	out, err := shout.Execute(context.Background(), json.RawMessage(`{"text":"hey"}`))
	fmt.Println(string(out), err)
	_, err = shout.Execute(context.Background(), json.RawMessage(`{"text":"","times":9}`))
	fmt.Println(err)
	// Output:
	// "HEY!" <nil>
	// input does not match the schema: /text: minLength: got 0, want 1; /times: got 9, want at most 3
}

// directory is a tool with something to keep.
type directory struct{ names map[string]string }

func (*directory) Name() string        { return "lookup_user" }
func (*directory) Description() string { return "Look up a user by id." }
func (*directory) InputSchema() tool.ToolSchema {
	return tool.ToolSchema{
		Type:       "object",
		Properties: map[string]tool.PropertyDef{"user_id": {Type: "string"}},
		Required:   []string{"user_id"},
	}
}

func (d *directory) Execute(_ context.Context, input json.RawMessage) (string, error) {
	var in struct {
		ID string `json:"user_id"`
	}
	if err := json.Unmarshal(input, &in); err != nil {
		return "", tool.ToolDiscard(err)
	}
	return d.names[in.ID], nil
}

func ExampleAdapt() {
	lookup := tool.Adapt(&directory{names: map[string]string{"u1": "Ada"}})
	out, err := lookup.Execute(context.Background(), json.RawMessage(`{"user_id":"u1"}`))
	fmt.Println(string(out), err)
	// Output: "Ada" <nil>
}

func ExampleWrap() {
	type function = func(context.Context, json.RawMessage) (json.RawMessage, error)
	logged := func(inner function) function {
		return func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
			out, err := inner(ctx, input)
			fmt.Printf("%s gave %s\n", input, out)
			return out, err
		}
	}
	authorized := func(inner function) function {
		return func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
			if tool.GetVariableOr(ctx, "role", "guest") != "admin" {
				return nil, tool.ToolCancel(errors.New("unauthorized"))
			}
			return inner(ctx, input)
		}
	}
	add := tool.Typed("add", "Adds.", func(_ context.Context, in struct{ A, B int }) (int, error) { return in.A + in.B, nil })
	guarded := tool.Wrap(add, logged, authorized) // authorized runs first

	_, err := guarded.Execute(context.Background(), json.RawMessage(`{"A":1,"B":2}`))
	fmt.Println(err)
	ctx, _ := tool.WithVariables(context.Background(), map[string]any{"role": "admin"})
	_, err = guarded.Execute(ctx, json.RawMessage(`{"A":1,"B":2}`))
	fmt.Println(err)
	// Output:
	// unauthorized
	// {"A":1,"B":2} gave 3
	// <nil>
}

func ExampleWithVariables() {
	ctx, err := tool.WithVariables(context.Background(), map[string]any{"tenant_id": "tenant-1", "max_chapters": 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	tenant := tool.MustGetVariable[string](ctx, "tenant_id")
	chapters := tool.GetVariableOr(ctx, "max_chapters", 10)
	_, ok := tool.GetVariable[string](ctx, "story_id")
	fmt.Println(tenant, chapters, ok)
	// Output: tenant-1 3 false
}

func ExampleKindOf() {
	err := fmt.Errorf("list orders: %w", tool.ToolSnooze(30*time.Second, errors.New("too many requests")))
	kind, after := tool.KindOf(err)
	fmt.Println(err, kind, after)
	// Output: list orders: too many requests snooze 30s
}

func ExampleExportOpenAI() {
	var r tool.Registry
	if err := r.Register("lookup_fact", "Look up facts", func(args struct {
		Topic string `json:"topic" description:"The topic to look up"`
	}) string {
		return "some fact about " + args.Topic
	}); err != nil {
		fmt.Println(err)
		return
	}
	doc, err := tool.ExportOpenAI(r.GetAllTools())
	fmt.Println(string(doc), err)

	result, err := r.Execute("lookup_fact", `{"topic":"Go"}`)
	fmt.Println(result, err)
	_, err = r.Execute("lookup_fact", `{}`)
	fmt.Println(tool.NewToolError("call_1", "lookup_fact", err).Content)
	// Output:
	// [{"type":"function","function":{"name":"lookup_fact","description":"Look up facts","parameters":{"type":"object","properties":{"topic":{"type":"string","description":"The topic to look up"}},"required":["topic"],"additionalProperties":false}}}] <nil>
	// some fact about Go <nil>
	// Error executing tool: input does not match the schema: (document): missing property 'topic'. Please fix your arguments.
}
