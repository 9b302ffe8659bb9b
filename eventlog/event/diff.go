package event

import (
	"bytes"

	"github.com/starling-host/starling/eventlog/canon"
)

// absent is what [Diff] shows for a field that one side does not have.
const absent = "(absent)"

// Diff finds the first difference between two payloads, in the order of their
// bytes. When there is none, same is true and the rest is empty.
//
// Field is the path to the difference, as in tool_schemas[0].sandbox.module,
// and empty when the payloads differ as a whole. Want and have are the two
// values there: text is given as it is, so that a caller can point at the
// first character that differs; everything else is rendered as JSON; and
// "(absent)" stands for what a side does not have.
func Diff(expected, got canon.Raw) (field, want, have string, same bool) {
	if bytes.Equal(expected, got) {
		return "", "", "", true
	}
	field, a, b := canon.Difference(expected, got)
	want, have = show(a), show(b)
	if want == have { // text and bytes that read alike
		want, have = render(a), render(b)
	}
	return field, want, have, false
}

// show gives one side of a difference to people.
func show(v canon.Raw) string {
	if text, ok := canon.Text(v); ok {
		return text
	}
	return render(v)
}

// render shows v as JSON, and what is not canonical as the byte string that
// it at least is.
func render(v canon.Raw) string {
	if len(v) == 0 {
		return absent
	}
	rendered, err := canon.Render(v)
	if err != nil {
		rendered, _ = canon.Render(canon.AppendBytes(nil, v))
	}
	return string(rendered)
}
