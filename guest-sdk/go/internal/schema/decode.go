package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
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
	if errors.As(err, &mismatch) {
		if number, ok := strings.CutPrefix(mismatch.Value, "number "); ok && number != string(whole([]byte(number))) {
			err = decode(wholeNumbers(input), in)
		}
	}
	return explain(err)
}

// wholeNumbers rewrites the integers of a document for encoding/json. Where it can it keeps
// the place of what follows, which errors name.
func wholeNumbers(doc []byte) (out []byte) {
	for inString := false; len(doc) > 0; {
		n := 1
		switch c := doc[0]; {
		case inString && c == '\\':
			n = 2
		case c == '"':
			inString = !inString
		case !inString && (c == '-' || '0' <= c && c <= '9'):
			n = len(doc) - len(bytes.TrimLeft(doc, "+-.eE0123456789"))
			number := whole(doc[:n])
			out, doc = append(append(out, number...), bytes.Repeat([]byte(" "), max(0, n-len(number)))...), doc[n:]
			continue
		}
		out, doc = append(out, doc[:n]...), doc[n:]
	}
	return out
}

// whole returns a number of JSON without fraction and exponent if it is an integer of at most
// twenty digits, more than 64 bits have, and else as it is.
func whole(number []byte) []byte {
	unsigned, negative := bytes.CutPrefix(number, []byte("-"))
	mantissa, exponent := unsigned, 0
	if i := bytes.IndexAny(unsigned, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(string(unsigned[i+1:])); err != nil {
			return number
		}
		mantissa = unsigned[:i]
	}
	before, after, _ := bytes.Cut(mantissa, []byte("."))
	digits := slices.Concat(before, after)
	point := len(before) + exponent
	switch {
	case len(bytes.Trim(digits, "0")) == 0:
		return []byte("0")
	case point <= 0 || point > 20:
		return number
	case point >= len(digits):
		digits = append(digits, bytes.Repeat([]byte("0"), point-len(digits))...)
	case len(bytes.Trim(digits[point:], "0")) > 0:
		return number
	}
	digits = bytes.TrimLeft(digits[:point], "0")
	if negative {
		digits = append([]byte("-"), digits...)
	}
	return digits
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
	number, _ := strings.CutPrefix(mismatch.Value, "number ")
	if f, err := strconv.ParseFloat(number, 64); number != mismatch.Value && (err != nil || f == math.Trunc(f)) {
		want += rangeOf(mismatch.Type) // it is too large
	}
	return fmt.Errorf("%s: want %s, got %s at byte %d", mismatch.Field, want, article(mismatch.Value), mismatch.Offset)
}

// rangeOf returns the range of a type of numbers, and nothing for other types.
func rangeOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		highest := int64(math.MaxInt64) >> (64 - t.Bits())
		return fmt.Sprintf(" from %d to %d", -highest-1, highest)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf(" from 0 to %d", uint64(math.MaxUint64)>>(64-t.Bits()))
	case reflect.Float32, reflect.Float64:
		return fmt.Sprintf(" of %d bits", t.Bits())
	}
	return ""
}

func article(noun string) string {
	if strings.ContainsAny(noun[:1], "aeiou") {
		return "an " + noun
	}
	return "a " + noun
}
