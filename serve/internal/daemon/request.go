package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/internal/share"
)

// maxJSON bounds JSON bodies. A goal or the input of a tool waits in the queue, with its envelope,
// and a job has at most 1 MiB.
const maxJSON = 1 << 20

// clip shortens text of a request before it is repeated in a response.
func clip(s string) string { return display.Clip(strings.ToValidUTF8(s, "?"), 100) }

// holdBody reserves memory for a body of at most limit bytes before it is read: times bytes for
// each. A body of unknown length reserves the maximum. The time limit for the body begins
// afterwards, because the client has not caused that wait.
func (d *Daemon) holdBody(w http.ResponseWriter, r *http.Request, limit, times int64) error {
	n := r.ContentLength
	if n > limit {
		return overlong(limit)
	}
	if n < 0 {
		n = limit
	}
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	err := share.Hold(r.Context(), n*times)
	if limit > maxJSON {
		bodyWithin(w, r, d.config.Connections.Request)
	} else {
		bodyWithin(w, r, d.config.HeaderTime)
	}
	return err
}

// readBody reads a body of the type and of at most limit bytes, see holdBody.
func (d *Daemon) readBody(w http.ResponseWriter, r *http.Request, contentType string, limit, times int64) ([]byte, error) {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") { // decoded, it could exceed any bound
		return nil, wrongType.because("the body has the content encoding %q", clip(enc)).hint("send it without an encoding")
	}
	if got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || got != contentType {
		return nil, wrongType.because("the body is of type %q", clip(r.Header.Get("Content-Type"))).hint("send it with Content-Type: " + contentType)
	}
	if err := d.holdBody(w, r, limit, times); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	buf.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead) // so that it never grows
	_, err := buf.ReadFrom(r.Body)
	body := buf.Bytes()
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return nil, overlong(limit)
	}
	if err != nil {
		return nil, badRequest.because("the body ends early")
	}
	if len(body) > guest.SmallBytes {
		return body, share.Step(r.Context())
	}
	return body, nil
}

func overlong(limit int64) error {
	return tooLarge.because("the body has more than %d bytes", limit)
}

// decodeJSON decodes a body into the fields of v, a pointer to a struct. Members are matched exactly, and each
// once: what a reader of another mind would understand otherwise is refused.
func decodeJSON(body []byte, v any) error {
	doc, err := canon.Parse(body)
	if err != nil {
		p := badJSON.plain()
		if syntax, ok := errors.AsType[*canon.SyntaxError](err); ok {
			p.Detail, p.Hint = syntax.Msg, syntax.Hint
			p.Line, p.Column, p.Field = syntax.Line, syntax.Column, syntax.Pointer
		}
		return p
	}
	members, ok := doc.Members()
	if !ok {
		return badJSON.because("the body is not an object")
	}
	object := reflect.ValueOf(v).Elem()
	fields := map[string][]int{} // their indices by their names in JSON
	for _, f := range reflect.VisibleFields(object.Type()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			fields[name] = f.Index
		}
	}
	for name, value := range members {
		i, known := fields[name]
		if !known {
			return unknownField.because("unknown field %q; the fields are %s", clip(name), strings.Join(slices.Sorted(maps.Keys(fields)), ", ")).in(clip(name))
		}
		field := object.FieldByIndex(i)
		if _, whole := field.Interface().(*canon.Doc); whole {
			field.Set(reflect.ValueOf(value))
			continue
		}
		if _, any := field.Interface().(json.RawMessage); !any && string(value.JSON) == "null" {
			return badField.because("%q is null", name).in(name).hint("omit it for the default")
		}
		if err := json.Unmarshal(value.JSON, field.Addr().Interface()); err != nil {
			return badField.because("%q is not %s", name, wanted(err)).in(name)
		}
	}
	return nil
}

// wanted describes the expected type of a value.
func wanted(err error) string {
	bad, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return "what it must be"
	}
	switch bad.Type.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	}
	return "what it must be"
}

// parameters are the parameters of a query. An unknown name is an error, and so is a parameter
// without a value, so that a mistyped filter does not select everything.
type parameters struct {
	values url.Values
	err    error
}

func parametersOf(r *http.Request, known []string) *parameters {
	p := &parameters{}
	p.values, p.err = url.ParseQuery(r.URL.RawQuery)
	if p.err != nil {
		p.err = badQuery.because("the query cannot be read")
	}
	takes := "the route takes none"
	if len(known) > 0 {
		takes = "the parameters are " + strings.Join(known, ", ")
	}
	for name, values := range p.values {
		if !slices.Contains(known, name) {
			p.fail(name, "unknown parameter %q; %s", clip(name), takes)
		} else if len(values) > 1 {
			p.fail(name, "%q is there %d times", name, len(values))
		} else if values[0] == "" && name != "q" { // a part of everything
			p.fail(name, "%q is empty", name)
		}
	}
	return p
}

func (p *parameters) fail(name, format string, args ...any) {
	if p.err == nil {
		p.err = badQuery.because(format, args...).in(clip(name))
	}
}

func (p *parameters) text(name string) string { return p.values.Get(name) }

// number returns a whole number from 0 to most, or the default.
func (p *parameters) number(name string, otherwise, most uint64) uint64 {
	text := p.values.Get(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > most {
		p.fail(name, "%q is not a whole number up to %d", name, most)
	}
	return n
}

// limit returns how much a page has at most, from 1 on.
func (p *parameters) limit(otherwise, most uint64) int {
	n := p.number("limit", otherwise, most)
	if n == 0 {
		p.fail("limit", "limit is 1 to %d", most)
	}
	return int(n)
}

func (p *parameters) time(name string) time.Time {
	text := p.values.Get(name)
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		p.fail(name, "%q is not a time such as 2026-11-21T10:00:00Z", name)
	}
	return t
}
