package jsonscan_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/guest-sdk/go/internal/jsonscan"
)

func TestCheckPlacesTheError(t *testing.T) {
	for _, c := range []struct {
		name, doc string
		offset    int // -1: accepted
	}{
		{"an object with space around it", " {\"a\" : [1, -0.5e+3, true, false, null, \"\"]}\n", -1},
		{"an escape of each kind", `"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"`, -1},
		{"raw UTF-8", `"日本 😀 é"`, -1},
		{"nothing", "", 0},
		{"only space", "  ", 2},
		{"a byte order mark", "\ufeff1", 0},
		{"two values", "1 2", 2},
		{"a leading zero", "01", 1},
		{"a plus sign", "+1", 0},
		{"a number that ends in a point", "1.", 2},
		{"a number without a whole part", ".5", 0},
		{"an empty exponent", "1e", 2},
		{"NaN", "NaN", 0},
		{"a literal cut short", "tru", 3},
		{"a literal with a tail", "nullx", 4},
		{"a trailing comma in an array", "[1,]", 3},
		{"a trailing comma in an object", `{"a":1,}`, 7},
		{"a missing comma", `[1 2]`, 3},
		{"a missing colon", `{"a" 1}`, 5},
		{"a name that is not a string", `{a:1}`, 1},
		{"an open array", "[1", 2},
		{"a string without end", `"abc`, 4},
		{"a raw newline in a string", "\"a\nb\"", 2},
		{"a string that is not UTF-8", "\"\xff\"", 1},
		{"an overlong encoding", "\"\xc0\xaf\"", 1},
		{"an encoded surrogate", "\"\xed\xa0\x80\"", 1},
		{"an unknown escape", `"\x"`, 2},
		{"a short unicode escape", `"\u00g0"`, 5},
		{"a high surrogate alone", `"\ud83d"`, 7},
		{"a low surrogate alone", `"\ude00"`, 7},
		{"a high surrogate twice", `"\ud83d\ud83d"`, 13},
		{"a high surrogate before another escape", `"\ud83d\n"`, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := jsonscan.Check([]byte(c.doc))
			if c.offset < 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var syntax *jsonscan.SyntaxError
			if !errors.As(err, &syntax) || syntax.Offset != c.offset {
				t.Errorf("Check(%q) = %v, want an error at byte %d", c.doc, err, c.offset)
			}
		})
	}
}

func TestDepthIsBounded(t *testing.T) {
	nest := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if err := jsonscan.Check(nest(jsonscan.MaxDepth)); err != nil {
		t.Errorf("%d levels: %v", jsonscan.MaxDepth, err)
	}
	if err := jsonscan.Check(nest(jsonscan.MaxDepth + 1)); err == nil {
		t.Errorf("%d levels were accepted", jsonscan.MaxDepth+1)
	}
	if err := jsonscan.Check([]byte(strings.Repeat(`{"a":`, 1<<20))); err == nil {
		t.Error("a million open objects were accepted")
	}
}

func TestObjectHandsOutMembers(t *testing.T) {
	var got [][2]string
	err := jsonscan.Object([]byte(` { "a" : {"x":[1]} , "\u0062\n" : "two" , "a": 3 } `), func(name string, value []byte) error {
		got = append(got, [2]string{name, string(value)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := [][2]string{{"a", `{"x":[1]}`}, {"b\n", `"two"`}, {"a", "3"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestObjectRefusesOtherValues(t *testing.T) {
	for _, doc := range []string{"", "[]", "null", `"{}"`, "{", "{}x", `{"a":}`} {
		if err := jsonscan.Object([]byte(doc), func(string, []byte) error { return nil }); err == nil {
			t.Errorf("Object(%q) was accepted", doc)
		}
	}
	stop := errors.New("enough")
	if err := jsonscan.Object([]byte(`{"a":1,"b":`), func(string, []byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the error of each is lost: %v", err)
	}
}

func TestStringRefusesOtherValues(t *testing.T) {
	for _, doc := range []string{"", "1", `"a`, `"a"b`, `"\ud800"`} {
		if text, err := jsonscan.String([]byte(doc)); err == nil {
			t.Errorf("String(%q) = %q", doc, text)
		}
	}
}

// FuzzCheck compares the scanner with encoding/json, which accepts more: bytes
// that are not UTF-8, single surrogates, and deeper nesting.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5e-3,"\u00e9"]}`, `"\ud83d\ude00"`, "[[[", "-0", " true ", `{"a":1,"a":2}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		ours, theirs := jsonscan.Check(doc) == nil, json.Valid(doc)
		if ours && !theirs {
			t.Fatalf("accepted %q, which encoding/json refuses", doc)
		}
		stricter := !utf8.Valid(doc) || strings.Contains(strings.ToLower(string(doc)), `\ud`) || strings.Count(string(doc), "[")+strings.Count(string(doc), "{") > jsonscan.MaxDepth
		if theirs && !ours && !stricter {
			t.Fatalf("refused %q, which encoding/json accepts: %v", doc, jsonscan.Check(doc))
		}
	})
}

// FuzzString checks decoding against encoding/json, and that what
// AppendString writes reads back.
func FuzzString(f *testing.F) {
	for _, seed := range []string{"", "a\"b\\c/d", "\x00\x1f\x7f", "é😀", "\xff", "\u2028"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quoted := jsonscan.AppendString(nil, text)
		got, err := jsonscan.String(quoted)
		if want := string([]rune(text)); err != nil || got != want {
			t.Fatalf("%q -> %s -> %q, %v", text, quoted, got, err)
		}
		encoded, _ := json.Marshal(text)
		var want string
		if err := json.Unmarshal(encoded, &want); err != nil {
			t.Fatal(err)
		}
		if got, err := jsonscan.String(encoded); err != nil || got != want {
			t.Fatalf("String(%s) = %q, %v; encoding/json says %q", encoded, got, err, want)
		}
	})
}
