package tool_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/runtime/tool"
)

type weatherArgs struct {
	City string  `json:"city" description:"The city name"`
	Unit *string `json:"unit,omitempty" description:"Temperature unit"`
}

func weather(args weatherArgs) string { return "sunny in " + args.City }

func TestRegistryExecute(t *testing.T) {
	var r tool.Registry
	for name, fn := range map[string]any{
		"weather": weather,
		"pointer": func(args *weatherArgs) string { return weather(*args) },
		"none":    func(struct{}) string { return "" },
		"null":    func(struct{}) *string { return nil },
		"number":  func(struct{}) (int, error) { return 7, nil },
		"object":  func(args weatherArgs) (weatherArgs, error) { return args, nil },
		"fail":    func(struct{}) (string, error) { return "lost", io.EOF },
		"panic":   func(struct{}) string { panic("kaboom") },
		"channel": func(struct{}) chan int { return nil },
	} {
		if err := r.Register(name, "", fn); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, args, want, wantErr string
		is                        error
	}{
		{"weather", `{"city":"Paris"}`, "sunny in Paris", "", nil},
		{"weather", ` {"unit":"C", "city":"Paris"} `, "sunny in Paris", "", nil},
		{"pointer", `{"city":"Paris"}`, "sunny in Paris", "", nil},
		{"none", `{}`, "", "", nil},
		{"null", `{}`, "null", "", nil},
		{"number", `{}`, "7", "", nil},
		{"object", `{"city":"Paris"}`, `{"city":"Paris"}`, "", nil},
		{"fail", `{}`, "", "EOF", io.EOF},
		{"panic", `{}`, "", "kaboom", tool.ErrPanicked},
		{"channel", `{}`, "", "output: json: unsupported type", nil},
		{"weather", `{}`, "", "missing property 'city'", nil},
		{"weather", `{"city":1}`, "", "/city: got number, want string", nil},
		{"weather", `{"city":`, "", "input is not JSON", nil},
		{"weather", ``, "", "input is not JSON", nil},
		{"nobody", `{}`, "", `tool: unknown tool: "nobody"`, tool.ErrUnknownTool},
	} {
		got, err := r.Execute(c.name, c.args)
		if got != c.want || (err == nil) != (c.wantErr == "") || err != nil && !strings.Contains(err.Error(), c.wantErr) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s(%s): got %q, %v; want %q, %s", c.name, c.args, got, err, c.want, c.wantErr)
		}
	}
}

func TestRegisterRefuses(t *testing.T) {
	var r tool.Registry
	if err := r.Register("taken", "", weather); err != nil {
		t.Fatal(err)
	}
	var none func(weatherArgs) string
	for _, c := range []struct {
		name string
		fn   any
		want string
	}{
		{"text", "weather", "string is not a function"},
		{"nothing", nil, "is not a function"},
		{"a nil function", none, "is not a function"},
		{"no argument", func() string { return "" }, "does not have exactly one argument"},
		{"two arguments", func(a, b weatherArgs) string { return "" }, "does not have exactly one argument"},
		{"any number of arguments", func(...weatherArgs) string { return "" }, "does not have exactly one argument"},
		{"no result", func(weatherArgs) {}, "returns neither"},
		{"only an error", func(weatherArgs) error { return nil }, "returns neither"},
		{"two values", func(weatherArgs) (string, string) { return "", "" }, "returns neither"},
		{"three results", func(weatherArgs) (string, string, error) { return "", "", nil }, "returns neither"},
		{"a string as argument", func(string) string { return "" }, "is not a struct"},
		{"a map inside", func(struct{ M map[string]int }) string { return "" }, "is a map"},
		{"taken", weather, "empty or taken"},
		{"", weather, "empty or taken"},
	} {
		if err := r.Register(c.name, "", c.fn); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	if got := r.GetAllTools(); len(got) != 1 {
		t.Errorf("%d tools", len(got))
	}
}

func TestGetAllTools(t *testing.T) {
	var r tool.Registry
	if none := r.GetAllTools(); none == nil || len(none) != 0 {
		t.Errorf("without tools: %#v", none)
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			if err := r.Register(fmt.Sprint(i), "described", weather); err != nil {
				t.Error(err)
			}
			_, _ = r.Execute("0", `{"city":"x"}`)
		})
	}
	group.Wait()
	all := r.GetAllTools()
	const want = `{"type":"object","properties":{"city":{"type":"string","description":"The city name"},` +
		`"unit":{"type":"string","description":"Temperature unit"}},"required":["city"],"additionalProperties":false}`
	if len(all) != 8 || all[0].Description() != "described" || string(all[0].Schema()) != want {
		t.Errorf("%d tools, the first %q %s", len(all), all[0].Description(), all[0].Schema())
	}
	all[0] = nil
	if r.GetAllTools()[0] == nil {
		t.Error("the list is the registry's own")
	}
}

func TestResultMessages(t *testing.T) {
	for want, message := range map[string]tool.ResultMessage{
		`{"role":"tool","tool_call_id":"c1","name":"weather","content":"sunny"}`:                                                 tool.NewToolResult("c1", "weather", "sunny"),
		`{"role":"tool","tool_call_id":"c2","name":"weather","content":"Error executing tool: EOF. Please fix your arguments."}`: tool.NewToolError("c2", "weather", io.EOF),
	} {
		got, err := json.Marshal(message)
		if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		if message.IsError != strings.Contains(want, "Error") {
			t.Errorf("%s: IsError is %v", want, message.IsError)
		}
	}
}
