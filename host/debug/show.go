package debug

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/runtime/agentfile"
)

// here prints the chosen frame and its line.
func (p *Prompt) here(why string) {
	_, _, fuel := p.Session.Position()
	if why != "" {
		p.Stdout.Printf("%s, ", terminal.Strong.Of(why))
	}
	p.Stdout.Printf("fuel %s\n", display.Digits(fuel))
	if p.frame < len(p.frames) {
		f := p.frames[p.frame]
		p.Stdout.Printf("%s\n", p.describe(p.frame))
		if text := p.sourceLine(f.File, f.Line, ""); text != "" {
			p.Stdout.Printf("%s\n", text)
		}
	}
}

// describe is one line of the stack.
func (p *Prompt) describe(n int) string {
	f := p.frames[n]
	where := fmt.Sprintf(" at %s", placeName(f.Place))
	switch {
	case f.File == "" && f.Script:
		where = ""
	case f.File == "":
		where = fmt.Sprintf(" at %#x", f.Offset)
	case f.Inlined:
		where += " (inlined)"
	}
	return p.cut(fmt.Sprintf("#%-2d %s%s", n, cmp.Or(functionName(f.Function), "?"), where))
}

// functionName shortens the name of a function: to the last part of its package's path, and without
// what its type parameters stand for.
func functionName(name string) string {
	generic := strings.IndexAny(name, "[<")
	if generic <= 0 {
		return name[strings.LastIndexByte(name, '/')+1:]
	}
	head := name[:generic]
	tail := name[strings.LastIndexAny(name, "]>")+1:]
	if strings.ContainsAny(tail, " \"") { // the name was cut
		tail = ""
	}
	return head[strings.LastIndexByte(head, '/')+1:] + "[...]" + tail
}

// cut shortens a line of hostile text to the width of the terminal.
func (p *Prompt) cut(line string) string {
	return display.Shorten(display.Printable(line), cmp.Or(p.Stdout.Width(), 120))
}

// placeName is a line as FILE:LINE, with the last folders of a long path.
func placeName(f Place) string {
	name := f.File
	for len(name) > 40 && strings.Contains(name, "/") {
		_, name, _ = strings.Cut(name, "/")
	}
	if f.Line == 0 {
		return name
	}
	return fmt.Sprintf("%s:%d", name, f.Line)
}

// lines returns the source that a file of the module, or of the script, has.
func (p *Prompt) lines(file string) []string {
	if file == "<input>" || file == "<program>" {
		return p.program
	}
	_, lines := p.Files.Lines(file)
	return lines
}

// programOf returns the lines of the program of run_js or run_py, in the input of a call, as their
// interpreters number them: run_js makes it the body of a function that begins two lines before.
func programOf(scheduled event.Event) []string {
	call, err := scheduled.AsToolCallScheduled()
	var input struct{ Code string }
	if doc, render := canon.Render(call.Args); err != nil || render != nil || json.Unmarshal(doc, &input) != nil {
		return nil
	}
	lines := strings.Split(input.Code, "\n")
	if call.ToolName == agentfile.Programs["javascript"] {
		lines = append(make([]string, programBegins), lines...)
	}
	return lines
}

// sourceLine is a line with its number and a mark, or nothing if it is not known.
func (p *Prompt) sourceLine(file string, line int, mark string) string {
	if lines := p.lines(file); 0 < line && line <= len(lines) {
		return p.cut(fmt.Sprintf("%-6s%s", strconv.Itoa(line)+mark, strings.ReplaceAll(lines[line-1], "\t", "    ")))
	}
	return ""
}

func (p *Prompt) stack(_ context.Context, args string) error {
	const most = 100
	hidden, shown, repeated := 0, 0, 0
	script := len(p.frames) > 0 && p.frames[0].Script
	for n, f := range p.frames {
		if script && !f.Script && args != "all" || shown >= most && args != "all" {
			hidden++
			continue
		}
		same := func(other Frame) bool { return other.Place == f.Place && other.Offset == f.Offset }
		if n > 1 && same(p.frames[n-1]) && same(p.frames[n-2]) { // of a recursion
			if repeated++; n+1 == len(p.frames) || !same(p.frames[n+1]) {
				p.Stdout.Printf("     the same %s more\n", display.Plural(repeated, "time"))
				repeated = 0
			}
			continue
		}
		shown++
		p.Stdout.Printf("%s\n", p.describe(n))
	}
	if hidden > 0 {
		p.Stdout.Printf("%s more; all of them: bt all\n", display.Plural(hidden, "function"))
	}
	return nil
}

func (p *Prompt) choose(_ context.Context, args string) error {
	n, err := strconv.Atoi(args)
	if err != nil || n < 0 || n >= len(p.frames) {
		return errors.New("the stack has no such function; see: bt")
	}
	p.frame, p.listed = n, 0
	p.here("")
	return nil
}

func (p *Prompt) locals(_ context.Context, args string) error {
	all, slots := p.Session.Locals(p.chosen()), p.Session.Slots(p.chosen())
	for _, v := range all {
		v.Children = nil // print has them
		p.variable(v, 0)
	}
	if len(all) == 0 && len(slots) == 0 {
		p.Stdout.Printf("no variable is known here; try bt and frame N, effects, or x ADDRESS\n")
	} else if args != "all" && len(slots) > 0 {
		p.Stdout.Printf("%s of WebAssembly: locals all\n", display.Plural(len(slots), "local"))
		return nil
	}
	for _, v := range slots {
		p.variable(v, 0)
	}
	return nil
}

// variable prints a variable and its parts.
func (p *Prompt) variable(v Variable, depth int) {
	const most = 40
	p.Stdout.Printf("%s\n", p.cut(fmt.Sprintf("%*s%s %s = %s", 2*depth, "", v.Name, v.Type, v.Value)))
	for _, c := range v.Children[:min(len(v.Children), most)] {
		p.variable(c, depth+1)
	}
}

func (p *Prompt) print(_ context.Context, args string) error {
	v, err := p.Session.Eval(p.chosen(), args)
	if err == nil {
		p.variable(v, 0)
	}
	return err
}

func (p *Prompt) memory(_ context.Context, args string) error {
	const most = 4096
	address, size, err := p.area(args, 64)
	if err != nil {
		return err
	}
	b := p.Session.Memory(address, min(size, most))
	for len(b) > 0 {
		n := min(16, len(b))
		p.Stdout.Printf("%s\n", hexLine(address, b[:n]))
		address, b = address+16, b[n:]
	}
	return nil
}

// hexLine is up to 16 bytes as a line.
func hexLine(address uint32, b []byte) string {
	text := make([]byte, len(b))
	for i, c := range b {
		if text[i] = c; c < ' ' || c > '~' {
			text[i] = '.'
		}
	}
	return fmt.Sprintf("%08x  %-47s  %s", address, fmt.Sprintf("% x", b), text)
}

func (p *Prompt) disassemble(context.Context, string) error {
	f := p.chosen()
	const around = 8
	all := p.Session.Disassemble(f)
	at := slices.IndexFunc(all, func(c Code) bool { return c.Offset >= f.Offset })
	for i := max(at-around, 0); i < min(at+around, len(all)); i++ {
		mark := " "
		if i == at {
			mark = ">"
		}
		p.Stdout.Printf("%s %#08x  %s\n", mark, all[i].Offset, all[i].Text)
	}
	return nil
}

func (p *Prompt) effects(context.Context, string) error {
	at, _, _ := p.Session.Position()
	passed := false
	for n, e := range p.Session.Effects() {
		mark := " "
		if !passed && e.At >= at {
			mark, passed = ">", true
		}
		p.Stdout.Printf("%s\n", p.cut(fmt.Sprintf("%s%3d  event %-5d fuel %-12s %s", mark, n+1, e.Seq, display.Digits(e.Fuel), e.Text)))
	}
	if len(p.Session.Effects()) == 0 {
		p.Stdout.Printf("the call has no effects\n")
	}
	return nil
}

func (p *Prompt) list(_ context.Context, args string) error {
	f := p.chosen()
	const size = 10
	from := max(f.Line-size/2, 1)
	if p.listed > 0 {
		from = p.listed + 1
	}
	if n, err := strconv.Atoi(args); err == nil {
		from = max(n-size/2, 1)
	}
	lines := p.lines(f.File)
	switch {
	case f.File == "":
		return errors.New("no source line is known here")
	case lines == nil:
		return fmt.Errorf("%s is not below the folder of --source", f.File)
	}
	for n := from; n < from+size && n <= len(lines); n++ {
		mark := ""
		if n == f.Line {
			mark = ">"
		}
		p.Stdout.Printf("%s\n", p.sourceLine(f.File, n, mark))
		p.listed = n
	}
	return nil
}

func (p *Prompt) info(_ context.Context, args string) error {
	at, end, fuel := p.Session.Position()
	p.Stdout.Printf("instruction %s of %s, fuel %s\n", display.Digits(at), display.Digits(end), display.Digits(fuel))
	for _, b := range p.Session.Breakpoints() {
		kind := Hit
		if b.Size > 0 {
			kind = Written
		}
		p.Stdout.Printf("%s %d: %s\n", kind, b.ID, b.What)
	}
	for _, name := range slices.Sorted(maps.Keys(p.marks)) {
		p.Stdout.Printf("mark %s: instruction %s\n", name, display.Digits(p.marks[name]))
	}
	return nil
}

const (
	endedTimeout = 30 * time.Second // of a look at how a call ended, which executes it again
	endedFuel    = 300_000_000      // of a call that is executed again in a second or two
	endedFrames  = 8
)

// Ended returns the functions in which a run left its recording at the event left or, if that is 0, in which
// the call whose failure ended it was stopped or, if it went on, the last call that was. Each is a line
// "at FUNCTION (FILE:LINE)", innermost first and with its instruction. There is nothing to add if the error
// has the line already, nor if it takes too long to find out. A module in o.Other replaces those of the run.
func Ended(ctx context.Context, log eventlog.EventLog, runID string, left uint64, o Options) (lines []string) {
	events, err := log.Read(ctx, runID)
	if err != nil {
		return nil
	}
	at, said := strconv.FormatUint(left, 10), ""
	if 0 < left && left <= uint64(len(events)) && events[left-1].Kind == event.KindToolCallScheduled { // by the call around it
		if p, err := events[left-1].AsToolCallScheduled(); err == nil && p.ParentID != "" {
			at = p.ParentID
		}
	} else if left == 0 {
		run, err := span.Of(events)
		if err != nil {
			return nil
		}
		within := []string{event.ErrorPanic, event.ErrorFuel, event.ErrorLimit, event.ErrorTimeout} // its code is where a call that failed like that was stopped
		for i, s := range run.Spans {
			said += s.Error
			if s.Kind == span.Call && slices.Contains(within, s.ErrorType) && (i == run.Cause || run.State != span.Failed) {
				at = strconv.FormatUint(s.Last, 10)
			}
		}
	}
	if at == "0" {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, endedTimeout)
	defer stop()
	target, err := Find(events, at)
	if err != nil || target.Call.Fuel > endedFuel {
		return nil
	}
	s, err := Open(ctx, events, target, o)
	if err != nil {
		return nil
	}
	if left > 0 && s.Returned() {
		return nil
	} else if _, end, _ := s.Position(); left > 0 {
		if _, err := s.Goto(ctx, end); err != nil {
			return nil
		}
	}
	frames := s.Frames()
	again := 0 // recursion that the last line stands for
	users := func(f Frame) bool { return f.File != "" && !library().MatchString(f.File) }
	own := slices.ContainsFunc(frames, users)
	met := false // a function of the user
	for i, f := range frames {
		met = met || users(f)
		if f.Script != frames[0].Script || f.Function == "" && f.Line == 0 || own && library().MatchString(f.File) || own && !met && i > 0 {
			continue // the interpreter itself, or a library between the user's code and the place where it was stopped
		}
		text := "at " + display.Shorten(f.Function, 80)
		if f.Line > 0 {
			place := fmt.Sprintf("%s:%d", f.File, f.Line)
			if strings.Contains(said, path.Base(place)) {
				return nil
			}
			text += " (" + place + ")"
		}
		if text = display.Printable(text); len(lines) > 0 && frames[i-1].Place == f.Place {
			again++
			lines[len(lines)-1] = text + ", " + display.Plural(again+1, "call")
			continue
		}
		if again = 0; len(lines) == endedFrames {
			break
		}
		if len(lines) == 0 && !f.Script {
			text += instruction(s, f)
		}
		lines = append(lines, text)
	}
	return lines
}

// library matches the files that come with a compiler, such as the standard library of Rust. Those of a
// user may be absolute or relative.
var library = lazy.Regexp(`^/rustc/|/rustc-[0-9.]+/|/rustlib/|/include/c\+\+/`)

// instruction returns the instruction at which a function is, and its offset in the module.
func instruction(s *Session, f Frame) string {
	for _, c := range s.Disassemble(f) {
		if c.Offset == f.Offset {
			return fmt.Sprintf(": %s at %#x", c.Text, c.Offset)
		}
	}
	return ""
}
