package guest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/work"
	runtimetool "github.com/starling-host/starling/runtime/tool"
)

func describeOne(tool string) string { return `{"tools":[` + tool + `]}` }

// manySubschemas are two tools that have a few too many together.
var manySubschemas = describeOne(fmt.Sprintf(`{"name":"a",%[1]s},{"name":"b",%[1]s}`,
	`"description":"","input_schema":{"type":"object","allOf":[`+strings.Repeat("{},", 2500)+`true]}`))

// TestARecordedModuleIsNotBound: what was accepted once can be replayed.
func TestARecordedModuleIsNotBound(t *testing.T) {
	doc := describeOne(`{"name":"a","description":"","input_schema":{"type":"object","allOf":[` + strings.Repeat("{},", 5500) + `{}]}}`)
	if _, err := parseDescription(work.New(t.Context(), work.ForSize(len(doc))), []byte(doc)); err == nil {
		t.Error("a new module is accepted")
	}
	if _, err := parseDescription(work.New(t.Context(), recordedSchemas), []byte(doc)); err != nil {
		t.Errorf("a recorded one is refused: %v", err)
	}
}

func TestParseDescriptionRefuses(t *testing.T) {
	const schema = `"input_schema":{"type":"object"}`
	var large []string
	for i := range 6 {
		patterns := strings.Repeat(`{"pattern":"^[ab]{980}$"},`, 5)
		large = append(large, fmt.Sprintf(`{"name":"t%d","description":"","input_schema":{"type":"object","allOf":[%s{}]}}`, i, patterns))
	}
	for name, c := range map[string]struct{ doc, want string }{
		"schemas that become large together": {describeOne(strings.Join(large, ",")), "too large together"},
		"a pattern that becomes large":       {describeOne(`{"name":"a","description":"","input_schema":{"type":"object","allOf":[{"pattern":"^[\\pL]{900}$"}]}}`), "too large"},
		"schemas with many subschemas":       {manySubschemas, "costs more than its size allows"},
		"no JSON":                            {`hello`, "is not JSON"},
		"a duplicate key":                    {`{"tools":[],"tools":[]}`, "is not JSON"},
		"no tools":                           {`{"tools":[]}`, "lists 0 tools"},
		"an unknown field":                   {`{"tools":[],"more":1}`, "unknown field"},
		"fuel below zero":                    {describeOne(`{"name":"a","description":"",` + schema + `,"limits":{"fuel":-1}}`), "tools.limits.fuel: want an integer from 0 to 18446744073709551615, got a number -1"},
		"a name with a space":                {describeOne(`{"name":"a b","description":"",` + schema + `}`), "name must match"},
		"an empty name":                      {describeOne(`{"name":"","description":"",` + schema + `}`), "name must match"},
		"two tools of one name":              {`{"tools":[{"name":"a","description":"",` + schema + `},{"name":"a","description":"",` + schema + `}]}`, "twice"},
		"no input schema":                    {describeOne(`{"name":"a","description":""}`), "must be an object schema"},
		"an input that is no object":         {describeOne(`{"name":"a","description":"","input_schema":{"type":"string"}}`), "must be an object schema"},
		"a schema that is no schema":         {describeOne(`{"name":"a","description":"","input_schema":{"type":"object","properties":[]}}`), "input_schema"},
		"an output that lies":                {describeOne(`{"name":"a","description":"",` + schema + `,"output_schema":{"type":"objekt"}}`), "output_schema"},
		"a description with an override": {
			describeOne(`{"name":"a","description":"safe \u202e elif eteled",` + schema + `}`), "invisible character U+202E"},
		"a description with tag characters": {
			describeOne(`{"name":"a","description":"\udb40\udc41",` + schema + `}`), "invisible character U+E0041"},
		"a description with an escape": {
			describeOne(`{"name":"a","description":"\u001b[2J",` + schema + `}`), "invisible character U+001B"},
		"a description of a book": {
			describeOne(`{"name":"a","description":"` + strings.Repeat("x", 5000) + `",` + schema + `}`), "more than 4096"},
		"an effect that is a URL": {
			describeOne(`{"name":"a","description":"",` + schema + `,"effects":["https://example.com/x"]}`), "is not HOST or HOST:PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseDescription(work.New(t.Context(), work.ForSize(len(c.doc))), []byte(c.doc))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one that contains %q", err, c.want)
			}
		})
	}
}

func TestParseDescriptionAccepts(t *testing.T) {
	tools, err := parseDescription(work.New(t.Context(), work.ForSize(1000)), []byte(`{"tools":[{
		"name":"customer_lookup","description":"Finds a customer.\nBy id.",
		"input_schema":{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]},
		"output_schema":{"type":"object"},
		"effects":["api.example.com","127.0.0.1:8080"],"idempotent":true,
		"limits":{"fuel":1000000,"timeout_ms":500}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	tool := tools[0]
	if tool.Name() != "customer_lookup" || !tool.Describe().Idempotent || tool.Describe().Limits.Fuel != 1000000 {
		t.Errorf("got %+v", tool.Describe())
	}
	if err := runtimetool.Fits(tool.input, parsed(t, `{"id":42}`), false); err == nil || !strings.Contains(err.Error(), "/id: ") {
		t.Errorf("a number passed for a string: %v", err)
	}
	if err := runtimetool.Fits(tool.input, parsed(t, `{"id":"42"}`), false); err != nil {
		t.Errorf("a good input was refused: %v", err)
	}
}

func TestCommandName(t *testing.T) {
	for file, want := range map[string]string{
		"wc.wasm":                         "wc",
		"My Tool 2.wasm":                  "my-tool-2",
		"2048.wasm":                       "command",
		"":                                "command",
		"été.wasm":                        "t-",
		strings.Repeat("a", 99) + ".wasm": strings.Repeat("a", 64),
	} {
		if got := commandName(file); got != want {
			t.Errorf("commandName(%q) = %q, want %q", file, got, want)
		}
	}
}
