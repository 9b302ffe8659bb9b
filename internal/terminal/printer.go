package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/display"
)

// Printer is standard output or standard error. The command prints everything through its methods.
// Results, logs and requests of tools and the contents of databases are hostile text. A terminal
// interprets some of it: control characters move the cursor and rewrite earlier lines,
// bidirectional overrides reorder words, zero-width characters hide. So no method passes such
// characters on.
//
// The one exception is [Printer.Exact]: the bytes of a result for a file or a pipe.
type Printer struct {
	to       io.Writer
	Terminal bool // it is one
	Coloured bool // and is given colours

	mu  sync.Mutex
	err error // the first error of to
}

// New returns a printer of standard output or standard error.
func New(to io.Writer) *Printer {
	terminal := Is(to)
	return &Printer{to: to, Terminal: terminal, Coloured: terminal && coloured()}
}

// Err returns the first error of a write: what was printed may be lost.
func (p *Printer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Is reports whether a reader or writer is a terminal.
func Is(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Size is how many characters and lines fit on the terminal, or 0 without one.
func (p *Printer) Size() (width, height int) {
	if f, ok := p.to.(*os.File); ok && p.Terminal {
		width, height, _ = term.GetSize(int(f.Fd()))
	}
	return width, height
}

// Width is that of [Printer.Size].
func (p *Printer) Width() int {
	width, _ := p.Size()
	return width
}

// Printf prints one or more lines of this program's words. Each argument that is text
// becomes one line ([printable]), so that it forges no line of its own.
func (p *Printer) Printf(format string, args ...any) error {
	for i, arg := range args {
		switch v := arg.(type) {
		case Styled:
			args[i] = p.mark(v)
		case error:
			args[i] = display.PrintableError(v)
		case fmt.Stringer:
			args[i] = display.Printable(v.String())
		default:
			if text := reflect.ValueOf(arg); text.Kind() == reflect.String {
				args[i] = display.Printable(text.String())
			}
		}
	}
	if !p.Coloured {
		_, err := fmt.Fprintf(p.Lines(), format, args...)
		return err
	}
	_, err := io.WriteString(p.Raw(), paint(fmt.Sprintf(format, args...)))
	return err
}

// Doing shows a long operation on the terminal until the returned function is called. It is erased
// then, so it is not for a file.
func (p *Printer) Doing(what string) (ended func()) {
	const soon = 200 * time.Millisecond
	var mu sync.Mutex
	shown, over := 0, false
	timer := time.AfterFunc(soon, func() {
		mu.Lock()
		defer mu.Unlock()
		if text := display.ASCII(what) + " ..."; !over {
			if width := p.Width(); width > 0 {
				text = display.Shorten(text, max(width-1, 3)) // a line that wraps would remain
			}
			shown, _ = io.WriteString(p.Raw(), "\r"+text)
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		if over = true; shown > 0 {
			_, _ = io.WriteString(p.Raw(), "\r"+strings.Repeat(" ", shown-1)+"\r")
		}
	}
}

// Lines returns where text goes that has lines of its own, such as help, a log record or a
// JSON document. Characters that a terminal might obey are escaped, as in JSON, but for
// line breaks and tabs.
func (p *Printer) Lines() io.Writer { return (*lineWriter)(p) }

type lineWriter Printer

func (p *lineWriter) Write(text []byte) (int, error) {
	obeyed := func(c byte) bool { return c != '\n' && c != '\t' && (c < ' ' || c > '~') }
	clean := text
	if slices.ContainsFunc(text, obeyed) {
		clean = display.PrintableJSON(text, '\n', '\t')
	}
	_, err := (*rawWriter)(p).Write(clean)
	return len(text), err
}

// Exact returns where the bytes of a result go: to a file or a pipe as they are. To a
// terminal they go as lines, which changes no value of a JSON document.
func (p *Printer) Exact() io.Writer {
	if p.Terminal {
		return p.Lines()
	}
	return p.Raw()
}

// Raw returns the writer below, for control characters of this program's own. The first
// error is remembered, so that a result that was lost, on a full disk for example, is
// never taken for a success.
func (p *Printer) Raw() io.Writer { return (*rawWriter)(p) }

type rawWriter Printer

func (p *rawWriter) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.to.Write(text)
	if p.err == nil {
		p.err = err
	}
	return n, err
}

// PrintableLines returns the lines of s, each printable, without empty ones at the end.
func PrintableLines(s string) []string {
	s = strings.TrimRight(s, "\r\n")
	if s == "" {
		return nil
	}
	return strings.Split(display.PrintableText(s), "\n")
}

// Indented is PrintableLines for text below an error: no line of it can be mistaken for an error or
// a hint of this program.
func Indented(s string) []string {
	lines := PrintableLines(s)
	for i, line := range lines {
		lines[i] = "  " + line
	}
	return lines
}

// Style is the appearance of a word on a terminal. It only repeats the meaning of the word, so
// nothing is lost without colours. NO_COLOR and TERM=dumb turn it off.
type Style string

// The styles, as parameters of SGR (ECMA-48, 8.3.117).
const (
	Plain  Style = ""
	Strong Style = "1"
	Faint  Style = "2"
	Bad    Style = "31" // failed, invalid
	Good   Style = "32" // as it should be
	Middle Style = "33" // neither
	Aside  Style = "36" // what to do next
)

// Styled is an argument of [Printer.Printf] that has a style. Its text is escaped as that of
// any other argument.
type Styled struct {
	Style Style
	Text  string
}

// Of returns a text in a style.
func (s Style) Of(text string) Styled { return Styled{s, text} }

// StatusStyle returns the style of the state of a run, of a verdict or of a finding.
func StatusStyle(status string) Style {
	switch status {
	case "completed", "valid", "identical", "ok":
		return Good
	case "failed", "invalid", "diverged", "bad":
		return Bad
	}
	return Middle
}

// coloured reports whether a terminal is to be given colours.
func coloured() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// A Styled text is between two runes while a line is made. They are of the private use area,
// which is never printable, so no other text has them once it is escaped.
const (
	styleBegins = '\ue000'
	styleEnds   = '\ue001'
)

// mark returns a Styled text for a line that ends in [Printer.paint].
func (p *Printer) mark(s Styled) string {
	if !p.Coloured || s.Style == Plain {
		return display.Printable(s.Text)
	}
	return string(styleBegins) + string(s.Style) + "m" + display.Printable(s.Text) + string(styleEnds)
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

// Head prints a named text, on lines below each other.
func (p *Printer) Head(name string, look Style, text string) {
	p.Printf("%s", Styled{look, fmt.Sprintf("%-*s", headIndent, name)})
	lines := PrintableLines(text)
	if len(lines) == 0 {
		lines = []string{""}
	}
	for i, line := range lines {
		for j, part := range p.Wrap(line, headIndent) {
			p.Printf("%*s%s\n", min(i+j, 1)*headIndent, "", part)
		}
	}
}

// Wrap returns the lines of a text that begins at a column of a terminal, or one line if there is
// no terminal, or too narrow a one.
func (p *Printer) Wrap(text string, column int) []string {
	if width := p.Width() - column; width >= minRoom {
		return wrapped(display.Printable(text), width)
	}
	return []string{text}
}

// wrapped returns the lines of a text, each of at most width characters. Only words that are longer than
// a line are broken.
func wrapped(text string, width int) (lines []string) {
	rest := []rune(text)
	for len(rest) > width {
		cut := width
		for cut > 0 && rest[cut-1] != ' ' {
			cut--
		}
		if word := rest[cut:]; len(word) > width && !slices.Contains(word[:width+1], ' ') {
			cut = width
		}
		if line := string(rest[:cut]); strings.TrimSpace(line) != "" { // or it is the indent of a long word
			lines = append(lines, line)
		}
		rest = rest[cut:]
	}
	return append(lines, string(rest))
}

// ReadHidden reads a line from a terminal without echo. When ctx ends, for instance by Ctrl-C, echo
// is restored; the reader, which cannot be stopped, stays until the process ends.
func ReadHidden(ctx context.Context, terminal *os.File) ([]byte, error) {
	fd := int(terminal.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, err
	}
	line, err := await.Do(ctx, func() ([]byte, error) { return term.ReadPassword(fd) })
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), term.Restore(fd, before))
	}
	return line, err
}

// headIndent is where the texts of heads begin, and minRoom how many characters a line must have room
// for if a text is not to begin at its left.
const (
	headIndent = 9
	minRoom    = 30
)
