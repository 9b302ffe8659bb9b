package yaml

import (
	"fmt"
	"strings"
	"unicode"
)

// maxExcerpt is how many characters of a line an error shows.
const maxExcerpt = 96

// Error says what is wrong with a file, where, and what may help.
type Error struct {
	File   string
	Line   int // from 1; 0 when the file as a whole is meant
	Column int // from 1, in characters
	Msg    string
	Hint   string // empty when Msg says it all
	Source string // the line; empty if it must not be shown
}

// Error returns the place and the message, then the line with a caret below the
// column, then the hint, each on lines of their own.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message())
	if excerpt := e.Excerpt(); excerpt != "" {
		b.WriteString("\n" + excerpt)
	}
	if e.Hint != "" {
		b.WriteString("\nhint: " + e.Hint)
	}
	return b.String()
}

// Message returns the place and the message on one line.
func (e *Error) Message() string {
	if e.Line == 0 {
		return e.File + ": " + e.Msg
	}
	return place(e.File, e.Line, e.Column) + ": " + e.Msg
}

// Excerpt returns the line with its number, and a caret on a second line. It is
// empty if there is no line to show. A long line is cut around the caret.
func (e *Error) Excerpt() string {
	if e.Line == 0 || e.Source == "" {
		return ""
	}
	runes := []rune(e.Source)
	at := min(max(e.Column-1, 0), len(runes))
	from := max(0, min(at-maxExcerpt/2, len(runes)-maxExcerpt))
	to := min(len(runes), from+maxExcerpt)
	number := fmt.Sprint(e.Line)
	return fmt.Sprintf("  %s | %s\n  %s | %s^", number, plain(runes[from:to]),
		strings.Repeat(" ", len(number)), strings.Repeat(" ", at-from))
}

// plain replaces what a terminal would not print as one character.
func plain(runes []rune) string {
	shown := make([]rune, len(runes))
	for i, r := range runes {
		switch {
		case r == '\t':
			r = ' '
		case !unicode.IsPrint(r):
			r = '?'
		}
		shown[i] = r
	}
	return string(shown)
}
