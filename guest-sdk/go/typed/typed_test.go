package typed_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/typed"
)

type address struct {
	Street string  `json:"street"`
	Zip    *string `json:"zip,omitempty" jsonschema:"description=Postal code, as printed"`
}

type common struct {
	Tenant string `json:"tenant"`
}

type level int

func (l *level) UnmarshalText(text []byte) error {
	if string(text) != "high" {
		return errors.New("only high is known")
	}
	*l = 1
	return nil
}

type everything struct {
	common
	ID       string          `json:"id" jsonschema:"description=Customer id"`
	Plan     string          `json:"plan,omitempty" jsonschema:"enum=free,description=The plan, if a=b is known,enum=pro"`
	Rank     int             `json:"rank" jsonschema:"enum=1,enum=-2"`
	Ratio    float64         `json:"ratio,omitzero" jsonschema:"enum=0.5"`
	Flag     bool            `json:"flag"`
	Tiny     int8            `json:"tiny"`
	Byte     uint8           `json:"byte"`
	Big      uint64          `json:"big"`
	Raw      []byte          `json:"raw"`
	Tags     []string        `json:"tags"`
	Pair     [2]float32      `json:"pair"`
	Homes    []address       `json:"homes"`
	When     time.Time       `json:"when"`
	Any      json.RawMessage `json:"any"`
	Number   json.Number     `json:"number"`
	Level    level           `json:"level"`
	Untagged string
	Hidden   chan int `json:"-"`
	_        map[string]int
}

func discard[In any](*starling.Call, In) (any, error) { return nil, nil }

func TestInputSchema(t *testing.T) {
	const want = `{"type":"object","properties":{
		"tenant":{"type":"string"},
		"id":{"type":"string","description":"Customer id"},
		"plan":{"type":"string","description":"The plan, if a=b is known","enum":["free","pro"]},
		"rank":{"type":"integer","enum":[1,-2]},
		"ratio":{"type":"number","enum":[0.5]},
		"flag":{"type":"boolean"},
		"tiny":{"type":"integer","minimum":-128,"maximum":127},
		"byte":{"type":"integer","minimum":0,"maximum":255},
		"big":{"type":"integer","minimum":0},
		"raw":{"type":"string","contentEncoding":"base64"},
		"tags":{"type":"array","items":{"type":"string"}},
		"pair":{"type":"array","items":{"type":"number"},"minItems":2,"maxItems":2},
		"homes":{"type":"array","items":{"type":"object","properties":{
			"street":{"type":"string"},
			"zip":{"type":"string","description":"Postal code, as printed"}},
			"required":["street"],"additionalProperties":false}},
		"when":{"type":"string","format":"date-time"},
		"any":{},
		"number":{"type":"number"},
		"level":{"type":"string"},
		"Untagged":{"type":"string"}},
		"required":["tenant","id","rank","flag","tiny","byte","big","raw","tags","pair","homes","when","any","number","level","Untagged"],
		"additionalProperties":false}`
	tool := typed.Tool("t", "d", discard[everything])
	if want := strings.NewReplacer("\n", "", "\t", "").Replace(want); tool.InputSchema != want {
		t.Errorf("got  %s\nwant %s", tool.InputSchema, want)
	}
	if tool.Name != "t" || tool.Description != "d" {
		t.Errorf("got %+v", tool)
	}
	if got := typed.Tool("t", "d", discard[struct{}]).InputSchema; got != `{"type":"object","properties":{},"required":[],"additionalProperties":false}` {
		t.Errorf("no parameters: %s", got)
	}
}

type bounded struct {
	Name  string   `json:"name" jsonschema:"minLength=1,maxLength=8,pattern=^[a-z]{1,8}$" description:"A short name"`
	Text  string   `json:"text" jsonschema:"description=wins" description:"loses"`
	Rank  int      `json:"rank" jsonschema:"minimum=-5,maximum=5,default=3"`
	Ratio *float64 `json:"ratio,omitempty" jsonschema:"minimum=0,maximum=0.5,required=true"`
	Tags  []string `json:"tags" jsonschema:"minItems=1,maxItems=3,default=[\"a\",\"b\"]"`
	Flag  bool     `json:"flag" jsonschema:"required=false"`
	Homes []struct {
		Zip string `json:"zip" jsonschema:"default=none"`
	} `json:"homes"`
}

func TestConstraints(t *testing.T) {
	const want = `{"type":"object","properties":{
		"name":{"type":"string","description":"A short name","minLength":1,"maxLength":8,"pattern":"^[a-z]{1,8}$"},
		"text":{"type":"string","description":"wins"},
		"rank":{"type":"integer","default":3,"minimum":-5,"maximum":5},
		"ratio":{"type":"number","minimum":0,"maximum":0.5},
		"tags":{"type":"array","default":["a","b"],"items":{"type":"string"},"minItems":1,"maxItems":3},
		"flag":{"type":"boolean"},
		"homes":{"type":"array","items":{"type":"object","properties":{"zip":{"type":"string","default":"none"}},
			"required":[],"additionalProperties":false}}},
		"required":["name","text","ratio","homes"],
		"additionalProperties":false}`
	tool := typed.Tool("t", "d", func(_ *starling.Call, in bounded) (bounded, error) { return in, nil })
	if want := strings.NewReplacer("\n", "", "\t", "").Replace(want); tool.InputSchema != want {
		t.Errorf("got  %s\nwant %s", tool.InputSchema, want)
	}
	if strings.Contains(tool.OutputSchema, "default") || !strings.Contains(tool.OutputSchema, `"required":["name","text","rank","tags","flag","homes"]`) {
		t.Errorf("what the reader fills in is no part of an output: %s", tool.OutputSchema)
	}
	got, err := tool.Execute(&starling.Call{}, []byte(`{"name":"x","text":"<","ratio":0.25,"flag":true,"homes":[{},{"zip":""}],"rank":0}`))
	filled := `{"name":"x","text":"\u003c","rank":0,"ratio":0.25,"tags":["a","b"],"flag":true,"homes":[{"zip":"none"},{"zip":""}]}`
	if err != nil || string(got) != filled {
		t.Errorf("got %s, %v\nwant %s", got, err, filled)
	}
}

type tree struct {
	Children []tree `json:"children"`
}

type loop []loop

type itself struct{ X int }

func (*itself) UnmarshalJSON([]byte) error { return nil }

func TestToolPanics(t *testing.T) {
	for _, c := range []struct {
		name string
		make func()
		want string
	}{
		{"a string as input", func() { typed.Tool("bad", "", discard[string]) }, `typed: tool "bad": input type string is not a struct`},
		{"a pointer as input", func() { typed.Tool("", "", discard[*address]) }, "input type *typed_test.address is not a struct"},
		{"a time as input", func() { typed.Tool("", "", discard[time.Time]) }, "input type time.Time is not a struct with fields"},
		{"a map as input", func() { typed.Tool("", "", discard[map[string]int]) }, "is a map"},
		{"a map inside", func() { typed.Tool("", "", discard[struct{ M []map[string]int }]) }, "input field M: type map[string]int is a map"},
		{"an interface inside", func() { typed.Tool("", "", discard[struct{ A struct{ B any } }]) }, "field A: field B: type interface {} is an interface"},
		{"a recursive struct", func() { typed.Tool("", "", discard[tree]) }, "field Children: type typed_test.tree contains itself"},
		{"a recursive slice", func() { typed.Tool("", "", discard[struct{ L loop }]) }, "type typed_test.loop contains itself"},
		{"a type that decodes itself", func() { typed.Tool("", "", discard[struct{ B big.Int }]) }, "type big.Int decodes itself"},
		{"an input that decodes itself", func() { typed.Tool("", "", discard[itself]) }, "type typed_test.itself decodes itself"},
		{"a channel", func() { typed.Tool("", "", discard[struct{ C chan int }]) }, "type chan int has no form in JSON"},
		{"two fields of one name", func() {
			typed.Tool("", "", discard[struct {
				ID string
				B  string `json:"ID"`
			}])
		}, `has the members "ID" and "ID"`},
		{"two names that differ in case", func() {
			typed.Tool("", "", discard[struct {
				A string `json:"id"`
				B string `json:"ID"`
			}])
		}, `has the members "id" and "ID"`},
		{"a field that shadows an embedded one", func() {
			typed.Tool("", "", discard[struct {
				common
				T string `json:"tenant"`
			}])
		}, `has the members "tenant" and "tenant"`},
		{"an embedded pointer to an unexported type", func() { typed.Tool("", "", discard[struct{ *common }]) }, "embedded pointer to the unexported type"},
		{"the option string", func() {
			typed.Tool("", "", discard[struct {
				N int `json:",string"`
			}])
		}, "tag json: a number or boolean in quotes"},
		{"a name that encoding/json ignores", func() {
			typed.Tool("", "", discard[struct {
				N int `json:"a€"`
			}])
		}, `encoding/json ignores the name "a€"`},
		{"a tag without a key", func() {
			typed.Tool("", "", discard[struct {
				N int `jsonschema:"The number"`
			}])
		}, `"The number" does not begin with a key and an equals sign`},
		{"an unknown key", func() {
			typed.Tool("", "", discard[struct {
				N int `jsonschema:"description=The number,least=3"`
			}])
		}, "tag jsonschema: least=3: unknown key"},
		{"an enum of the wrong type", func() {
			typed.Tool("", "", discard[struct {
				N int `jsonschema:"enum=one"`
			}])
		}, "enum=one: strconv.ParseInt"},
		{"a length of a number", func() {
			typed.Tool("", "", discard[struct {
				N int `jsonschema:"minLength=1"`
			}])
		}, "minLength=1: is for type string, and this is integer"},
		{"a length below zero", func() {
			typed.Tool("", "", discard[struct {
				S string `jsonschema:"minLength=-1"`
			}])
		}, "minLength=-1: strconv.ParseUint"},
		{"a number of items of a fixed array", func() {
			typed.Tool("", "", discard[struct {
				A [2]int `jsonschema:"minItems=1"`
			}])
		}, "minItems=1: a fixed array has 2 items"},
		{"a bound that JSON does not have", func() {
			typed.Tool("", "", discard[struct {
				F float64 `jsonschema:"minimum=NaN"`
			}])
		}, "minimum=NaN: is not a number that JSON has"},
		{"a default that is not JSON", func() {
			typed.Tool("", "", discard[struct {
				L []int `jsonschema:"default=[1"`
			}])
		}, "default=[1: is not JSON"},
		{"required, perhaps", func() {
			typed.Tool("", "", discard[struct {
				N int `jsonschema:"required=perhaps"`
			}])
		}, "required=perhaps: strconv.ParseBool"},
		{"an enum with a value twice", func() {
			typed.Tool("", "", discard[struct {
				N int `jsonschema:"enum=1,enum=01"`
			}])
		}, "enum=01: is repeated"},
		{"an enum on a boolean", func() {
			typed.Tool("", "", discard[struct {
				B bool `jsonschema:"enum=true"`
			}])
		}, "only strings and numbers can have an enum"},
		{"an output without form in JSON", func() {
			typed.Tool("", "", func(*starling.Call, struct{}) (f func(), err error) { return })
		}, "output type func() has no form in JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("panic %q\nwant  %q", got, c.want)
				}
			}()
			c.make()
		})
	}
}

func TestDecodeIsStrict(t *testing.T) {
	type in struct {
		ID   string  `json:"id"`
		Home address `json:"home"`
		N    int8    `json:"n"`
	}
	tool := typed.Tool("t", "d", func(_ *starling.Call, in in) (in2 any, err error) { return in, nil })
	for _, c := range []struct{ name, input, want string }{
		{"an unknown member", `{"id":"1","nope":2}`, `input: unknown field "nope"`},
		{"an unknown member inside", `{"home":{"planet":"Mars"}}`, `input: unknown field "planet"`},
		{"a number for a string", `{"home":{"street":5}}`, "input: home.street: want a string, got a number at byte 19"},
		{"a string for an object", `{"home":"x"}`, "input: home: want an object, got a string at byte 11"},
		{"a number that is too large", `{"n":300}`, "input: n: want an integer from -128 to 127, got a number 300 at byte 8"},
		{"an integer that is too large as a fraction", `{"n":300.0}`, "input: n: want an integer from -128 to 127, got a number 300 at byte 8"},
		{"an integer beyond 64 bits", `{"n":1e30}`, "input: n: want an integer from -128 to 127, got a number 1e30 at byte 9"},
		{"a fraction for an integer", `{"n":1.5}`, "input: n: want an integer, got a number 1.5 at byte 8"},
		{"null", `null`, "input: want an object"},
		{"an array", `[]`, "input: want an object"},
		{"two objects", `{} {}`, "input: text after the object"},
		{"half an object", `{"id":`, "input: unexpected EOF"},
		{"nothing", ``, "input: want an object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := tool.Execute(&starling.Call{}, []byte(c.input))
			var marked *starling.Error
			if err == nil || err.Error() != c.want || !errors.As(err, &marked) || marked.Kind != starling.KindDiscard {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// An integer of JSON Schema may have a fraction of zero.
func TestDecodeTakesIntegersThatAreWrittenAsFractions(t *testing.T) {
	type in struct {
		N    int64   `json:"n"`
		List []uint8 `json:"list"`
		F    float64 `json:"f"`
		S    string  `json:"s"`
	}
	tool := typed.Tool("t", "d", func(_ *starling.Call, in in) (in2 any, err error) { return in, nil })
	out, err := tool.Execute(&starling.Call{}, []byte(`{"n":9007199254740993.0,"list":[1e0,2.00,-0.0,255],"f":2.50,"s":"\"7.0\\"}`))
	if want := `{"n":9007199254740993,"list":"AQIA/w==","f":2.5,"s":"\"7.0\\"}`; err != nil || string(out) != want {
		t.Errorf("%s, %v, want %s", out, err, want)
	}
}

func TestExecute(t *testing.T) {
	type in struct {
		A, B float64
	}
	divide := typed.Tool("divide", "", func(call *starling.Call, in in) (float64, error) {
		if call.Attempt == 2 {
			return 0, starling.Transient(errors.New("not now"))
		}
		return in.A / in.B, nil
	})
	got, err := divide.Execute(&starling.Call{Attempt: 1}, []byte(` {"A":1,"B":4} `))
	if string(got) != "0.25" || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err = divide.Execute(&starling.Call{Attempt: 1}, []byte(`{"A":0,"B":0}`)); err == nil || !strings.HasPrefix(err.Error(), "output: ") {
		t.Errorf("NaN: %v", err)
	}
	var marked *starling.Error
	if _, err = divide.Execute(&starling.Call{Attempt: 2}, []byte(`{}`)); !errors.As(err, &marked) || marked.Kind != starling.KindTransient {
		t.Errorf("the function's own error: %v", err)
	}
	null := typed.Tool("null", "", func(*starling.Call, struct{}) (*address, error) { return nil, nil })
	if got, err := null.Execute(&starling.Call{}, []byte(`{}`)); string(got) != "null" || err != nil {
		t.Errorf("nil: %s, %v", got, err)
	}
}

func TestIntegersAreExact(t *testing.T) {
	type in struct {
		N uint64 `json:"n"`
	}
	tool := typed.Tool("t", "", func(_ *starling.Call, in in) (uint64, error) { return in.N, nil })
	got, err := tool.Execute(&starling.Call{}, fmt.Appendf(nil, `{"n":%d}`, uint64(math.MaxUint64)))
	if string(got) != "18446744073709551615" || err != nil {
		t.Errorf("got %s, %v", got, err)
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
