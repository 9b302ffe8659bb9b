package canon_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/canon"
)

func TestSyntaxErrorText(t *testing.T) {
	for _, c := range []struct{ name, doc, want string }{
		{"with pointer and hint", "{\"é\":\n  [1, 2,]}",
			`canon: JSON line 2 column 9 at "/é/2": expected a value, found ']' (a comma must be followed by another value)`},
		{"at the top", "tru",
			`canon: JSON line 1 column 1: expected a value, found 't' (the literals are true, false and null)`},
		{"columns count characters", "[\"水水\" 1]",
			`canon: JSON line 1 column 7: expected ',' or ']', found '1'`},
		{"a long key is cut", `{"` + strings.Repeat("k", 200) + `":x}`,
			`canon: JSON line 1 column 205 at "/` + strings.Repeat("k", 79) + `...": expected a value, found 'x'`},
	} {
		_, err := canon.JSON([]byte(c.doc))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.name, err, c.want)
		}
	}
}

func TestMarshalRefusesWhatCouldNotBeReadBack(t *testing.T) {
	deep := func(n int) canon.Raw {
		return append(bytes.Repeat([]byte{0x81}, n), 0x00)
	}
	for _, c := range []struct {
		name string
		v    any
		want string // part of the error, or empty
	}{
		{"text that is not UTF-8", "a\xff", "not UTF-8"},
		{"a key that is not UTF-8", map[string]int{"\xff": 1}, "not UTF-8"},
		{"a raw item that is not canonical", []canon.Raw{{0x18, 0x01}}, "shortest form"},
		{"a raw item that is cut off", []canon.Raw{{0x62, 'a'}}, "EOF"},
		{"a raw map with a key twice", canon.Raw("\xa2\x61a\x01\x61a\x02"), "twice"},
		{"keys that are equal once encoded", map[any]int{int8(1): 1, int16(1): 2}, "twice"},
		{"a channel", make(chan int), "unsupported type"},
		{"as deep as an envelope can hold", deep(canon.MaxNesting - 1), ""},
		{"one level deeper", deep(canon.MaxNesting), "nested deeper"},
		{"a nil raw item", []canon.Raw{nil}, ""},
		{"not a number", []float64{math.NaN(), math.Float64frombits(0xfff8000000000001)}, ""},
		{"infinities", []float64{math.Inf(1), math.Inf(-1)}, ""},
	} {
		b, err := canon.Marshal(c.v)
		if c.want == "" {
			if err != nil || canon.Valid(b) != nil {
				t.Errorf("%s: %x, %v", c.name, b, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %x, %v, want an error with %q", c.name, b, err, c.want)
		}
	}
}

func TestUnmarshalIsStrict(t *testing.T) {
	type target struct {
		A int    `cbor:"a"`
		B string `cbor:"b"`
	}
	for _, c := range []struct{ name, cbor, want string }{
		{"fields", "a2616101616261" + "62", ""},
		{"unknown fields are ignored", "a2616101617a02", ""},
		{"a key twice", "a2616101616102", "duplicate"},
		{"an indefinite length", "bf616101ff", "indefinite"},
		{"bytes after the item", "a1616101ff", "extraneous"},
		{"text that is not UTF-8", "a1616261ff", "UTF-8"},
		{"text where a number belongs", "a161616162", "cannot unmarshal"},
		{"nothing", "", "EOF"},
	} {
		var v target
		err := canon.Unmarshal(mustHex(t, c.cbor), &v)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.want)
		}
	}
	var v target
	if err := canon.Unmarshal(mustHex(t, "a1614101"), &v); err != nil || v.A != 0 {
		t.Errorf("key A was taken for a: %+v, %v", v, err)
	}
}

func TestUnmarshalIntoAny(t *testing.T) {
	raw, err := canon.FromJSON([]byte(`{"i":1,"n":-1,"big":18446744073709551615,"f":1.0,"list":[{"a":null}],"s":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := canon.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"i": int64(1), "n": int64(-1), "big": new(big.Int).SetUint64(math.MaxUint64), "f": 1.0,
		"list": []any{map[string]any{"a": nil}}, "s": "x",
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })); diff != "" {
		t.Error(diff)
	}
}

func TestTimesKeepTheirNanoseconds(t *testing.T) {
	want := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.FixedZone("", 3600))
	b, err := canon.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got time.Time
	if err := canon.Unmarshal(b, &got); err != nil || !got.Equal(want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

func TestDifference(t *testing.T) {
	for _, c := range []struct{ name, a, b, path, inA, inB string }{
		{"scalars", `1`, `2`, "", `1`, `2`},
		{"kinds", `{"a":[1]}`, `{"a":{"0":1}}`, "a", `[1]`, `{"0":1}`},
		{"a member", `{"a":1,"b":2}`, `{"a":1,"b":3}`, "b", `2`, `3`},
		{"the first in the order of the bytes", `{"aa":1,"b":1}`, `{"aa":2,"b":2}`, "b", `1`, `2`},
		{"a member that is missing", `{"a":1,"b":2}`, `{"b":2}`, "a", `1`, ""},
		{"a member that is new", `{"a":1}`, `{"a":1,"c":3}`, "c", "", `3`},
		{"all members", `{}`, `{"c":3}`, "c", "", `3`},
		{"a missing member and a new one", `{"a":1}`, `{"b":1}`, "a", `1`, ""},
		{"an element", `[1,[2,3]]`, `[1,[2,4]]`, "[1][1]", `3`, `4`},
		{"a shorter array", `[1,2]`, `[1]`, "[1]", `2`, ""},
		{"a longer array", `[]`, `[0]`, "[0]", "", `0`},
		{"a long way", `{"x":[{"y":{"z":[0,"a"]}}]}`, `{"x":[{"y":{"z":[0,"b"]}}]}`, "x[0].y.z[1]", `"a"`, `"b"`},
		{"a key that is no word", `{"a b":{"":{"é":1}}}`, `{"a b":{"":{"é":2}}}`, `["a b"][""]["é"]`, `1`, `2`},
		{"integers and floats", `[1]`, `[1.0]`, "[0]", `1`, `1.0`},
		{"big integers", `[18446744073709551616]`, `[18446744073709551617]`, "[0]", `18446744073709551616`, `18446744073709551617`},
	} {
		path, x, y := canon.Difference(fromJSON(t, c.a), fromJSON(t, c.b))
		if path != c.path || !bytes.Equal(x, fromJSON(t, c.inA)) || !bytes.Equal(y, fromJSON(t, c.inB)) {
			t.Errorf("%s: at %q %x and %x, want %q %s and %s", c.name, path, x, y, c.path, c.inA, c.inB)
		}
	}
	if path, _, _ := canon.Difference(mustHex(t, "a10182f601"), mustHex(t, "a10182f602")); path != "[1][1]" {
		t.Errorf("a key that is a number: %q", path)
	}
	bad := mustHex(t, "a1616118")
	if path, x, y := canon.Difference(bad, fromJSON(t, `{"a":1}`)); path != "" || !bytes.Equal(x, bad) || y == nil {
		t.Errorf("an item that is not canonical: %q %x %x", path, x, y)
	}
}

func fromJSON(t *testing.T, doc string) canon.Raw {
	t.Helper()
	if doc == "" {
		return nil
	}
	raw, err := canon.FromJSON([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestToJSONKeepsTheLimitOfJSON(t *testing.T) {
	for _, c := range []struct {
		depth int
		ok    bool
	}{{canon.MaxDepth, true}, {canon.MaxDepth + 1, false}} {
		raw := append(bytes.Repeat([]byte{0x81}, c.depth-1), 0x80)
		if _, err := canon.ToJSON(raw); (err == nil) != c.ok {
			t.Errorf("depth %d: %v", c.depth, err)
		}
		if _, err := canon.Render(raw); err != nil {
			t.Errorf("depth %d: Render: %v", c.depth, err)
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		cbor, want string
		ok         bool
	}{
		{"63616263", "abc", true},
		{"60", "", true},
		{"43616263", "abc", true},
		{"43610062", "a\x00b", false},
		{"01", "", false},
		{"61ff", "", false},
		{"", "", false},
	} {
		if got, ok := canon.Text(mustHex(t, c.cbor)); ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %q, %v", c.cbor, got, ok)
		}
	}
}

// A hostile document must not cost more than its size.
func TestLargeDocuments(t *testing.T) {
	for _, c := range []struct{ name, doc string }{
		{"many elements", "[" + strings.Repeat("0,", 200_000) + "0]"},
		{"many small objects", "[" + strings.Repeat(`{"b":1,"a":2},`, 20_000) + "0]"},
		{"deep and out of order", strings.Repeat(`{"b":`, 63) + `{"b":"` + strings.Repeat("x", 100_000) + `","a":1}` + strings.Repeat(`,"a":1}`, 63)},
		{"many escapes", `"` + strings.Repeat(`\u0041`, 100_000) + `"`},
		{"many big integers", "[" + strings.Repeat(strings.Repeat("9", 1024)+",", 100) + "0]"},
		{"a long float", "0." + strings.Repeat("3", 100_000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw, err := canon.FromJSON([]byte(c.doc))
			if err != nil {
				t.Fatal(err)
			}
			text, err := canon.JSON([]byte(c.doc))
			if err != nil {
				t.Fatal(err)
			}
			if back, err := canon.ToJSON(raw); err != nil || !bytes.Equal(back, text) {
				t.Errorf("ToJSON(FromJSON) differs from JSON: %v", err)
			}
		})
	}
}

// TestMembersAreDocuments: the members of an object are what parsing each of them gives.
func TestMembersAreDocuments(t *testing.T) {
	for _, doc := range []string{
		`{}`, `{"a":1}`, `{"bb":[1,{"x":"]},\""}],"a":{"é":"\u0001\\"},"":"","ccc":-0.0}`, `{"k\"":["}"],"j":{"a":[]}}`,
	} {
		d, err := canon.Parse([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		members, ok := d.Members()
		var want map[string]json.RawMessage
		if err := json.Unmarshal(d.JSON, &want); err != nil || !ok || len(members) != len(want) {
			t.Fatalf("%s: %v, %v, %v", doc, members, ok, err)
		}
		for key, text := range want {
			own, err := canon.Parse(text)
			if got := members[key]; err != nil || got == nil || !bytes.Equal(got.JSON, own.JSON) || !bytes.Equal(got.CBOR, own.CBOR) {
				t.Errorf("%s: member %q is %+v, want %+v (%v)", doc, key, got, own, err)
			}
		}
	}
	for _, doc := range []string{`[]`, `null`, `"{}"`, `1`} {
		if d, err := canon.Parse([]byte(doc)); err != nil {
			t.Error(err)
		} else if members, ok := d.Members(); ok {
			t.Errorf("%s has the members %v", doc, members)
		}
	}
}

// TestADocumentIsCheckedOnce against one schema, and again against another one.
func TestADocumentIsCheckedOnce(t *testing.T) {
	d, err := canon.Parse([]byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	asked, wrong := 0, errors.New("wrong")
	check := func(answer error) func([]byte) error {
		return func(text []byte) error {
			asked++
			if string(text) != `{"a":1}` {
				t.Errorf("asked about %s", text)
			}
			return answer
		}
	}
	one, other := new(int), new(int)
	for i, c := range []struct {
		schema *int
		answer error
		asked  int
	}{{one, wrong, 1}, {one, wrong, 2}, {one, nil, 3}, {one, wrong, 3}, {other, wrong, 4}, {one, wrong, 4}, {other, nil, 5}, {other, wrong, 5}, {one, nil, 6}} {
		err := d.Fits(c.schema, check(c.answer))
		if asked != c.asked || i < 3 && err != c.answer {
			t.Errorf("step %d: asked %d times, want %d; %v", i, asked, c.asked, err)
		}
	}
}
