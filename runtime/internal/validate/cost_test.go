package validate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/work"
)

// A tool declares its schemas, and writes its outputs or receives inputs: together
// they could take minutes, and gigabytes for a list of all mismatches.
func TestNoDocumentTakesLong(t *testing.T) {
	times := func(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s, n), ",") }
	ones, text := `{"a":[`+times(300_000, "1,")+`]}`, `{"a":["`+times(500_000, "ab")+`"]}`
	each := func(keywords string) string {
		return `{"type":"object","properties":{"a":{"items":{` + keywords + `}}}}`
	}
	const tooLarge, somewhere = "is too large to be held against", "too large to say where"
	var names, members strings.Builder
	for i := range 3_000 {
		fmt.Fprintf(&names, `"x%d",`, i)
		fmt.Fprintf(&members, `"y%d":1,`, i)
	}
	for _, c := range []struct{ name, schema, doc, want string }{
		{"any of many", each(`"anyOf":[` + times(2_000, `{"type":"string"},`) + `]`), ones, tooLarge},
		{"one of many, by reference", `{"type":"object","$defs":{"s":{"oneOf":[` + times(500, `{"type":"string"},`) + `]}},"properties":{"a":{"items":{"$ref":"#/$defs/s"}}}}`, ones, tooLarge},
		{"contains", `{"type":"object","properties":{"a":{"allOf":[` + times(1_000, `{"contains":{"type":"string"}},`) + `]}}}`, ones, tooLarge},
		{"enum", each(`"enum":[` + times(5_000, `"x",`) + `]`), ones, tooLarge},
		{"required", each(`"required":[` + strings.TrimSuffix(names.String(), ",") + `]`), `{"a":[` + times(200_000, "{},") + `]}`, tooLarge},
		{"a large text and pattern", `{"type":"object","properties":{"a":{"items":{"allOf":[` + times(2, `{"pattern":"(.*)(.*)(.*)[ab]{900}$"},`) + `]}}}}`, text, tooLarge},
		{"names", `{"type":"object","additionalProperties":{"additionalProperties":{"anyOf":[` + times(2_000, `{"type":"string"},`) + `]}}}`, `{"a":{` + strings.TrimSuffix(members.String(), ",") + `}}`, tooLarge},
		{"all wrong", each(`"type":"string"`), ones, somewhere},
		{"all right", each(`"type":"integer","minimum":0,"enum":[7,1]`), ones, ""},
		{"one of many wrong", each(`"type":"integer","maximum":1`), ones[:len(ones)-2] + `,2]}`, somewhere},
		{"many wrong, and all are known", each(`"type":"string"`), `{"a":[` + times(90_000, "1,") + `]}`, "/a/0: got number, want string; "},
		{"a list of schemas", `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"items":[` + times(1_000, `{"type":"integer"},`) + `]}}}`, ones, ""},
	} {
		s, err := Compile(budget(t), []byte(c.schema))
		if err != nil {
			t.Fatalf("%s: %.300v", c.name, err)
		}
		err = s.Check([]byte(c.doc))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %.300v", c.name, err)
		}
	}
}

// TestSchemaCostOfNewDocuments: one unit takes about a microsecond for every
// keyword, so that a bound in units is a bound in time.
func TestSchemaCostOfNewDocuments(t *testing.T) {
	ones := `{"a":[` + strings.TrimSuffix(strings.Repeat("1,", 400_000), ",") + `]}`
	for keywords, want := range map[string]error{
		`"allOf":[{"type":"integer"},{"minimum":0},{"maximum":5},{"multipleOf":1},{"not":{"type":"string"}},{"enum":[0,1]}]`: ErrCost,
		`"enum":[9,8,7,6,5,4,3,2,1]`:                              ErrCost,
		`"type":"integer","minimum":0,"maximum":5,"multipleOf":1`: ErrCost,
		`"type":"integer","minimum":0`:                            nil,
		`"type":"integer"`:                                        nil,
	} {
		s, err := Compile(budget(t), []byte(`{"type":"object","properties":{"a":{"items":{`+keywords+`}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CheckNew(work.New(t.Context(), NewDocument), []byte(ones)); err != want {
			t.Errorf("%s: %v", keywords, err)
		}
		few := []byte(`{"a":[1,1,1]}`)
		if err := s.CheckNew(work.New(t.Context(), NewDocument), few); err != nil || s.Check(few) != nil {
			t.Errorf("%s: three values: %v", keywords, err)
		}
	}
}
