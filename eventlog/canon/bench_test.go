package canon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
)

// benchDocument is like the result of a tool: a list of records in the key
// order in which a struct has them, which is not sorted.
func benchDocument() []byte {
	var b bytes.Buffer
	b.WriteString(`{"results": [`)
	for i := range 100 {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `{"title": "Record number %d", "id": %d, "score": %d.25, "tags": ["a", "b\n"], "ok": true}`, i, i*7919, i)
	}
	b.WriteString(`], "next": null}`)
	return b.Bytes()
}

func BenchmarkJSON(b *testing.B) {
	doc := benchDocument()
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := canon.JSON(doc); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFromJSON(b *testing.B) {
	doc := benchDocument()
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := canon.FromJSON(doc); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkToJSON(b *testing.B) {
	raw, err := canon.FromJSON(benchDocument())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := canon.ToJSON(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValid(b *testing.B) {
	raw, err := canon.FromJSON(benchDocument())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if err := canon.Valid(raw); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncodingJSON is the scale: encoding/json only removes the space.
func BenchmarkEncodingJSON(b *testing.B) {
	doc := benchDocument()
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		var out bytes.Buffer
		if err := json.Compact(&out, doc); err != nil {
			b.Fatal(err)
		}
	}
}
