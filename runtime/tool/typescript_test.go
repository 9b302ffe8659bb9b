package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/runtime/tool"
)

// declared is a tool that is only described.
type declared struct{ name, description, input, output string }

func (d declared) Name() string                  { return d.name }
func (d declared) Description() string           { return d.description }
func (d declared) Schema() json.RawMessage       { return json.RawMessage(d.input) }
func (d declared) OutputSchema() json.RawMessage { return json.RawMessage(d.output) }
func (declared) Execute(context.Context, json.RawMessage) (json.RawMessage, error) {
	return nil, nil
}

func TestTypeScript(t *testing.T) {
	got := tool.TypeScript(
		declared{"look-up", "Looks up a city.\nIt is fast. */", `{"type":"object","properties":{
			"city":{"type":"string","description":"Its name"},"unit":{"enum":["C","F"]},"at":{"type":["string","null"]},
			"where":{"anyOf":[{"type":"integer"},{"type":"number"},{"type":"boolean"}]},"tags":{"type":"array","items":{"type":"string"}},
			"any":{},"yes":true,"a b":{"const":{"x":1}}},"required":["city"]}`, `{"type":"object","additionalProperties":{"type":"number"}}`},
		declared{"none", "", `{"type":"object","additionalProperties":false}`, ""},
		tool.Rename(declared{"odd", "", `[`, `{"type":"object","properties":{"deep":{"type":"array","items":{"type":"array","items":{"type":"array","items":{"type":"array","items":{"type":"array","items":{"type":"array","items":{"type":"array","items":{"type":"string"}}}}}}}}}}`}, "renamed"),
	)
	want := `declare const tools: {
  /** Looks up a city.
  It is fast. * / */
  "look-up"(input: {
    "a b"?: unknown;
    any?: unknown;
    at?: string | null;
    /** Its name */
    city: string;
    tags?: Array<string>;
    unit?: "C" | "F";
    where?: number | boolean;
    yes?: unknown;
  }): Promise<Record<string, number>>;
  none(input: {}): Promise<unknown>;
  renamed(input: unknown): Promise<{
    deep?: Array<Array<Array<Array<Array<Array<Array<unknown>>>>>>>;
  }>;
};
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestTypeScriptOfComposedSchemas declares references, compositions and objects without a type,
// as generators of schemas write them.
func TestTypeScriptOfComposedSchemas(t *testing.T) {
	for schema, want := range map[string]string{
		`{"properties":{"a":{"type":"string"}},"required":["a"]}`:                                                                                                                "{ a: string; }",
		`{"type":"object","properties":{"a":{"type":"string"},"b":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]}`:                                                          "{ a?: string; b?: unknown; }",
		`{"$ref":"#/$defs/x~1y","$defs":{"x/y":{"type":"object","properties":{"n":{"$ref":"#/definitions/n"}}}},"definitions":{"n":{"type":"integer"}}}`:                         "{ n?: number; }",
		`{"allOf":[{"$ref":"#/$defs/a"},{"properties":{"b":{"type":"number"}}},{"description":"no type"}],"$defs":{"a":{"type":"object","properties":{"a":{"type":"string"}}}}}`: "{ a?: string; } & { b?: number; }",
		`{"type":"object","properties":{"k":{"const":1}},"oneOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"null"}}}]}`:                "{ k?: 1; } & ({ a: string; } | { b?: null; })",
		`{"type":"object","properties":{"next":{"$ref":"#"},"v":{"type":"string"}}}`:                                                                                             "{ next?: { next?: unknown; v?: string; }; v?: string; }",
		`{"$ref":"#anchor"}`:                       "unknown",
		`{"$ref":"#/no/where"}`:                    "unknown",
		`{"$ref":"https://x.example/schema"}`:      "unknown",
		`{"items":{"type":"string"}}`:              "Array<string>",
		`{"anyOf":[{"type":"string"},{"not":{}}]}`: "unknown",
	} {
		got := tool.TypeScript(declared{"t", "", `{"type":"object","additionalProperties":false}`, schema})
		_, got, _ = strings.Cut(got, "Promise<")
		got = strings.Join(strings.Fields(got[:strings.LastIndex(got, ">")]), " ")
		if got != want {
			t.Errorf("%s\n is %s\n not %s", schema, got, want)
		}
	}

	// References that multiply end, as does the type.
	var defs []string
	for i := range 9 {
		defs = append(defs, fmt.Sprintf(`"d%d":{"properties":{%s}}`, i, fmt.Sprintf(`"a":{"$ref":"#/$defs/d%[1]d"},"b":{"$ref":"#/$defs/d%[1]d"},"c":{"$ref":"#/$defs/d%[1]d"},"d":{"$ref":"#/$defs/d%[1]d"},"e":{"$ref":"#/$defs/d%[1]d"},"f":{"$ref":"#/$defs/d%[1]d"}`, i+1)))
	}
	many := `{"$ref":"#/$defs/d0","$defs":{` + strings.Join(defs, ",") + `}}`
	if got := tool.TypeScript(declared{"t", "", many, ""}); len(got) > 2<<20 || !strings.Contains(got, "unknown") {
		t.Errorf("the type has %d bytes", len(got))
	}
}

func TestSearch(t *testing.T) {
	var all []tool.Tool
	for i := range 30 {
		all = append(all, declared{fmt.Sprintf("tool_%d", i), "Does something.", `{"type":"object"}`, ""})
	}
	all[7] = declared{"weather", "The temperature in a city", `{"type":"object"}`, ""}
	all[9] = declared{"city_list", "All cities", `{"type":"object"}`, ""}
	if told := tool.Declarations("javascript", all...); !strings.Contains(told, "30 other tools") || !strings.Contains(told, "city_list") || strings.Contains(told, "declare") {
		t.Error(told)
	}
	if told := tool.Declarations("javascript", all[:20]...); !strings.Contains(told, "declare const tools") {
		t.Error(told)
	}
	for query, want := range map[string][]string{
		"City?":       {"city_list", "weather"},
		"temperature": {"weather"},
		"something":   {"tool_0", "tool_11"},
		"zebra":       {"no tool has these words"},
		"":            {"no tool has these words"},
	} {
		output, err := tool.Search(all...).Execute(t.Context(), json.RawMessage(fmt.Sprintf(`{"query":%q}`, query)))
		if err != nil {
			t.Fatal(err)
		}
		var text string
		if err := json.Unmarshal(output, &text); err != nil {
			t.Fatal(err)
		}
		for last := 0; len(want) > 0; want = want[1:] {
			at := strings.Index(text, want[0])
			if at < last {
				t.Errorf("%q: %s not in its place in\n%s", query, want[0], text)
			}
			last = at
		}
		if strings.Count(text, "Promise") > 10 {
			t.Errorf("%q: too many tools\n%s", query, text)
		}
	}
	if _, err := tool.Search(all...).Execute(t.Context(), json.RawMessage(`{}`)); err == nil {
		t.Error("an input without a query is accepted")
	}
}

// TestSearchToolsIsBounded gives search_tools queries that cost too much, and one whose call was
// cancelled.
func TestSearchToolsIsBounded(t *testing.T) {
	var words []string
	for i := range 40 {
		words = append(words, fmt.Sprintf("w%d", i))
	}
	search := tool.Search(declared{"tool", "d", `{"type":"object"}`, ""})
	for why, query := range map[string]string{
		"the query has 1001000 bytes, and may have 1024": strings.Repeat("d ", 500_500),
		"the query has more than 32 different words":     strings.Join(words, " "),
	} {
		if _, err := search.Execute(t.Context(), json.RawMessage(`{"query":"`+query+`"}`)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, not %q", err, why)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := search.Execute(over, json.RawMessage(`{"query":"d d d"}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: %v", err)
	}
}

// TestTypeScriptTakesLinearTime: a server says what its tools take, and 60,000 values of an
// enum took nine seconds.
func TestTypeScriptTakesLinearTime(t *testing.T) {
	values := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"%x",`, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	fastest := func(do func()) time.Duration {
		best := time.Hour
		for range 3 {
			began := time.Now()
			do()
			best = min(best, time.Since(began))
		}
		return best
	}
	list := "[" + values(30_000) + "]"
	one, huge := declared{name: "t", input: `{"enum":` + list + `}`}, declared{name: "t", input: `{"enum":[` + values(60_000) + `]}`}
	if got := strings.Count(tool.TypeScript(one), "|"); got != 30_000-1 {
		t.Errorf("30,000 values are joined by %d bars", got)
	}
	if got := tool.TypeScript(huge); !strings.Contains(got, "(input: unknown)") {
		t.Errorf("60,000 values: %.100s", got)
	}
	read := fastest(func() {
		var all []json.RawMessage
		if err := json.Unmarshal([]byte(list), &all); err != nil {
			t.Error(err)
		}
	})
	if took := fastest(func() { tool.TypeScript(one) }); took > 30*read {
		t.Errorf("30,000 values took %v, and %v to read", took, read)
	}
}
