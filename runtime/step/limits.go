package step

import (
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
)

const (
	// maxValueBytes bounds the arguments and the result of a call, and request
	// and result of an effect together. What is left of a payload holds the
	// other fields.
	maxValueBytes = eventlog.MaxPayloadBytes - 64<<10

	// maxTextBytes bounds the text of a recorded error.
	maxTextBytes = 16 << 10
)

// recordable makes a text fit for the log: valid UTF-8 of bounded length.
func recordable(text string) string {
	text = strings.ToValidUTF8(cut(text), string(utf8.RuneError))
	return cut(text) // a stray byte became three
}

// cut shortens a text to maxTextBytes, between characters.
func cut(text string) string {
	if len(text) <= maxTextBytes {
		return text
	}
	end := maxTextBytes
	for end > maxTextBytes-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// fits refuses a value that nests so deep that the event around it could not be
// read back. A payload and an envelope add one level each.
func fits(value canon.Raw) error {
	const twoArraysOfOne = "\x81\x81"
	return canon.Valid(append([]byte(twoArraysOfOne), value...))
}
