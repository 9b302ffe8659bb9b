package config

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/work"
)

// maxQuoted is how many bytes of a text an error repeats.
const maxQuoted = 80

// maxExcerpt is the number of characters of a line that an error shows.
const maxExcerpt = 96

// Error is an error in a file, with its place and a hint.
type Error struct {
	File   string
	Line   int // from 1; 0 for the file as a whole
	Column int // from 1, in characters
	Msg    string
	Hint   string // may be empty
	Source string // the line; empty if it must not be shown

	node   *Node
	worded bool // by the schema
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

// Advice implements [hint.Hinted].
func (e *Error) Advice() string { return e.Hint }

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
		strings.Repeat(" ", len(number)), strings.Repeat(" ", display.Cells(string(runes[from:at]))))
}

// plain replaces characters that a terminal would not print as one character.
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

// CheckURL is the format of an address. Its error does not quote text that may hold a secret.
func CheckURL(_ *work.Budget, text string) error {
	if _, err := url.Parse(text); err != nil {
		return errors.New("this must be an address such as https://host/v1")
	}
	return nil
}

// Beside returns a path that a file names: a relative one begins at the folder of the file. The address
// of a server is returned as it is.
func Beside(file, path string) string {
	if path == "" || filepath.IsAbs(path) || strings.Contains(path, "://") {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}
