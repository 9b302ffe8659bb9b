package schema_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/starling-host/starling/internal/schema"
)

const nested = `{"type":"object","properties":{
	"a":{"type":"integer","default":1},
	"n":{"default":null},
	"o":{"type":"object","properties":{"b":{"type":"string","default":"x"},"c":{"type":"string"}}},
	"l":{"type":"array","items":{"type":"object","properties":{"d":{"default":[1,{"e":2}]}}}},
	"plain":{"type":"string"}}}`

func TestFill(t *testing.T) {
	d, err := schema.ParseDefaults([]byte(nested))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, doc, want string }{
		{"everything left out", `{}`, `{"a":1,"n":null}`},
		{"what is there stays", `{"a":2,"n":3}`, `{"a":2,"n":3}`},
		{"null is there", `{"a":null,"n":null}`, `{"a":null,"n":null}`},
		{"an object is not made", `{"a":1,"n":1}`, `{"a":1,"n":1}`},
		{"an object is filled", `{"a":1,"n":1,"o":{}}`, `{"a":1,"n":1,"o":{"b":"x"}}`},
		{"so are elements", `{"a":1,"n":1,"l":[{},{"d":0}]}`, `{"a":1,"l":[{"d":[1,{"e":2}]},{"d":0}],"n":1}`},
		{"another shape", `{"a":1,"n":1,"o":[],"l":{},"plain":7}`, `{"a":1,"l":{},"n":1,"o":[],"plain":7}`},
		{"numbers are kept", `{"a":1e400,"n":0.10}`, `{"a":1e400,"n":0.10}`},
		{"no object", `[1]`, `[1]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := d.Fill([]byte(c.doc)); err != nil || string(got) != c.want {
				t.Errorf("got %s, %v; want %s", got, err, c.want)
			}
		})
	}
}

func TestParseDefaultsOfNone(t *testing.T) {
	d, err := schema.ParseDefaults([]byte(`{"type":"object","properties":{"a":{"type":"array","items":{}}}}`))
	if d != nil || err != nil {
		t.Errorf("got %v, %v", d, err)
	}
	if got, err := d.Fill([]byte(` {} `)); string(got) != ` {} ` || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func FuzzFill(f *testing.F) {
	f.Add(nested, `{"o":{},"l":[{}]}`)
	f.Add(`{"items":{"properties":{"a":{"default":{}}}}}`, `[{"a":1,"a":2}]`)
	f.Fuzz(func(t *testing.T, doc, input string) {
		d, err := schema.ParseDefaults([]byte(doc))
		if err != nil || !json.Valid([]byte(input)) {
			return
		}
		once, err := d.Fill([]byte(input))
		if err != nil {
			t.Fatalf("%s in %s: %v", input, doc, err)
		}
		twice, err := d.Fill(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s became %s, and then %s, %v", input, once, twice, err)
		}
	})
}
