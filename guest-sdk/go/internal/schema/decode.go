package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Decode reads one JSON object into the struct that in points to. Members that the
// struct does not have are refused; checking the schema checks that required members
// exist. Errors speak of JSON, not of Go.
//
// An integer may be written as 5.0 or 5e0, which is an integer for JSON Schema but
// not for encoding/json.
func Decode(input []byte, in any) error {
	err := decode(input, in)
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) && strings.HasPrefix(mismatch.Value, "number ") && strings.ContainsAny(mismatch.Value[7:], ".eE") {
		err = decode(wholeNumbers(input), in)
	}
	return explain(err)
}

// wholeNumbers rewrites integers for encoding/json, if a float64 holds them exactly.
func wholeNumbers(doc []byte) (out []byte) {
	for inString := false; len(doc) > 0; {
		n := len(doc) - len(bytes.TrimLeft(doc, "+-.eE0123456789"))
		f, err := strconv.ParseFloat(string(doc[:n]), 64)
		switch {
		case !inString && err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53:
			out, doc = strconv.AppendInt(out, int64(f), 10), doc[n:]
			continue
		case inString && doc[0] == '\\':
			n = 2
		case doc[0] == '"':
			inString = !inString
		}
		n = min(max(n, 1), len(doc))
		out, doc = append(out, doc[:n]...), doc[n:]
	}
	return out
}

func decode(input []byte, in any) error {
	if !bytes.HasPrefix(bytes.TrimLeft(input, " \t\r\n"), []byte("{")) {
		return errors.New("want an object")
	}
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	if err := d.Decode(in); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text after the object")
	}
	return nil
}

// explain says in terms of JSON what encoding/json says in terms of Go.
func explain(err error) error {
	var mismatch *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &mismatch):
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	want := "a value of type " + mismatch.Type.String()
	if s, err := (deriver{}).schema(mismatch.Type); err == nil {
		if name, ok := s.Type.(string); ok {
			want = article(name)
		}
	}
	return fmt.Errorf("%s: want %s, got %s at byte %d", mismatch.Field, want, article(mismatch.Value), mismatch.Offset)
}

func article(noun string) string {
	if strings.ContainsAny(noun[:1], "aeiou") {
		return "an " + noun
	}
	return "a " + noun
}
