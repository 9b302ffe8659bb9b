package canon_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/internal/vectortest"
)

// accepted are documents by name; the vector file has the results.
var accepted = []struct{ name, doc string }{
	{"null", `null`},
	{"true", ` true `},
	{"false", "\n\t\rfalse"},
	{"zero", `0`},
	{"minus zero is the integer zero", `-0`},
	{"23 is the last integer of one byte", `23`},
	{"24 takes a second byte", `24`},
	{"256 takes a third byte", `256`},
	{"65536", `65536`},
	{"2^32", `4294967296`},
	{"minus one", `-1`},
	{"minus 25", `-25`},
	{"an integer that a float cannot hold", `9007199254740993`},
	{"the largest signed integer", `9223372036854775807`},
	{"the smallest signed integer", `-9223372036854775808`},
	{"the largest unsigned integer", `18446744073709551615`},
	{"one more is a big integer", `18446744073709551616`},
	{"the smallest integer that is not big", `-18446744073709551616`},
	{"one less is a big integer", `-18446744073709551617`},
	{"thirty digits", `123456789012345678901234567890`},
	{"1024 digits", strings.Repeat("9", canon.MaxDigits)},
	{"1.0 stays a float", `1.0`},
	{"an exponent makes a float", `1E2`},
	{"a negative exponent", `25e-1`},
	{"minus zero as a float keeps its sign", `-0.0`},
	{"one tenth", `0.1`},
	{"one and a half fits a half float", `1.5`},
	{"100000.0 fits a single float", `100000.0`},
	{"the largest half float", `65504.0`},
	{"the smallest half float", `5.960464477539063e-8`},
	{"the largest float", `1.7976931348623157e308`},
	{"the smallest float", `5e-324`},
	{"less than the smallest float is zero", `1e-400`},
	{"a float is rounded to the nearest", `0.1000000000000000055511151231257827`},
	{"1e20 is written out", `1e20`},
	{"1e21 keeps its exponent", `1e21`},
	{"0.000001 is written out", `1e-6`},
	{"1e-7 keeps its exponent", `0.0000001`},
	{"an integral float beyond 2^53", `9007199254740993.0`},
	{"empty text", `""`},
	{"short escapes", `"\"\\\/\b\f\n\r\t"`},
	{"escapes of control characters", `"\u0000\u001F\u007f"`},
	{"escapes of what needs none", `"\u0041\u00e9\u6C34"`},
	{"a surrogate pair is one character", `"\ud83d\uDE00"`},
	{"characters beyond ASCII stay as they are", "\"é水😀\u2028\""},
	{"nothing is escaped for HTML", `"<a href='x'>&</a>"`},
	{"a noncharacter is a character", "\"\uffff\""},
	{"empty array", `[ ]`},
	{"empty object", `{ }`},
	{"nested arrays", `[1, [2, 3], [4, 5]]`},
	{"24 elements take a longer head", `[` + strings.Repeat(`0,`, 23) + `0]`},
	{"256 elements", `[` + strings.Repeat(`0,`, 255) + `0]`},
	{"keys are sorted", `{"b":1,"a":{"d":2,"c":3}}`},
	{"CBOR sorts shorter keys first", `{"aa":1,"b":2,"":3}`},
	{"keys sort by bytes, not by escapes", `{"a\"":1,"a!":2,"a":3,"\u0000":4}`},
	{"keys sort by UTF-8, not UTF-16", "{\"\U0001F600\":1,\"\uffff\":2}"},
	{"keys that differ in case differ", `{"a":1,"A":2}`},
	{"25 members", `{"y":1,"x":1,"w":1,"v":1,"u":1,"t":1,"s":1,"r":1,"q":1,"p":1,"o":1,"n":1,"m":1,"l":1,"k":1,"j":1,"i":1,"h":1,"g":1,"f":1,"e":1,"d":1,"c":1,"b":1,"a":1}`},
	{"arguments of a tool call", `{"city": "Zürich", "days": 3, "units": {"wind": "m/s", "t": "C"}, "tags": [true, null]}`},
	{"64 levels", strings.Repeat(`[`, 64) + strings.Repeat(`]`, 64)},
	{"64 levels of objects", strings.Repeat(`{"a":`, 63) + `{}` + strings.Repeat(`}`, 63)},
}

type acceptedLine struct {
	Name      string `json:"name"`
	Input     string `json:"input"`
	Canonical string `json:"canonical"`
	CBOR      string `json:"cbor"`
}

func TestVectorsJSON(t *testing.T) {
	var lines []acceptedLine
	for _, c := range accepted {
		text, err := canon.JSON([]byte(c.doc))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		raw, err := canon.FromJSON([]byte(c.doc))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		lines = append(lines, acceptedLine{c.name, c.doc, string(text), hex.EncodeToString(raw)})
	}
	for _, line := range vectortest.Check(t, "json.jsonl", lines) {
		t.Run(line.Name, func(t *testing.T) { checkAccepted(t, line) })
	}
}

// checkAccepted checks the laws of every line of json.jsonl.
func checkAccepted(t *testing.T, line acceptedLine) {
	raw, err := hex.DecodeString(line.CBOR)
	if err != nil {
		t.Fatal(err)
	}
	if err := canon.Valid(raw); err != nil {
		t.Errorf("the CBOR is not canonical: %v", err)
	}
	if back, err := canon.ToJSON(raw); err != nil || string(back) != line.Canonical {
		t.Errorf("ToJSON: %s, %v", back, err)
	}
	if again, err := canon.JSON([]byte(line.Canonical)); err != nil || string(again) != line.Canonical {
		t.Errorf("JSON of the canonical form: %s, %v", again, err)
	}
	if again, err := canon.FromJSON([]byte(line.Canonical)); err != nil || hex.EncodeToString(again) != line.CBOR {
		t.Errorf("FromJSON of the canonical form: %x, %v", again, err)
	}
}

var refused = []struct{ name, doc string }{
	{"nothing", ``},
	{"only space", " \n\t"},
	{"byte order mark", "\xef\xbb\xbf{}"},
	{"two documents", `{} {}`},
	{"a comma after the document", `1,`},
	{"a literal that goes on", `nullx`},
	{"a literal that is cut off", `nul`},
	{"a literal in capitals", `True`},
	{"NaN", `NaN`},
	{"Infinity", `[-Infinity]`},
	{"trailing comma in an array", `[1,2,]`},
	{"trailing comma in an object", "{\"a\":1,\n }"},
	{"missing comma", `[1 2]`},
	{"only a comma", `[,]`},
	{"unclosed array", `[1`},
	{"unclosed object", `{"a":1`},
	{"wrong bracket", `[1}`},
	{"missing colon", `{"a" 1}`},
	{"missing value", `{"a":}`},
	{"key without quotes", `{a:1}`},
	{"number as a key", `{1:2}`},
	{"single quotes", `['a']`},
	{"comment", "// no\n1"},
	{"form feed is no space", "\f1"},
	{"no-break space is no space", "\u00a01"},
	{"leading zero", `01`},
	{"leading zero after the sign", `[-012]`},
	{"leading plus", `+1`},
	{"only a sign", `-`},
	{"no digit before the point", `.5`},
	{"no digit after the point", `1.`},
	{"no digit in the exponent", `1e+`},
	{"hexadecimal", `0x10`},
	{"digit separator", `1_000`},
	{"digits of another script", "\u0661"},
	{"beyond the largest float", `{"a":[1,-1e400]}`},
	{"an exponent that no integer holds", `1e99999999999999999999`},
	{"1025 digits", `[` + strings.Repeat("9", canon.MaxDigits+1) + `]`},
	{"unclosed string", `"abc`},
	{"string that ends in an escape", `"abc\`},
	{"unknown escape", `"\x41"`},
	{"incomplete unicode escape", `"\u12"`},
	{"unicode escape with a sign", `"\u+123"`},
	{"control character", "\"a\x01b\""},
	{"line feed in a string", "{\"a\":\n\"b\nc\"}"},
	{"high surrogate alone", `"\ud800"`},
	{"low surrogate alone", `"x\udc00"`},
	{"high surrogate before another character", `"\ud800\u0041"`},
	{"two high surrogates", `"\ud83d\ud83d"`},
	{"high surrogate before half an escape", `"\ud800\udcX0"`},
	{"surrogates in the wrong order", `"\ude00\ud83d"`},
	{"surrogate as UTF-8", "\"\xed\xa0\x80\""},
	{"a byte that is not UTF-8", "[\"ok\",\"a\xffb\"]"},
	{"UTF-8 that is too long", "\"\xc0\xaf\""},
	{"UTF-8 that is cut off", "\"\xe6\xb0\""},
	{"UTF-8 beyond the last character", "\"\xf4\x90\x80\x80\""},
	{"UTF-16", "[\x00]\x00"},
	{"key twice", `{"a":1,"b":2,"a":3}`},
	{"key twice in two spellings", `{"a":1,"\u0061":1}`},
	{"two keys twice, of which the first in the document counts", `{"b":1,"a":1,"b":2,"a":2}`},
	{"a key three times", `{"a":1,"a":2,"a":3}`},
	{"empty key twice", `{"":1,"":1}`},
	{"key twice, deep inside", `[{"x/y":[0,{"~":1,"k":1,"~":2}]}]`},
	{"65 levels", strings.Repeat(`[`, 65) + strings.Repeat(`]`, 65)},
	{"65 levels of objects", strings.Repeat(`{"a":`, 64) + `{}` + strings.Repeat(`}`, 64)},
	{"a thousand levels that never close", strings.Repeat(`[`, 1000)},
}

type refusedLine struct {
	Name     string `json:"name"`
	Input    string `json:"input,omitempty"`
	InputHex string `json:"input_hex,omitempty"`
	Offset   int    `json:"offset"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Pointer  string `json:"pointer"`
	Reason   string `json:"reason"`
}

func TestVectorsJSONRefused(t *testing.T) {
	var lines []refusedLine
	for _, c := range refused {
		_, err := canon.JSON([]byte(c.doc))
		var se *canon.SyntaxError
		if !errors.As(err, &se) {
			t.Fatalf("%s: %v, want a *SyntaxError", c.name, err)
		}
		if _, err2 := canon.FromJSON([]byte(c.doc)); err2 == nil || err2.Error() != err.Error() {
			t.Errorf("%s: FromJSON says %v, JSON says %v", c.name, err2, err)
		}
		line := refusedLine{c.name, c.doc, "", se.Offset, se.Line, se.Column, se.Pointer, se.Msg}
		if !utf8.ValidString(c.doc) {
			line.Input, line.InputHex = "", hex.EncodeToString([]byte(c.doc))
		}
		lines = append(lines, line)
	}
	vectortest.Check(t, "json-refused.jsonl", lines)
}

type cborLine struct {
	Name     string `json:"name"`
	CBOR     string `json:"cbor"`
	Rendered string `json:"rendered,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// rendered are items that no JSON document gives.
var rendered = []struct{ name, cbor string }{
	{"bytes", "4401020304"},
	{"no bytes", "40"},
	{"a hash", "582017762fddd969a453925d65717ac3eea21320b66b54342fde15128d6caf21215f"},
	{"bytes of text", "4b474554202f20610d0a090a"},
	{"bytes that are control characters", "431b5b6d"},
	{"text with characters that drive a terminal", "691b5b6dc29be280ae7f"},
	{"NaN", "f97e00"},
	{"infinity", "f97c00"},
	{"minus infinity", "f9fc00"},
	{"undefined", "f7"},
	{"a simple value", "f8ff"},
	{"a tag", "c11a514b67b0"},
	{"keys that are not text", "a301f5613101820102f6"},
	{"one key that is not text", "a10180"},
	{"an integer of more than 1024 digits", "c25901aa" + strings.Repeat("ff", 426)},
}

// unacceptable are items, or almost items, that [canon.Valid] refuses.
var unacceptable = []struct{ name, cbor string }{
	{"nothing", ""},
	{"two items", "0000"},
	{"an integer that has a shorter form", "1817"},
	{"zero in nine bytes", "1b0000000000000000"},
	{"a length that has a shorter form", "580161"},
	{"an integer that is cut off", "19ff"},
	{"text that is cut off", "6261"},
	{"text of 2^64 bytes", "7bffffffffffffffff"},
	{"an array of 2^64 elements", "9bffffffffffffffff00"},
	{"a map of 2^64 pairs", "bbffffffffffffffff0000"},
	{"text of indefinite length", "7f6161ff"},
	{"an array of indefinite length", "9f01ff"},
	{"a map of indefinite length", "bf0102ff"},
	{"a break without a beginning", "ff"},
	{"a reserved initial byte", "1c"},
	{"text that is not UTF-8", "61ff"},
	{"text with a surrogate", "63eda080"},
	{"keys out of order", "a2616201616101"},
	{"a longer key before a shorter one", "a262616101616201"},
	{"a key twice", "a2616101616102"},
	{"a map without its last value", "a16161"},
	{"an array within is cut off", "8281"},
	{"1.5 as a single float", "fa3fc00000"},
	{"1.5 as a double float", "fb3ff8000000000000"},
	{"a subnormal half as a single float", "fa33800000"},
	{"infinity as a double float", "fb7ff0000000000000"},
	{"a NaN with a payload", "f97e01"},
	{"a negative NaN", "f9fe00"},
	{"NaN as a double float", "fb7ff8000000000000"},
	{"true in two bytes", "f815"},
	{"a reserved simple value", "f81f"},
	{"a big integer that an integer holds", "c248ffffffffffffffff"},
	{"a big integer with a leading zero", "c24a00ffffffffffffffffff"},
	{"an empty big integer", "c240"},
	{"a big integer that is text", "c269616263646566676869"},
	{"a tag without content", "c1"},
	{"a text time that is a number", "c01a514b67b0"},
	{"a numeric time that is text", "c16161"},
	{"a numeric time that is true", "c1f5"},
	{"73 levels", strings.Repeat("81", 73) + "00"},
	{"73 tags", strings.Repeat("c1", 73) + "00"},
}

func TestVectorsCBOR(t *testing.T) {
	var lines []cborLine
	for _, c := range rendered {
		raw := mustHex(t, c.cbor)
		text, err := canon.Render(raw)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if plain, err := canon.ToJSON(raw); err == nil && c.name[:4] != "text" {
			t.Errorf("%s: ToJSON gives %s, want an error", c.name, plain)
		}
		lines = append(lines, cborLine{Name: c.name, CBOR: c.cbor, Rendered: string(text)})
	}
	vectortest.Check(t, "cbor.jsonl", lines)
}

func TestVectorsCBORRefused(t *testing.T) {
	var lines []cborLine
	for _, c := range unacceptable {
		raw := mustHex(t, c.cbor)
		err := canon.Valid(raw)
		if err == nil {
			t.Fatalf("%s: accepted", c.name)
		}
		if _, err := canon.Render(raw); err == nil {
			t.Errorf("%s: rendered", c.name)
		}
		lines = append(lines, cborLine{Name: c.name, CBOR: c.cbor, Reason: strings.TrimPrefix(err.Error(), "canon: ")})
	}
	vectortest.Check(t, "cbor-refused.jsonl", lines)
}

func mustHex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
