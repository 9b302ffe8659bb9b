package canon

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/x448/float16"
	"pgregory.net/rapid"
)

// The canonical examples of RFC 8949 appendix A, with the notation of the
// appendix where it is JSON.
var rfc8949 = []struct{ json, cbor string }{
	{`0`, "00"}, {`1`, "01"}, {`10`, "0a"}, {`23`, "17"}, {`24`, "1818"}, {`25`, "1819"}, {`100`, "1864"},
	{`1000`, "1903e8"}, {`1000000`, "1a000f4240"}, {`1000000000000`, "1b000000e8d4a51000"},
	{`18446744073709551615`, "1bffffffffffffffff"}, {`18446744073709551616`, "c249010000000000000000"},
	{`-18446744073709551616`, "3bffffffffffffffff"}, {`-18446744073709551617`, "c349010000000000000000"},
	{`-1`, "20"}, {`-10`, "29"}, {`-100`, "3863"}, {`-1000`, "3903e7"},
	{`0.0`, "f90000"}, {`-0.0`, "f98000"}, {`1.0`, "f93c00"}, {`1.1`, "fb3ff199999999999a"}, {`1.5`, "f93e00"},
	{`65504.0`, "f97bff"}, {`100000.0`, "fa47c35000"}, {`3.4028234663852886e+38`, "fa7f7fffff"},
	{`1.0e+300`, "fb7e37e43c8800759c"}, {`5.960464477539063e-8`, "f90001"}, {`0.00006103515625`, "f90400"},
	{`-4.0`, "f9c400"}, {`-4.1`, "fbc010666666666666"},
	{`false`, "f4"}, {`true`, "f5"}, {`null`, "f6"},
	{`""`, "60"}, {`"a"`, "6161"}, {`"IETF"`, "6449455446"}, {`"\"\\"`, "62225c"}, {`"\u00fc"`, "62c3bc"},
	{`"\u6c34"`, "63e6b0b4"}, {`"\ud800\udd51"`, "64f0908591"},
	{`[]`, "80"}, {`[1, 2, 3]`, "83010203"}, {`[1, [2, 3], [4, 5]]`, "8301820203820405"},
	{`[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25]`,
		"98190102030405060708090a0b0c0d0e0f101112131415161718181819"},
	{`{}`, "a0"}, {`{"a": 1, "b": [2, 3]}`, "a26161016162820203"}, {`["a", {"b": "c"}]`, "826161a161626163"},
	{`{"a": "A", "b": "B", "c": "C", "d": "D", "e": "E"}`, "a56161614161626142616361436164614461656145"},
	{"", "f97c00"}, {"", "f97e00"}, {"", "f9fc00"}, {"", "f7"}, {"", "f0"}, {"", "f8ff"},
	{"", "c074323031332d30332d32315432303a30343a30305a"}, {"", "c11a514b67b0"}, {"", "c1fb41d452d9ec200000"},
	{"", "d74401020304"}, {"", "d818456449455446"}, {"", "d82076687474703a2f2f7777772e6578616d706c652e636f6d"},
	{"", "40"}, {"", "4401020304"}, {"", "a201020304"},
}

func TestExamplesOfRFC8949(t *testing.T) {
	for _, c := range rfc8949 {
		want, err := hex.DecodeString(c.cbor)
		if err != nil {
			t.Fatal(err)
		}
		if err := Valid(want); err != nil {
			t.Errorf("%s: %v", c.cbor, err)
		}
		if c.json == "" {
			continue
		}
		if got, err := FromJSON([]byte(c.json)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("FromJSON(%s) = %x, %v, want %s", c.json, got, err, c.cbor)
		}
	}
}

// The examples of RFC 8785 appendix B, with our ".0" where ECMAScript has none.
func TestFloatsOfRFC8785(t *testing.T) {
	for _, c := range []struct {
		bits uint64
		want string
	}{
		{0x0000000000000000, "0.0"},
		{0x8000000000000000, "-0.0"},
		{0x0000000000000001, "5e-324"},
		{0x8000000000000001, "-5e-324"},
		{0x7fefffffffffffff, "1.7976931348623157e+308"},
		{0xffefffffffffffff, "-1.7976931348623157e+308"},
		{0x4340000000000000, "9007199254740992.0"},
		{0xc340000000000000, "-9007199254740992.0"},
		{0x4430000000000000, "295147905179352830000.0"},
		{0x44b52d02c7e14af5, "9.999999999999997e+22"},
		{0x44b52d02c7e14af6, "1e+23"},
		{0x44b52d02c7e14af7, "1.0000000000000001e+23"},
		{0x444b1ae4d6e2ef4e, "999999999999999700000.0"},
		{0x444b1ae4d6e2ef4f, "999999999999999900000.0"},
		{0x444b1ae4d6e2ef50, "1e+21"},
		{0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
		{0x3eb0c6f7a0b5ed8d, "0.000001"},
		{0x41b3de4355555553, "333333333.3333332"},
		{0x41b3de4355555554, "333333333.33333325"},
		{0x41b3de4355555555, "333333333.3333333"},
		{0x41b3de4355555556, "333333333.3333334"},
		{0x41b3de4355555557, "333333333.33333343"},
		{0xbecbf647612f3696, "-0.0000033333333333333333"},
		{0x43143ff3c1cb0959, "1424953923781206.2"},
	} {
		if got := appendFloatJSON(nil, math.Float64frombits(c.bits)); string(got) != c.want {
			t.Errorf("%016x: %s, want %s", c.bits, got, c.want)
		}
	}
}

// The codec is the oracle for the bytes of floats and integers.
func checkLikeCodec(t interface{ Fatalf(string, ...any) }, v any, got []byte) {
	want, err := encMode.Marshal(v)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%v: %x, the codec says %x, %v", v, got, want, err)
	}
	if err := Valid(got); err != nil {
		t.Fatalf("%v: %v", v, err)
	}
}

func TestEveryHalfFloat(t *testing.T) {
	for half := range 1 << 16 {
		f := float64(float16.Frombits(uint16(half)).Float32())
		got := appendFloat(nil, f)
		checkLikeCodec(t, f, got)
		if want := []byte{cborHalf, byte(half >> 8), byte(half)}; f == f && !bytes.Equal(got, want) {
			t.Fatalf("%v: %x, want %x", f, got, want)
		}
	}
}

func TestFloatsLikeTheCodec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.Uint64().Draw(t, "bits")
		for _, f := range []float64{
			math.Float64frombits(bits),
			float64(math.Float32frombits(uint32(bits))),
			float64(math.Float32frombits(uint32(bits) &^ (1<<12 - 1))), // near the range of a half float
		} {
			checkLikeCodec(t, f, appendFloat(nil, f))
		}
	})
}

func TestIntegersLikeTheCodec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u, i := rapid.Uint64().Draw(t, "u"), rapid.Int64().Draw(t, "i")
		checkLikeCodec(t, u, AppendUint(nil, u))
		checkLikeCodec(t, i, AppendInt(nil, i))
		x := new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "big"))
		if rapid.Bool().Draw(t, "negative") {
			x.Neg(x)
		}
		raw, err := FromJSON([]byte(x.String()))
		if err != nil {
			t.Fatal(err)
		}
		checkLikeCodec(t, x, raw)
	})
}

// decodeJSON reads a document as encoding/json does, with numbers as this
// package understands them.
func decodeJSON(doc []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return numbers(v), nil
}

func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			f, _ := v.Float64()
			return f
		}
		x, _ := new(big.Int).SetString(v.String(), 10)
		return x
	}
	return v
}

// document draws a JSON document in some spelling, without repeated keys.
func document(t *rapid.T, depth int) string {
	space := rapid.SampledFrom([]string{"", "", " ", "\n\t"})
	sp := func() string { return space.Draw(t, "space") }
	switch kind := rapid.IntRange(0, 6).Draw(t, "kind"); {
	case kind == 0:
		return sp() + rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "literal") + sp()
	case kind == 1:
		return rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})`).Draw(t, "integer")
	case kind == 2:
		return rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20}|(\.[0-9]{1,5})?[eE][+-]?[0-9]{1,2})`).Draw(t, "float")
	case kind == 3 || depth == 0:
		return sp() + spelling(t, rapid.String().Draw(t, "text")) + sp()
	case kind == 4:
		n := rapid.IntRange(0, 30).Draw(t, "elements")
		items := make([]string, n)
		for i := range items {
			items[i] = document(t, depth-1)
		}
		return sp() + "[" + sp() + strings.Join(items, ",") + "]" + sp()
	default:
		keys := rapid.SliceOfNDistinct(rapid.StringN(0, 4, -1), 0, 30, rapid.ID).Draw(t, "keys")
		for i, k := range keys {
			keys[i] = sp() + spelling(t, k) + sp() + ":" + sp() + document(t, depth-1)
		}
		return "{" + sp() + strings.Join(keys, ",") + "}"
	}
}

// spelling writes s as a JSON string, with more escapes than necessary.
func spelling(t *rapid.T, s string) string {
	b := []byte{'"'}
	for _, r := range strings.ToValidUTF8(s, "") {
		switch {
		case r <= 0xffff && rapid.IntRange(0, 3).Draw(t, "escape") == 0:
			b = appendUnicode(b, uint16(r))
		case r < ' ' || r == '"' || r == '\\':
			b = appendEscape(b, byte(r))
		default:
			b = append(b, string(r)...)
		}
	}
	return string(append(b, '"'))
}

func TestDocumentsLikeEncodingJSONAndTheCodec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := document(t, 3)
		v, err := decodeJSON([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := FromJSON([]byte(doc))
		if err != nil {
			t.Fatalf("%q: %v", doc, err)
		}
		checkLikeCodec(t, v, raw)
		checkLaws(t, []byte(doc))
	})
}

// checkLaws checks the laws of every accepted document.
func checkLaws(t interface {
	Helper()
	Fatalf(string, ...any)
}, doc []byte) {
	t.Helper()
	text, err := JSON(doc)
	raw, err2 := FromJSON(doc)
	if err != nil || err2 != nil {
		t.Fatalf("%q: JSON says %v, FromJSON says %v", doc, err, err2)
	}
	if back, err := ToJSON(raw); err != nil || !bytes.Equal(back, text) {
		t.Fatalf("%q: ToJSON(FromJSON) = %q, %v\nJSON = %q", doc, back, err, text)
	}
	if again, err := JSON(text); err != nil || !bytes.Equal(again, text) {
		t.Fatalf("%q: JSON(JSON) = %q, %v", doc, again, err)
	}
	if again, err := FromJSON(text); err != nil || !bytes.Equal(again, raw) {
		t.Fatalf("%q: FromJSON(JSON) = %x, %v\nFromJSON = %x", doc, again, err, raw)
	}
	if err := Valid(raw); err != nil {
		t.Fatalf("%q: %v", doc, err)
	}
	if shown, err := Render(raw); err != nil || !json.Valid(shown) {
		t.Fatalf("%q: Render = %q, %v", doc, shown, err)
	} else if same, err := JSON(shown); err != nil || !bytes.Equal(same, text) {
		t.Fatalf("%q: Render means %q, %v", doc, same, err)
	}
	if err := cbor.Wellformed(raw); err != nil && !strings.Contains(err.Error(), "nested") {
		t.Fatalf("%q: the codec refuses %x: %v", doc, raw, err)
	}
}
