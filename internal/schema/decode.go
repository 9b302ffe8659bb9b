package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Decode reads one JSON object into the struct that in points to. Members that
// the struct does not have are refused; that required members are there is for
// whoever checks the schema. Errors speak of JSON, not of Go.
func Decode(input []byte, in any) error {
	if !bytes.HasPrefix(bytes.TrimLeft(input, " \t\r\n"), []byte("{")) {
		return errors.New("want an object")
	}
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	if err := d.Decode(in); err != nil {
		return explain(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text after the object")
	}
	return nil
}

// explain says in terms of JSON what encoding/json says in terms of Go.
func explain(err error) error {
	var mismatch *json.UnmarshalTypeError
	if !errors.As(err, &mismatch) {
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
