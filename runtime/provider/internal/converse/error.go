package converse

import (
	"fmt"
	"strings"
	"unicode"
)

// Malformed is an error of the vendor's protocol. It has no class: the same request
// would meet the same server, or the same gateway, again.
func Malformed(format string, args ...any) error {
	err := fmt.Errorf("malformed response: "+format, args...)
	return &Error{Text: err.Error(), Err: err}
}

// maxErrorText bounds what an error says, because it is recorded, and a proxy may
// answer with a page of any length.
const maxErrorText = 2048

// Error is an error in words that are fit to be recorded.
type Error struct {
	Text string
	Err  error
}

// Error returns the text on one line, without control characters, and shortened if it
// is long.
func (e *Error) Error() string {
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(e.Text, ""))
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "..."
	}
	return text
}

// Unwrap returns the error that the text tells.
func (e *Error) Unwrap() error { return e.Err }
