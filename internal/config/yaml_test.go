package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/work"
)

type settings struct {
	Name    string            `yaml:"name,title"`
	Count   int               `yaml:"count"`
	Share   float64           `yaml:"share"`
	On      bool              `yaml:"on"`
	Wait    time.Duration     `yaml:"wait"`
	Words   []string          `yaml:"words"`
	Env     map[string]string `yaml:"env"`
	Any     any               `yaml:"any"`
	Inner   *inner            `yaml:"inner"`
	Ignored string
	Grade
}

// Grade is embedded.
type Grade struct {
	Level int64 `yaml:"level"`
}

type inner struct {
	Even int `yaml:"even"`
}

var schema = config.MustSchema([]byte(`{
	"type": "object",
	"additionalProperties": false,
	"required": ["name"],
	"properties": {
		"name": {"type": "string"},
		"title": {"not": {}, "errorMessage": "the title is the name"},
		"count": {"type": "integer", "minimum": 0},
		"share": {"type": "number", "minimum": 0},
		"on": {"type": "boolean"},
		"wait": {"type": "string", "pattern": "^([0-9]+[a-z]+)+$", "formatMaximum": "24h", "errorMessage": "this must be a duration", "hint": "write a number and a unit, such as 90s, 1m30s or 30d"},
		"words": {"type": "array", "items": {"type": "string"}},
		"env": {"type": "object", "additionalProperties": {"type": "string"}},
		"any": {},
		"inner": {
			"type": "object",
			"additionalProperties": false,
			"properties": {"even": {"type": "integer", "allOf": [
				{"if": {"maximum": 3}, "then": {"not": {"minimum": 3}, "writeOnly": true, "errorMessage": "this is odd"}},
				{"not": {"minimum": 4}, "errorMessage": "four is not liked", "hint": "take another one"}
			]}}
		},
		"level": {"oneOf": [{"type": "integer"}, {"type": "string", "format": "level"}], "maximum": 1000000}
	}
}`), config.Formats{"level": config.Format(func(text string) (string, error) {
	if text == "M" {
		return "", errors.New("package: M of what?")
	}
	return text, nil
})})

func TestDecode(t *testing.T) {
	full := settings{
		Name: "x y", Count: 3, Share: 0.5, On: true, Wait: 90 * time.Second, Words: []string{"a", "2001-01-01", "yes"},
		Env: map[string]string{"A": "1", "B": ""}, Inner: &inner{Even: 2}, Grade: Grade{7},
		Any: map[string]any{"i": int64(1), "f": 1.5, "n": nil, "l": []any{true, "😀/A"}, "u": uint64(1 << 63)},
	}
	for name, c := range map[string]struct {
		text string
		want settings
	}{
		"one key":                     {"name: a", settings{Name: "a"}},
		"an exponent without a point": {"name: a\nany: {a: 1e300, b: -2E-3, c: \"1e3\"}", settings{Name: "a", Any: map[string]any{"a": 1e300, "b": -0.002, "c": "1e3"}}},
		"YAML": {`# a comment
name: x y
count: 3
share: 0.5
on: true   # a comment
wait: 1m30s
words:
  - a
  - 2001-01-01
  - yes
env: {A: "1", 'B': ''}
any: {i: 1, f: 1.5, n: null, l: [true, "😀/A"], u: 9223372036854775808}
inner:
  even: 2
level: 7
`, full},
		"JSON": {`{"name":"x y","count":3,"share":0.5,"on":true,"wait":"90s","words":["a","2001-01-01","yes"],
  "env":{"A":"1","B":""},"any":{"i":1,"f":1.5,"n":null,"l":[true,"\ud83d\ude00\/\u0041"],"u":9223372036854775808},"inner":{"even":2},"level":7}`, full},
		"block scalars": {"name: |\n  one\n  two\nwords:\n- >-\n  three\n  four\n", settings{Name: "one\ntwo\n", Words: []string{"three four"}}},
		"CRLF":          {"name: a\r\ncount: 1\r\n", settings{Name: "a", Count: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var got settings
			if _, err := schema.Load("f.yaml", []byte(c.text), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an unknown key": {"name: a\ncuont: sk-secret", `f.yaml:2:1: unknown key "cuont"
  2 | cuont ...
    | ^
hint: did you mean "count"?`},
		"a key like no other": {"name: a\ninner: {x: 1}", `f.yaml:2:9: unknown key "x"
  2 | inner: {x ...
    |         ^
hint: the keys are even`},
		"a key that is missing": {"\ncount: 1", `f.yaml:2:1: the required key "name" is missing
  2 | count: 1
    | ^`},
		"a key twice":              {"name: a\nname: b", "f.yaml:2:1: mapping key \"name\" already defined\n  2 | name: b\n    | ^"},
		"a key twice, in quotes":   {"name: a\n'name': b", "f.yaml:2:1: mapping key \"name\" already defined\n  2 | 'name': b\n    | ^"},
		"a key twice, escaped":     {"{name: a, \"n\\x61me\": b}", "f.yaml:1:11: mapping key \"name\" already defined\n  1 | {name: a, \"n\\x61me\": b}\n    |           ^"},
		"a list for a map":         {"- a", "f.yaml:1:1: this must be a map, not a list\n  1 | - a\n    | ^"},
		"a number for text":        {"name: 1.10", "f.yaml:1:7: this must be text, not a number\n  1 | name: 1.10\n    |       ^\nhint: put it in quotes"},
		"text for a number":        {"name: a\ncount: b", "f.yaml:2:8: this must be a number, not text\n  2 | count: b\n    |        ^"},
		"a fraction for a count":   {"name: a\ncount: 1.5", "f.yaml:2:8: this must be a whole number\n  2 | count: 1.5\n    |        ^"},
		"below zero":               {"name: a\ncount: -1", "f.yaml:2:8: this must be 0 or more\n  2 | count: -1\n    |        ^"},
		"a share below zero":       {"name: a\nshare: -0.5", "f.yaml:2:8: this must be 0 or more\n  2 | share: -0.5\n    |        ^"},
		"a number without end":     {"name: a\ncount: 18446744073709551616", "f.yaml:2:8: the number 18446744073709551616 is too large\n  2 | count: 18446744073709551616\n    |        ^\nhint: write a smaller one, or if it is text, put it in quotes"},
		"a float without end":      {"name: a\nshare: 1e400", "f.yaml:2:8: the number 1e400 is too large\n  2 | share: 1e400\n    |        ^\nhint: write a smaller one, or if it is text, put it in quotes"},
		"yes":                      {"name: a\non: yes", "f.yaml:2:5: this must be true or false, not text\n  2 | on: yes\n    |     ^"},
		"a time without a unit":    {"name: a\nwait: 90", "f.yaml:2:7: this must be a duration\n  2 | wait: 90\n    |       ^\nhint: write a number and a unit, such as 90s, 1m30s or 30d"},
		"nothing":                  {"name:\ncount: 1", "f.yaml:1:1: this must be text, but is empty\n  1 | name:\n    | ^\nhint: omit the key for the default"},
		"a key with another name":  {"title: a", "f.yaml:1:8: the title is the name\n  1 | title: a\n    |        ^"},
		"a long time":              {"name: a\nwait: 25h", "f.yaml:2:7: this must be a duration\n  2 | wait: 25h\n    |       ^\nhint: write a number and a unit, such as 90s, 1m30s or 30d"},
		"a large quantity":         {"name: a\nlevel: 2M", "f.yaml:2:8: this must be at most 1M\n  2 | level: 2M\n    |        ^"},
		"a quantity of nothing":    {"name: a\nlevel: M", "f.yaml:2:8: M of what?\n  2 | level: M\n    |        ^"},
		"what may be a secret":     {"name: a\ninner: {even: 3}", "f.yaml:2:15: this is odd"},
		"a message of the schema":  {"name: a\ninner: {even: 4}", "f.yaml:2:15: four is not liked\n  2 | inner: {even: 4}\n    |               ^\nhint: take another one"},
		"an octal number":          {"name: a\ncount: 017", "f.yaml:2:8: 017 is not a JSON number\n  2 | count: 017\n    |        ^\nhint: write it in decimal, or put text in quotes"},
		"digits in groups":         {"name: a\ncount: 1_000", "f.yaml:2:8: 1_000 is not a JSON number\n  2 | count: 1_000\n    |        ^\nhint: write it in decimal, or put text in quotes"},
		"not a number":             {"any: .nan", "f.yaml:1:6: this is not a JSON number\n  1 | any: .nan\n    |      ^\nhint: put text in quotes"},
		"an anchor":                {"name: &a b", "f.yaml:1:7: anchors and aliases are not supported\n  1 | name: &a b\n    |       ^\nhint: write the value where it is used, or put text in quotes"},
		"an alias":                 {"name: *a", "f.yaml:1:7: anchors and aliases are not supported\n  1 | name: *a\n    |       ^\nhint: write the value where it is used, or put text in quotes"},
		"a tag":                    {"name: !!str 1", "f.yaml:1:7: this is a tag, which is not supported\n  1 | name: !!str 1\n    |       ^\nhint: put text in quotes"},
		"a merge key":              {"<<: {a: 1}", "f.yaml:1:1: this is a merge key, which is not supported\n  1 | <<: {a: 1}\n    | ^\nhint: write the keys where they are used"},
		"a key that is a number":   {"1: a", "f.yaml:1:1: a key must be text\n  1 | 1: a\n    | ^\nhint: put it in quotes"},
		"a key that is a question": {"? a\n: b", "f.yaml:1:1: this is a key with a question mark, which is not supported\n  1 | ? a\n    | ^\nhint: write key: value"},
		"a bracket left open":      {"name: [a,\ncount: 1", "f.yaml:1:7: sequence end token ']' not found\n  1 | name: [a,\n    |       ^"},
		"a tab":                    {"inner:\n\teven: 2", "f.yaml:2:1: found character '\t' that cannot start any token\n  2 |  even: 2\n    | ^"},
		"wide characters":          {"name: 日本\ninner: {é: 1}", "f.yaml:2:9: unknown key \"é\"\n  2 | inner: {é ...\n    |         ^\nhint: the keys are even"},
		"a character of control":   {"name: \"日a\x1b[31m\"", "f.yaml:1:10: this is a control character\n  1 | name: \"日a?[31m\"\n    |           ^\nhint: write it escaped, in double quotes: \"\\u001b\""},
		"a zero byte":              {"name: a\n#\x00x: 1", "f.yaml:2:2: this is a control character\n  2 | #?x: 1\n    |  ^\nhint: write it escaped, in double quotes: \"\\u0000\""},
		"a star":                   {"name: *", "f.yaml:1:7: anchors and aliases are not supported\n  1 | name: *\n    |       ^\nhint: write the value where it is used, or put text in quotes"},
		"a star in a list":         {"words: [*]", "f.yaml:1:9: anchors and aliases are not supported\n  1 | words: [*]\n    |         ^\nhint: write the value where it is used, or put text in quotes"},
		"a star for a key":         {"{*: 1}", "f.yaml:1:2: anchors and aliases are not supported\n  1 | {*: 1}\n    |  ^\nhint: write the value where it is used, or put text in quotes"},
		"two documents":            {"name: a\n---\nname: b", "f.yaml:2:1: a file has one document and no directives\n  2 | ---\n    | ^"},
		"nothing at all":           {"", "f.yaml: it is empty"},
		"a comment alone":          {"# nothing", "f.yaml: it is empty"},
		"not UTF-8":                {"name: \xff", "f.yaml: it is not UTF-8 text"},
		"too long":                 {strings.Repeat("#", config.MaxBytes+1), "f.yaml: it has 1048577 bytes; the limit is 1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := schema.Load("f.yaml", []byte(c.text), new(settings))
			if diff := cmp.Diff(c.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestNesting has files that a parser would follow for a long time.
func TestNesting(t *testing.T) {
	for _, piece := range []string{"[", "{a: ", "- ", "? ", "a: "} {
		_, err := config.Parse("f.yaml", []byte(strings.Repeat(piece, 200_000/len(piece))))
		if wrong := (*config.Error)(nil); !errors.As(err, &wrong) || wrong.Line != 1 {
			t.Errorf("%q: %v", piece, err)
		}
	}
	if _, err := config.Parse("f.yaml", []byte(strings.Repeat("- ", config.MaxDepth+2)+"a")); err == nil || !strings.Contains(err.Error(), "nested deeper") {
		t.Errorf("blocks: %v", err)
	}
	var deep strings.Builder
	for i := range 3000 {
		deep.WriteString(strings.Repeat(" ", i) + "a:\n")
		if deep.Len() > config.MaxBytes-4000 {
			break
		}
	}
	if _, err := config.Parse("f.yaml", []byte(deep.String())); err == nil || !strings.Contains(err.Error(), "is indented by more than") {
		t.Errorf("%.200v", err)
	}
}

func TestLongLine(t *testing.T) {
	_, err := config.Parse("f.yaml", []byte("name: ["+strings.Repeat("word, ", 100)+"!!x a, "+strings.Repeat("word, ", 100)+"]"))
	if lines := strings.Split(fmt.Sprint(err), "\n"); len(lines) != 4 || len(lines[1]) > 110 || lines[2][strings.IndexByte(lines[2], '^')] != '^' ||
		!strings.HasPrefix(lines[1][strings.IndexByte(lines[2], '^'):], "!!x") {
		t.Errorf("%v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("name: a\nwords: [b, {c: 1}]\n"))
	f.Add([]byte(`{"a":"\ud83d\ude00"}`))
	f.Add([]byte("a: |\n x\nb: >-\n y\n"))
	f.Add([]byte("- - - a\n- ? b\n: &x *x !!y <<\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := config.Parse("f", data)
		if err != nil {
			if wrong := (*config.Error)(nil); !errors.As(err, &wrong) || wrong.Msg == "" || wrong.Error() == "" {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		n.Value()
		if _, err := schema.Load("f", data, new(settings)); err != nil && !errors.As(err, new(*config.Error)) {
			t.Fatal(err)
		}
	})
}

// What editors of other systems write is read, or refused where it is.
func TestLineEndsAndMarks(t *testing.T) {
	for _, text := range []string{"\ufeffname: a\n", "name: a\r\ncount: 1\r\n", "\ufeff{\"name\": \"a\"}"} {
		var s settings
		_, err := schema.Load("a.yaml", []byte(text), &s)
		if err != nil || s.Name != "a" {
			t.Errorf("%q: %v, %v", text, s.Name, err)
		}
	}
	for text, want := range map[string]string{
		"name: a\rcount: 1\n":      "a.yaml:1:7: this is followed by a carriage return alone",
		"name: a\n\rcount: 1\n":    "a.yaml:2:1: this is followed",
		"\ufeffname: a\nnaem: b\n": "a.yaml:2:1: unknown key \"naem\"",
		"\ufeffnaem: b\n":          "a.yaml:1:1: unknown key \"naem\"\n  1 | naem ...",
	} {
		_, err := schema.Load("a.yaml", []byte(text), new(settings))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The caret is below what is meant, also after characters that take two cells of a
// terminal, or none.
func TestCaretBehindWideCharacters(t *testing.T) {
	for text, want := range map[string]string{
		`{"name": "日本", "naem": 1}`:       "  1 | {\"name\": \"日本\", \"naem\" ...\n    | " + strings.Repeat(" ", 17) + "^",
		`{"name": "é😀", "naem": 1}`:       "  1 | {\"name\": \"é😀\", \"naem\" ...\n    | " + strings.Repeat(" ", 16) + "^",
		"{'name': 'ｅe\u0301', 'naem': 1}": "  1 | {'name': 'ｅe\u0301', 'naem' ...\n    | " + strings.Repeat(" ", 16) + "^",
	} {
		_, err := schema.Load("a.yaml", []byte(text), new(settings))
		at, ok := errors.AsType[*config.Error](err)
		if !ok || at.Excerpt() != want {
			t.Errorf("%s:\n%v\nwant\n%s", text, at.Excerpt(), want)
		}
	}
}

// A keyword that is not understood would let through what it forbids.
func TestUnknownKeyword(t *testing.T) {
	for _, doc := range []string{`{"anyOf": []}`, `{"properties": {"a": {"multipleOf": 2}}}`, `{"pattern": "("}`, `[`} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is a schema", doc)
				}
			}()
			config.MustSchema([]byte(doc), nil)
		}()
	}
}

func TestParseData(t *testing.T) {
	n, err := config.ParseData(work.Trusted(t.Context()), "f.yaml", []byte("200: a\nok: {min: -9223372036854776000, code: 017, no: .nan, 1.5: x}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"200": "a", "ok": map[string]any{"min": -9223372036854776000.0, "code": "017", "no": ".nan", "1.5": "x"}}
	if diff := cmp.Diff(want, n.Value()); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{
		"a: &b 1":                                "anchors and aliases are not supported",
		"a: 1\na: 2":                             "already defined",
		strings.Repeat("#", config.MaxData+1):    "it has 16777217 bytes; the limit is 16777216",
		"a: " + strings.Repeat("[", 100) + "1":   "nested deeper",
		"? [a]\n: b":                             "",
		"# " + strings.Repeat("x", 2<<20) + "\n": "it is empty",
	} {
		if _, err := config.ParseData(work.Trusted(t.Context()), "f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}
