package narrate

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Printable returns s with every rune that is not printable replaced by its Go
// escape. Line breaks and tabs are escaped as well, so the result is one line; so
// are the characters that reorder or hide text.
func Printable(s string) string { return EscapeRunes(s, strconv.IsPrint) }

// EscapeRunes returns s with every rune that is not plain, and every byte that is
// no UTF-8, replaced by its Go escape.
func EscapeRunes(s string, plain func(rune) bool) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[i])
		} else if plain(r) {
			b.WriteRune(r)
		} else {
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
	return b.String()
}

// Shorten cuts a printable text to at most width characters, at least 3.
func Shorten(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-3]) + "..."
}
