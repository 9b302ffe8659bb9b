package main

import (
	"os"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/display"
)

// style is how a word stands out on a terminal. It repeats what the word says: without
// colours nothing is lost. NO_COLOR and TERM=dumb turn it off.
type style string

// The styles, as parameters of SGR (ECMA-48, 8.3.117).
const (
	plain  style = ""
	strong style = "1"
	faint  style = "2"
	bad    style = "31" // failed, invalid
	good   style = "32" // as it should be
	middle style = "33" // neither
	aside  style = "36" // what to do next
)

// styled is an argument of [printer.printf] that has a style. Its text is escaped as that of
// any other argument.
type styled struct {
	style style
	text  string
}

// statusStyle is that of a run in a state, or of a verdict.
func statusStyle(status string) style {
	switch status {
	case eventlog.StatusCompleted, "valid", "identical", stateOK:
		return good
	case eventlog.StatusFailed, "invalid", "diverged", stateBad:
		return bad
	}
	return middle
}

// coloured reports whether a terminal is to be given colours.
func coloured() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// A styled text is between two runes while a line is made. They are of the private use area,
// which is never printable, so no other text has them once it is escaped.
const (
	styleBegins = '\ue000'
	styleEnds   = '\ue001'
)

// mark returns a styled text for a line of which [printer.paint] is the last step.
func (p *printer) mark(s styled) string {
	if !p.coloured || s.style == plain {
		return printable(s.text)
	}
	return string(styleBegins) + string(s.style) + "m" + printable(s.text) + string(styleEnds)
}

// paint escapes what a terminal obeys in a line, and then puts in the styles of its words.
func paint(line string) string {
	var b strings.Builder
	for i, part := range strings.Split(line, string(styleBegins)) {
		part = string(display.PrintableJSON([]byte(part), '\n', '\t', styleEnds))
		if i > 0 {
			b.WriteString("\x1b[")
		}
		b.WriteString(strings.ReplaceAll(part, string(styleEnds), "\x1b[0m"))
	}
	return b.String()
}
