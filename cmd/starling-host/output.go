package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/display"
)

// printer is standard output or standard error. The command prints everything through its methods.
// Results, logs and requests of tools and the contents of databases are hostile text. A terminal
// interprets some of it: control characters move the cursor and rewrite earlier lines,
// bidirectional overrides reorder words, zero-width characters hide. So no method passes such
// characters on.
//
// The one exception is [printer.exact]: the bytes of a result for a file or a pipe.
type printer struct {
	to       io.Writer
	terminal bool // it is one
	coloured bool // and is given colours
	columns  int  // of a terminal that is elsewhere

	mu  sync.Mutex
	err error // the first error of to
}

func newPrinter(to io.Writer) *printer {
	terminal := isTerminal(to)
	return &printer{to: to, terminal: terminal, coloured: terminal && coloured()}
}

// size is how many characters and lines fit on the terminal, or 0 without one.
func (p *printer) size() (width, height int) {
	width = p.columns
	if f, ok := p.to.(*os.File); ok && p.terminal {
		width, height, _ = term.GetSize(int(f.Fd()))
	}
	return width, height
}

// width is that of [printer.size].
func (p *printer) width() int {
	width, _ := p.size()
	return width
}

// printf prints one or more lines of this program's words. Each argument that is text
// becomes one line ([printable]), so that it forges no line of its own.
func (p *printer) printf(format string, args ...any) error {
	for i, arg := range args {
		switch v := arg.(type) {
		case styled:
			args[i] = p.mark(v)
		case error:
			args[i] = display.PrintableError(v)
		case fmt.Stringer:
			args[i] = printable(v.String())
		default:
			if text := reflect.ValueOf(arg); text.Kind() == reflect.String {
				args[i] = printable(text.String())
			}
		}
	}
	if !p.coloured {
		_, err := fmt.Fprintf(p.lines(), format, args...)
		return err
	}
	_, err := io.WriteString(p.raw(), paint(fmt.Sprintf(format, args...)))
	return err
}

// doing shows a long operation on the terminal until the returned function is called. It is erased
// then, so it is not for a file.
func (p *printer) doing(what string) (ended func()) {
	const soon = 200 * time.Millisecond
	var mu sync.Mutex
	shown, over := 0, false
	timer := time.AfterFunc(soon, func() {
		mu.Lock()
		defer mu.Unlock()
		if text := display.ASCII(what) + " ..."; !over {
			if width := p.width(); width > 0 {
				text = shorten(text, max(width-1, 3)) // a line that wraps would remain
			}
			shown, _ = io.WriteString(p.raw(), "\r"+text)
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		if over = true; shown > 0 {
			_, _ = io.WriteString(p.raw(), "\r"+strings.Repeat(" ", shown-1)+"\r")
		}
	}
}

// lines returns where text goes that has lines of its own, such as help, a log record or a
// JSON document. Characters that a terminal might obey are escaped, as in JSON, but for
// line breaks and tabs.
func (p *printer) lines() io.Writer { return (*linePrinter)(p) }

type linePrinter printer

func (p *linePrinter) Write(text []byte) (int, error) {
	obeyed := func(c byte) bool { return c != '\n' && c != '\t' && (c < ' ' || c > '~') }
	clean := text
	if slices.ContainsFunc(text, obeyed) {
		clean = display.PrintableJSON(text, '\n', '\t')
	}
	_, err := (*rawPrinter)(p).Write(clean)
	return len(text), err
}

// exact returns where the bytes of a result go: to a file or a pipe as they are. To a
// terminal they go as lines, which changes no value of a JSON document.
func (p *printer) exact() io.Writer {
	if p.terminal {
		return p.lines()
	}
	return p.raw()
}

// raw returns the writer below, for control characters of this program's own. The first
// error is remembered, so that a result that was lost, on a full disk for example, is
// never taken for a success.
func (p *printer) raw() io.Writer { return (*rawPrinter)(p) }

type rawPrinter printer

func (p *rawPrinter) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.to.Write(text)
	if p.err == nil {
		p.err = err
	}
	return n, err
}

// outliveReaders makes a write to a closed pipe at standard output or error fail, instead of ending
// the process: a command that records continues, as in "agent run ... 2>&1 | head". Ignoring the
// signal would pass that on to MCP servers; a signal that is caught has its usual effect there.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// writeDocument prints a JSON document and a line break.
func (a *app) writeDocument(doc []byte) error {
	_, err := a.stdout.exact().Write(append(bytes.Clone(doc), '\n'))
	return err
}

// writeValue prints v as a JSON document on one line.
func (a *app) writeValue(v any) error {
	enc := json.NewEncoder(a.stdout.exact())
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printable returns s as one line, with every rune that is not printable replaced by its escape.
// Arguments of a printer need no further escaping.
func printable(s string) string { return display.Printable(s) }

// printableLines returns the lines of s, each printable, without empty ones at the end.
func printableLines(s string) []string {
	s = strings.TrimRight(s, "\r\n")
	if s == "" {
		return nil
	}
	return strings.Split(display.PrintableText(s), "\n")
}

// indented is printableLines for text below an error: no line of it can be mistaken for an error or
// a hint of this program.
func indented(s string) []string {
	lines := printableLines(s)
	for i, line := range lines {
		lines[i] = "  " + line
	}
	return lines
}

// shorten cuts a printable text to at most width characters.
func shorten(s string, width int) string { return display.Shorten(s, width) }

// pasteable returns a command to paste into a POSIX shell: words of this program, followed by
// arguments of any origin. No argument can become a flag, or more than one word.
func pasteable(command string, args ...string) string {
	if slices.ContainsFunc(args, func(s string) bool { return strings.HasPrefix(s, "-") }) {
		command += " --"
	}
	for _, arg := range args {
		command += " " + shellWord(arg)
	}
	return command
}

// shellWord returns s as one word for a POSIX shell.
func shellWord(s string) string { return display.ShellWord(s) }

// style is the appearance of a word on a terminal. It only repeats the meaning of the word, so
// nothing is lost without colours. NO_COLOR and TERM=dumb turn it off.
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

// mark returns a styled text for a line that ends in [printer.paint].
func (p *printer) mark(s styled) string {
	if !p.coloured || s.style == plain {
		return printable(s.text)
	}
	return string(styleBegins) + string(s.style) + "m" + printable(s.text) + string(styleEnds)
}

// paint escapes characters that a terminal interprets in a line, and then applies the styles of its
// words.
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
