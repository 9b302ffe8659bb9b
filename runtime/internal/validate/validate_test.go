package validate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/work"
)

// budget returns the budget of the largest schema.
func budget(t testing.TB) *work.Budget { return work.New(t.Context(), work.ForSize(maxSchemaBytes)) }

// many repeats a text that has its number in it.
func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func TestCompileRefuses(t *testing.T) {
	doubling := `{"type":"object","$ref":"#/$defs/d0","$defs":{`
	for i := range 30 {
		doubling += fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	doubling += `"d30":{}}}`
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ schema, want string }{
		"a reference that leaves the document":        {`{"$ref":"https://example.com/s.json"}`, `refers to "https://example.com/s.json"`},
		"a reference to a file":                       {`{"$ref":"file:///etc/passwd"}`, `refers to "file:///etc/passwd"`},
		"a reference by anchor":                       {`{"$ref":"#name","$defs":{"a":{"$anchor":"name"}}}`, "only references of the form"},
		"a reference to nothing":                      {`{"$ref":"#/$defs/none"}`, "which is not in it"},
		"a reference to itself":                       {`{"$ref":"#"}`, "recursive schemas are not accepted"},
		"a circle":                                    {`{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"b":{"$ref":"#/$defs/a"}}}}}`, "recursive schemas are not accepted"},
		"a circle of two":                             {`{"$ref":"#/$defs/a","$defs":{"a":{"not":{"$ref":"#/$defs/b"}},"b":{"not":{"$ref":"#/$defs/a"}}}}`, "recursive schemas are not accepted"},
		"references that double at each of 30 levels": {doubling, "costs more than its size allows"},
		"a nesting without end":                       {strings.Repeat(`{"not":`, 60) + `{}` + strings.Repeat(`}`, 60), "nested deeper than 48"},
		"a schema of a megabyte":                      {`{"description":"` + strings.Repeat("x", 1<<20) + `"}`, "more than 65536"},
		"a type that does not exist":                  {`{"type":"strnig"}`, "is not valid: /type: "},
		"two mistakes":                                {`{"required":"a","minLength":-1}`, "is not valid: /minLength: got -1, want at least 0; /required: got string, want array"},
		"a pattern that RE2 does not know":            {`{"type":"object","properties":{"a":{"pattern":"(?=x)"}}}`, "is not valid: /properties/a/pattern: '(?=x)' is not valid regex: "},
		"a pattern that becomes large":                {`{"pattern":"^[\\pL]{900}$"}`, "the patterns are too large together"},
		"patterns that become large together":         {`{"properties":{` + many(20, `"a%d":{"pattern":"^[ab]{998}$"},`) + `"b":{}}}`, "the patterns are too large together"},
		"a name's pattern that becomes large":         {`{"patternProperties":{"^[\\pL]{900}$":{}}}`, "the patterns are too large together"},
		"a dialect of its own":                        {`{"$schema":"own"}`, "own"},
		"one identifier for two":                      {`{"$defs":{"a":{"$id":"x"},"b":{"$id":"x"}}}`, "x"},
		"a dialect from elsewhere":                    {`{"$schema":"https://example.com/dialect"}`, "example.com/dialect"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Compile(budget(t), []byte(c.schema))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one that contains %q", err, c.want)
			}
			if strings.Contains(fmt.Sprint(err), folder) {
				t.Errorf("the error names the working directory: %v", err)
			}
		})
	}
}

func TestSchemaListsEveryProblem(t *testing.T) {
	s, err := Compile(budget(t), []byte(`{
		"type": "object", "additionalProperties": false, "required": ["id", "limit"],
		"properties": {
			"a/b": {"type": "null"},
			"limit": {"type": "integer", "maximum": 9007199254740992},
			"tags":  {"type": "array", "items": {"$ref": "#/$defs/tag"}}
		},
		"$defs": {"tag": {"type": "string", "pattern": "^[a-z]+$"}}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Check([]byte(`{"limit":9007199254740993,"tags":["ok","NO",3],"extra":1,"a/b":1}`))
	var invalid *Error
	if !errors.As(err, &invalid) {
		t.Fatalf("got %v, want a *Error", err)
	}
	var pointers []string
	for _, p := range invalid.Problems {
		pointers = append(pointers, p.Pointer)
	}
	want := []string{"", "", "/a~1b", "/limit", "/tags/1", "/tags/2"}
	if diff := cmp.Diff(want, pointers); diff != "" {
		t.Errorf("pointers (-want +got):\n%s\n%v", diff, err)
	}
	if !strings.Contains(err.Error(), "/limit: got 9007199254740993, want at most 9007199254740992") {
		t.Errorf("the numbers of the bound are not exact: %v", err)
	}
	if err := s.Check([]byte(`{"id":"x","limit":9007199254740992,"tags":["ok"]}`)); err == nil {
		t.Error("id is not declared and additionalProperties is false, yet the document passed")
	}
}

func TestSchemaBoundsTheListOfProblems(t *testing.T) {
	s, err := Compile(budget(t), []byte(`{"type":"array","items":{"type":"string"}}`))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Check([]byte("[" + strings.Repeat("1,", 999) + "1]"))
	var invalid *Error
	if !errors.As(err, &invalid) {
		t.Fatalf("got %v", err)
	}
	last := invalid.Problems[len(invalid.Problems)-1]
	if len(invalid.Problems) != maxProblems+1 || last.Message != "and 950 more" {
		t.Errorf("got %d problems, the last %q", len(invalid.Problems), last)
	}
}

// TestBriefIsShort makes each text that a document can bring into a problem long, or many. The text
// for logs keeps all of it.
func TestBriefIsShort(t *testing.T) {
	long := strings.Repeat("é", 10_000)
	var members []string
	for i := range 500 {
		members = append(members, fmt.Sprintf(`"%04d%s":1`, i, long[:20]))
	}
	for name, tc := range map[string]struct{ schema, doc, brief string }{
		"many members":        {`{"type":"object","additionalProperties":false}`, "{" + strings.Join(members, ",") + "}", ", and 495 more"},
		"a long member":       {`{"type":"object","additionalProperties":false}`, `{"` + long + `":1}`, "..."},
		"under a long member": {`{"type":"object","additionalProperties":{"type":"string"}}`, `{"` + long + `":1}`, "...: got number, want string"},
		"a long value":        {`{"type":"string","pattern":"^x$"}`, `"` + long + `"`, "..."},
		"many members below":  {`{"type":"object","additionalProperties":{"additionalProperties":false}}`, `{"a":{` + strings.Join(members, ",") + "}}", ", and 495 more"},
		"few members":         {`{"type":"object","additionalProperties":false}`, `{"a":1,"b":1}`, "(document): additional properties 'a', 'b' not allowed"},
	} {
		s, err := Compile(budget(t), []byte(tc.schema))
		if err != nil {
			t.Fatal(name, err)
		}
		var invalid *Error
		if err := s.Check([]byte(tc.doc)); !errors.As(err, &invalid) {
			t.Fatal(name, err)
		}
		brief := strings.Join(invalid.Brief(), "; ")
		if len(brief) > 3*maxLine || !strings.HasSuffix(brief, tc.brief) || !utf8.ValidString(brief) {
			t.Errorf("%s: %d bytes: %.3000s", name, len(brief), brief)
		}
		if len(invalid.Error()) < len(tc.doc)/2 {
			t.Errorf("%s: the text for logs is %q", name, invalid.Error())
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"enum":[1,"2",null]}}}`, `{"a":1}`)
	f.Add(`{"allOf":[{"$ref":"#/$defs/a"},{"not":{"$ref":"#/$defs/a"}}],"$defs":{"a":true}}`, `[]`)
	f.Add(`{"$dynamicRef":"#/$defs/a","$defs":{"a":{"$dynamicAnchor":"a"}}}`, `1.5e300`)
	f.Fuzz(func(t *testing.T, schema, doc string) {
		cleanSchema, err := canon.JSON([]byte(schema))
		if err != nil {
			return
		}
		cleanDoc, err := canon.JSON([]byte(doc))
		if err != nil {
			return
		}
		if s, err := Compile(budget(t), cleanSchema); err == nil {
			sameVerdict(t, s, cleanDoc) // and must end, whatever the two are
		}
	})
}

// sameVerdict checks a document, and the same one with spaces, of which the library itself
// reads all values.
func sameVerdict(t *testing.T, s *Schema, doc []byte) {
	t.Helper()
	var spaced bytes.Buffer
	if err := json.Indent(&spaced, doc, "", " "); err != nil {
		t.Fatal(err)
	}
	got, want := s.Check(doc), s.Check(append(spaced.Bytes(), '\n'))
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%s: %v, and with spaces %v", doc, got, want)
	}
}

// TestWhatASchemaDoesNotLookAtMakesNoDifference holds documents against schemas that look at
// some of their parts.
func TestWhatASchemaDoesNotLookAtMakesNoDifference(t *testing.T) {
	schemas := []string{
		`true`, `false`, `{}`, `{"type":"object"}`, `{"type":"object","required":["a","b"],"maxProperties":2}`, `{"minItems":2}`,
		`{"properties":{"a":{"type":"array","items":{"type":"object","required":["x"]}},"b":{"properties":{"c":{"type":"string","maxLength":2}}}},"additionalProperties":false}`,
		`{"properties":{"a":true,"b":false}}`, `{"properties":{"b":{"additionalProperties":{"type":"string"}}}}`, `{"items":{"items":{"type":"integer"}}}`, `{"items":false}`,
		`{"const":{"a":[1,{"x":"\"]}"}]}}`, `{"properties":{"a":{"uniqueItems":true}}}`, `{"properties":{"b":{"enum":[{"c":{"d":[1.5]}},1]}}}`, `{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"b":{"properties":{"c":{"type":"null"}}}}}}}`,
		`{"patternProperties":{"^a":{"items":{"type":"integer"}}}}`, `{"propertyNames":{"maxLength":1}}`, `{"not":{"properties":{"b":{"required":["c"]}}}}`, `{"$schema":"http://json-schema.org/draft-04/schema#","id":"x","properties":{"a":{"items":[{"type":"string"}]}}}`,
	}
	docs := []string{
		`null`, `"a\"b\\"`, `-1.5e300`, `[]`, `[[],[1,"x"],{}]`, `{}`, `{"a":1,"b":2,"c":3}`, `{"a":[{"x":1},{"y":[]},[]],"b":{"c":"abc"}}`,
		`{"a":[1,{"x":"\"]}"}]}`, `{"a":[[1],[1]],"b":{"c":{"d":[1.5]}}}`, `{"b":{"c":"\u0000\\","é\"":{"d":["]}"]}},"ab":[1,"2"]}`, `[{"a":{"b":[{"c":[[[]]]}]}},true,false]`,
	}
	for _, schema := range schemas {
		s, err := Compile(budget(t), clean(t, schema))
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		for _, doc := range docs {
			sameVerdict(t, s, clean(t, doc))
		}
	}
}

func clean(t *testing.T, doc string) []byte {
	t.Helper()
	clean, err := canon.JSON([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return clean
}

// TestProblemsHaveOneOrder: the text is recorded, and a replay must arrive at
// the same.
func TestProblemsHaveOneOrder(t *testing.T) {
	s, err := Compile(budget(t), []byte(`{"type":"object","additionalProperties":false,"required":["x","y","z"],"minProperties":9,
		"properties":{"p":{"type":"string"},"q":{"type":"string"},"o":{"type":"object","additionalProperties":false,"propertyNames":{"maxLength":1}}},
		"dependentRequired":{"a":["k","l"],"b":["m"]},"anyOf":[{"required":["u"]},{"required":["v"]}],"patternProperties":{"^p":{"minLength":3},"p$":{"maxLength":0}}}`))
	if err != nil {
		t.Fatal(err)
	}
	const doc = `{"a":1,"b":2,"c":3,"d":4,"e":5,"p":1,"q":2,"o":{"aa":1,"bb":2,"cc":3,"dd":4}}`
	want := s.Check([]byte(doc)).Error()
	for range 200 {
		if got := s.Check([]byte(doc)).Error(); got != want {
			t.Fatalf("got  %s\nthen %s", want, got)
		}
	}
}
