package typed_test

import (
	"encoding/json"
	"errors"
	"math/big"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/typed"
)

type node struct {
	Value any            `json:"value"`
	Next  *node          `json:"next"`
	Skip  *node          `json:"skip,omitempty"`
	Table map[string]int `json:"table"`
	Rows  [][]string     `json:"rows"`
	Addr  netip.Addr     `json:"addr"`
	When  *time.Time     `json:"when"`
	Sum   *big.Int       `json:"sum"`
	Raw   []byte         `json:"raw"`
	*address
}

// TestOutputsFitTheirSchema: whatever a tool returns, the schema that its type
// has been given accepts it. The host checks outputs against it.
func TestOutputsFitTheirSchema(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for name, value := range map[string]node{
		"nothing set": {},
		"everything set": {
			Value: []int{1}, Next: &node{Next: &node{}}, Skip: &node{}, Table: map[string]int{"b": 1, "a": 2},
			Rows: [][]string{nil, {"x"}}, Addr: netip.MustParseAddr("::1"), When: &now, Sum: big.NewInt(1), Raw: []byte{1},
			address: &address{Street: "Main"},
		},
	} {
		t.Run(name, func(t *testing.T) { checkOutput(t, value) })
	}
	checkOutput(t, []string(nil))
	checkOutput(t, (*int)(nil))
	checkOutput(t, map[string]any{"a": nil})
	checkOutput(t, struct{}{})
	checkOutput(t, uint8(255))
}

func checkOutput[Out any](t *testing.T, value Out) {
	t.Helper()
	tool := typed.Tool("t", "", func(*starling.Call, struct{}) (Out, error) { return value, nil })
	output, err := tool.Execute(&starling.Call{}, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate(t, tool.OutputSchema, string(output)); err != nil {
		t.Errorf("%s\ndoes not fit %s:\n%v", output, tool.OutputSchema, err)
	}
}

func TestOutputSchemas(t *testing.T) {
	for _, c := range []struct {
		name string
		tool starling.Tool
		want string
	}{
		{"any value", typed.Tool("t", "", discard[struct{}]), ""},
		{"a slice may be null", typed.Tool("t", "", func(*starling.Call, struct{}) (o []int8, e error) { return }),
			`{"type":["array","null"],"items":{"type":"integer","minimum":-128,"maximum":127}}`},
		{"a map", typed.Tool("t", "", func(*starling.Call, struct{}) (o map[string]bool, e error) { return }),
			`{"type":["object","null"],"additionalProperties":{"type":"boolean"}}`},
		{"members may be left out", typed.Tool("t", "", func(*starling.Call, struct{}) (o struct {
			A []int `json:"a,omitempty"`
			B int   `json:"b"`
		}, e error) {
			return
		}), `{"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}},"b":{"type":"integer"}},"required":["b"]}`},
	} {
		if c.tool.OutputSchema != c.want {
			t.Errorf("%s: %s", c.name, c.tool.OutputSchema)
		}
	}
}

// TestSchemaAndDecoderAgree: the decoder accepts every document that the
// schema accepts, so that the host reports a mistake to the model before a
// call is made.
func TestSchemaAndDecoderAgree(t *testing.T) {
	tool := typed.Tool("t", "", discard[everything])
	const good = `{"tenant":"t","id":"1","rank":1,"flag":true,"tiny":-1,"byte":255,"big":18446744073709551615,"raw":"AQ==","tags":[],"pair":[1,2.5],"homes":[{"street":"s"}],"when":"2026-01-02T03:04:05Z","any":[null],"number":1e5,"level":"high","Untagged":""}`
	for name, edit := range map[string][2]string{
		"as it is":                    {"", ""},
		"a member too many":           {`"id":"1"`, `"id":"1","x":1`},
		"a member too many, inside":   {`"street":"s"`, `"street":"s","x":1`},
		"a string for a boolean":      {`"flag":true`, `"flag":"true"`},
		"a byte that is too large":    {`"byte":255`, `"byte":256`},
		"a byte that is negative":     {`"byte":255`, `"byte":-1`},
		"a number that is too small":  {`"tiny":-1`, `"tiny":-129`},
		"a fraction for an integer":   {`"rank":1`, `"rank":1.5`},
		"a string in a list":          {`[1,2.5]`, `[1,"2"]`},
		"an object for a list":        {`"tags":[]`, `"tags":{}`},
		"a number for a list's item":  {`"tags":[]`, `"tags":[1]`},
		"a number for a text":         {`"level":"high"`, `"level":1`},
		"a string for a plain number": {`"number":1e5`, `"number":"x"`},
	} {
		t.Run(name, func(t *testing.T) {
			input := strings.Replace(good, edit[0], edit[1], 1)
			invalid := validate(t, tool.InputSchema, input)
			_, err := tool.Execute(&starling.Call{}, []byte(input))
			if (invalid == nil) != (err == nil) {
				t.Errorf("schema: %v\ndecoder: %v", invalid, err)
			}
			if name == "as it is" && err != nil {
				t.Error(err)
			}
		})
	}
}

func validate(t *testing.T, schema, doc string) error {
	t.Helper()
	c := jsonschema.NewCompiler()
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err = errors.Join(err, c.AddResource("schema.json", parsed)); err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	compiled, err := c.Compile("schema.json")
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(doc))
	if err != nil || !json.Valid([]byte(doc)) {
		t.Fatalf("%s: %v", doc, err)
	}
	return compiled.Validate(value)
}
