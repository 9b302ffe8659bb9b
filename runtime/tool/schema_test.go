package tool_test

import (
	"encoding/json"
	"errors"
	"math/big"
	"net/netip"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/schema"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/tool"
)

type address struct {
	Street string  `json:"street"`
	Zip    *string `json:"zip,omitempty"`
}

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

// TestOutputsFitTheirSchema: the schema that a type is given accepts every value of it. Tools in Go,
// in modules and in the host, have such schemas, and the host checks outputs against them.
func TestOutputsFitTheirSchema(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for name, value := range map[string]any{
		"nothing set": node{},
		"everything set": node{
			Value: []int{1}, Next: &node{Next: &node{}}, Skip: &node{}, Table: map[string]int{"b": 1, "a": 2},
			Rows: [][]string{nil, {"x"}}, Addr: netip.MustParseAddr("::1"), When: &now, Sum: big.NewInt(1), Raw: []byte{1},
			address: &address{Street: "Main"},
		},
		"no slice": []string(nil), "no number": (*int)(nil), "a map": map[string]any{"a": nil}, "no fields": struct{}{}, "a byte": uint8(255),
	} {
		doc, err := schema.Output(reflect.TypeOf(value))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		output, err := json.Marshal(value)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if doc == "" {
			continue // any value
		}
		compiled, err := tool.CompileSchema(work.Trusted(t.Context()), []byte(doc))
		if err == nil {
			err = compiled.Check(output)
		}
		if err != nil {
			t.Errorf("%s: %s\ndoes not fit %s:\n%v", name, output, doc, err)
		}
	}
}

type shout string

func (s *shout) UnmarshalText(text []byte) error {
	if string(text) != strings.ToUpper(string(text)) {
		return errors.New("not in capitals")
	}
	*s = shout(text)
	return nil
}

// TestSchemaAndDecoderAgree gives every value to a member of every type: what the schema of the type
// accepts is decoded, so the host reports mistakes to the model before it calls the tool. And what is
// decoded is accepted, so a test without the host sees them, too.
func TestSchemaAndDecoderAgree(t *testing.T) {
	types := []any{
		struct{ V int8 }{}, struct{ V int16 }{}, struct{ V int32 }{}, struct{ V int64 }{}, struct{ V int }{},
		struct{ V uint8 }{}, struct{ V uint16 }{}, struct{ V uint32 }{}, struct{ V uint64 }{}, struct{ V uint }{},
		struct{ V float32 }{}, struct{ V float64 }{}, struct{ V json.Number }{}, struct{ V json.RawMessage }{},
		struct{ V bool }{}, struct{ V string }{}, struct{ V []byte }{}, struct{ V time.Time }{}, struct{ V shout }{},
		struct{ V []int }{}, struct{ V [2]uint8 }{}, struct{ V *int }{}, struct{ V []string }{}, struct{ V address }{}, struct{ V []address }{},
		struct {
			V *int `json:",omitempty"`
		}{}, struct {
			V int `jsonschema:"enum=5,enum=-5"`
		}{}, struct {
			V float64 `jsonschema:"minimum=5,maximum=100"`
		}{}, struct {
			V string `jsonschema:"enum=,enum=x"`
		}{}, struct {
			V int `jsonschema:"default=5"`
		}{},
	}
	values := []string{
		``, `null`, `true`, `""`, `"x"`, `"5"`, `"X"`, `"AQ=="`, `"2026-01-02T03:04:05Z"`, `[]`, `[null]`, `[1]`, `[1,2]`, `[1.0,2e0]`, `[1,2.5]`, `[1,2,3]`, `["a"]`, `{}`,
		`{"street":"s"}`, `{"street":"s","zip":"z"}`, `{"street":5}`, `{"street":"s","x":1}`, `[{"street":"s"}]`, `[{}]`,
		`0`, `-0`, `0.0`, `-0.0`, `5`, `5.0`, `5.00`, `5e0`, `50E-1`, `0.5e+1`, `0.05e2`, `-5`, `-5.0`, `5.5`, `5e-1`, `127`, `128`, `1.28e2`, `-129`, `255`, `256`, `300`, `300.0`, `65535`, `65536`, `-32769`,
		`2147483648`, `4294967295`, `4294967296`, `9007199254740993`, `9007199254740993.0`, `9223372036854775807`, `9223372036854775807.0`, `9.223372036854775807e18`,
		`9223372036854775808`, `18446744073709551615`, `18446744073709551615.0`, `18446744073709551616`, `1e2`, `1e15`, `1e18`, `1e19`, `1e20`, `1e300`, `-1e-300`,
	}
	for _, in := range types {
		doc, err := schema.Input(reflect.TypeOf(in))
		if err != nil {
			t.Fatal(err)
		}
		compiled, err := tool.CompileSchema(work.Trusted(t.Context()), []byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		defaults, err := schema.ParseDefaults([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range values {
			input := `{"V":` + value + `}`
			if value == "" {
				input = `{}`
			}
			filled, err := defaults.Fill([]byte(input))
			if err != nil {
				t.Fatal(err)
			}
			refused := compiled.Check(filled)
			err = schema.Decode(filled, reflect.New(reflect.TypeOf(in)).Interface())
			member := reflect.TypeOf(in).Field(0).Type
			if member.Kind() == reflect.Pointer {
				member = member.Elem()
			}
			number, isNumber := new(big.Rat).SetString(value)
			large := isNumber && (member.Kind() == reflect.Uint64 || member.Kind() == reflect.Uint) && !number.Num().IsUint64() ||
				isNumber && (member.Kind() == reflect.Int64 || member.Kind() == reflect.Int) && !number.Num().IsInt64() ||
				isNumber && member.Kind() == reflect.Float32 && strings.HasPrefix(value, "1e3")
			switch {
			case refused == nil && err != nil && !(large && strings.HasPrefix(err.Error(), "V: want ") || beyond.MatchString(err.Error())):
				t.Errorf("%s fits %s\nand is not decoded: %v", input, doc, err)
			case refused != nil && err == nil && !unchecked.MatchString(refused.Error()):
				t.Errorf("%s is decoded, and does not fit %s\n%v", input, doc, refused)
			}
		}
	}
}

var (
	// beyond matches the failures of texts that only the decoder can refuse.
	beyond = regexp.MustCompile(`^illegal base64|^not in capitals|^parsing time`)
	// unchecked matches the mismatches that only the host checks.
	unchecked = regexp.MustCompile(`missing property|got null, want|value must be one of|want at (least|most)|(min|max)Items: got|/V: got array, want string|/V: got string, want number`)
)
