package canon

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func addDocuments(f *testing.F) {
	for _, c := range rfc8949 {
		f.Add([]byte(c.json))
	}
	for _, doc := range []string{
		`{"b":1,"a":[1.0,-0,1e400]}`, `{"a":1,"\u0061":2}`, `"\ud83d\ude00\ud800"`, "\"\xff\"", "\xef\xbb\xbf1",
		strings.Repeat("[", 65), `[1,2,]`, `-`, `1e`, `"\`, `{"":{"":{"":null}}} `, `123456789012345678901234567890`,
	} {
		f.Add([]byte(doc))
	}
}

// FuzzJSON compares with encoding/json: documents that this package accepts
// mean the same there, and documents that it refuses are refused there too or
// break a rule that is ours alone.
func FuzzJSON(f *testing.F) {
	addDocuments(f)
	f.Fuzz(func(t *testing.T, doc []byte) {
		text, err := JSON(doc)
		if err == nil {
			checkSameMeaning(t, doc, text)
			return
		}
		var se *SyntaxError
		if !errors.As(err, &se) {
			t.Fatalf("%q: %v is not a *SyntaxError", doc, err)
		}
		if se.Offset < 0 || se.Offset > len(doc) || se.Line < 1 || se.Column < 1 {
			t.Fatalf("%q: impossible place: %+v", doc, se)
		}
		if json.Valid(doc) && !ourOwnRule(se, doc) {
			t.Fatalf("%q: encoding/json accepts it, but: %v", doc, err)
		}
	})
}

// ourOwnRule reports whether se is about something that RFC 8259 leaves open
// and encoding/json allows.
func ourOwnRule(se *SyntaxError, doc []byte) bool {
	for _, rule := range []string{"twice", "surrogate", "nested", "range of a 64-bit float", "digits; the limit"} {
		if strings.Contains(se.Msg, rule) {
			return true
		}
	}
	return !utf8.Valid(doc)
}

func checkSameMeaning(t *testing.T, doc, text []byte) {
	want, err := decodeJSON(doc)
	if err != nil {
		t.Fatalf("%q: encoding/json refuses it: %v", doc, err)
	}
	have, err := decodeJSON(text)
	if err != nil {
		t.Fatalf("%q: encoding/json refuses the canonical form %q: %v", doc, text, err)
	}
	a, err1 := encMode.Marshal(want)
	b, err2 := encMode.Marshal(have)
	if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
		t.Fatalf("%q means %x, its canonical form %q means %x", doc, a, text, b)
	}
}

// FuzzFromJSON checks that accepted documents survive a round trip, and that
// JSON and FromJSON accept the same documents.
func FuzzFromJSON(f *testing.F) {
	addDocuments(f)
	f.Fuzz(func(t *testing.T, doc []byte) {
		_, errJSON := JSON(doc)
		_, err := FromJSON(doc)
		if (err == nil) != (errJSON == nil) {
			t.Fatalf("%q: FromJSON says %v, JSON says %v", doc, err, errJSON)
		}
		if err == nil {
			checkLaws(t, doc)
		}
	})
}

// FuzzValid checks that the codec can read a canonical item and show it, and
// that JSON made from the item leads back to it.
func FuzzValid(f *testing.F) {
	for _, c := range rfc8949 {
		b := make([]byte, len(c.cbor)/2)
		for i := range b {
			b[i] = unhex(c.cbor[2*i])<<4 | unhex(c.cbor[2*i+1])
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		shown, err := Render(data)
		if (Valid(data) == nil) != (err == nil) {
			t.Fatalf("%x: Valid says %v, Render says %v", data, Valid(data), err)
		}
		if err != nil {
			return
		}
		if !json.Valid(shown) {
			t.Fatalf("%x: Render gives %q", data, shown)
		}
		var raw Raw
		if err := Unmarshal(data, &raw); err != nil || !bytes.Equal(raw, data) {
			t.Fatalf("%x: the codec gives %x, %v", data, raw, err)
		}
		if text, err := ToJSON(data); err == nil {
			if back, err := FromJSON(text); err != nil || !bytes.Equal(back, data) {
				t.Fatalf("%x: FromJSON(ToJSON) = %x, %v", data, back, err)
			}
		}
	})
}

func unhex(c byte) byte { return byte(strings.IndexByte("0123456789abcdef", c)) }

// FuzzDifference checks that the path never lies: the items it gives differ.
func FuzzDifference(f *testing.F) {
	f.Add([]byte("\xa1\x61a\x01"), []byte("\xa1\x61a\x02"))
	f.Add([]byte("\x83\x01\x02\x03"), []byte("\x82\x01\x02"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if bytes.Equal(a, b) {
			return
		}
		path, x, y := Difference(a, b)
		if bytes.Equal(x, y) {
			t.Fatalf("%x and %x: both have %x at %q", a, b, x, path)
		}
		if path == "" && !(bytes.Equal(x, a) && bytes.Equal(y, b)) {
			t.Fatalf("%x and %x: no path leads to %x and %x", a, b, x, y)
		}
	})
}
