package tenant

import (
	"fmt"
	"log/slog"
)

// Value is a text that must not be seen: an API key, a secret. Whatever prints,
// logs or encodes it gets "[redacted]"; [Value.Reveal] is the only way to the
// text, and the place to look for when one reads how a secret travels. The text
// is behind a function, because package fmt does not ask the methods of a value
// that it meets in an unexported field, and cannot look into a function. The zero
// value is the empty text.
type Value struct{ text func() string }

const redacted = "[redacted]"

// NewValue hides text.
func NewValue(text string) Value { return Value{func() string { return text }} }

// Reveal returns the text.
func (v Value) Reveal() string {
	if v.text == nil {
		return ""
	}
	return v.text()
}

// String returns "[redacted]".
func (v Value) String() string { return redacted }

// GoString returns "[redacted]".
func (v Value) GoString() string { return redacted }

// Format writes "[redacted]" whatever the verb is.
func (v Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalJSON returns "[redacted]" as a JSON string.
func (v Value) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText returns "[redacted]".
func (v Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns "[redacted]".
func (v Value) LogValue() slog.Value { return slog.StringValue(redacted) }
