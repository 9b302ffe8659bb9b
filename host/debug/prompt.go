package debug

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/terminal"
)

// Prompt is the line prompt of one session. Its commands are those of gdb and rr.
type Prompt struct {
	Stdin          io.Reader
	Stdout, Stderr *terminal.Printer
	Session        *Session
	Files          *Files

	program []string // lines of the script that the call got as its input
	frame   int      // of the last stop's frames
	frames  []Frame
	marks   map[string]uint64
	listed  int // the last line that list has printed
}

// command is one command of the prompt.
type command struct {
	name  string // and shorter names that mean it although they begin others
	args  string
	usage string
	do    func(p *Prompt, ctx context.Context, args string) error
}

// help describes the command on a line of 80 characters.
func (c command) help() string {
	return fmt.Sprintf("%-30s%s", strings.ReplaceAll(c.name, " ", ", ")+" "+c.args, c.usage)
}

var errLeave = errors.New("quit")

// commands returns the commands of the prompt.
func commands() []command {
	move := func(m Motion, back bool) func(*Prompt, context.Context, string) error {
		return func(p *Prompt, ctx context.Context, args string) error { return p.move(ctx, m, back, args) }
	}
	return []command{
		{"step s", "[N]", "to the next line, also in a called function", move(Line, false)},
		{"next n", "[N]", "to the next line of this function", move(Over, false)},
		{"finish fin", "", "to the return of this function", move(Out, false)},
		{"stepi si", "[N]", "to the next instruction", move(Instruction, false)},
		{"continue c", "[N]", "to the next breakpoint, or the end", move(Continue, false)},
		{"reverse-step rs", "[N]", "back to the line before, also in a called function", move(Line, true)},
		{"reverse-next rn", "[N]", "back to the line before of this function", move(Over, true)},
		{"reverse-finish rf", "", "back to the call of this function", move(Out, true)},
		{"back reverse-stepi rsi", "[N]", "back one instruction", move(Instruction, true)},
		{"reverse-continue rc", "[N]", "back to the breakpoint before, or the start", move(Continue, true)},
		{"until u", "fuel N", "to where N units of fuel are spent", (*Prompt).until},
		{"goto", "MARK|N|end", "to a mark, or to the instruction of a number", (*Prompt).jump},
		{"break b", "PLACE", "FILE:LINE, FUNCTION, 0xOFFSET, effect [X], fuel N", (*Prompt).breakAt},
		{"watch", "WHAT [BYTES]", "stop when a variable or an address is written", (*Prompt).watch},
		{"last-write lw", "WHAT [BYTES]", "back to the last write of a variable or an address", (*Prompt).lastWrite},
		{"delete d", "[N]", "remove a breakpoint, or all", (*Prompt).remove},
		{"bt where backtrace", "[all]", "the stack; all: with the interpreter's own", (*Prompt).stack},
		{"frame f", "N", "choose a function of the stack", (*Prompt).choose},
		{"up", "", "choose the caller", func(p *Prompt, ctx context.Context, _ string) error { return p.choose(ctx, strconv.Itoa(p.frame+1)) }},
		{"down", "", "choose the function that it called", func(p *Prompt, ctx context.Context, _ string) error { return p.choose(ctx, strconv.Itoa(p.frame-1)) }},
		{"locals", "[all]", "the variables; all: also WebAssembly's locals", (*Prompt).locals},
		{"print p", "WHAT", "a variable, as in list.items[3]", (*Prompt).print},
		{"x", "WHAT [BYTES]", "memory", (*Prompt).memory},
		{"disassemble", "", "the instructions here", (*Prompt).disassemble},
		{"effects", "", "the host calls of the call, and where it made them", (*Prompt).effects},
		{"mark", "[NAME]", "name this place for goto", (*Prompt).mark},
		{"list l", "[LINE]", "the source, if the file is below --source", (*Prompt).list},
		{"info i", "", "this place, breakpoints and marks", (*Prompt).info},
		{"help h", "[COMMAND]", "this list, or a line of it", (*Prompt).help},
		{"quit q", "", "leave", func(*Prompt, context.Context, string) error { return errLeave }},
	}
}

// findCommand returns the command that a word names or begins, if no other does.
func findCommand(word string) (command, error) {
	var found []command
	for _, c := range commands() {
		names := strings.Fields(c.name)
		if slices.Contains(names, word) {
			return c, nil
		}
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, word) }) {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		var names []string
		for _, c := range commands() {
			names = append(names, strings.Fields(c.name)...)
		}
		if near := display.Nearest(word, names); near != "" {
			return command{}, fmt.Errorf("unknown command %q; did you mean %s?", word, near)
		}
		return command{}, fmt.Errorf("unknown command %q; type help", word)
	case 1:
		return found[0], nil
	}
	names := lists.Map(found, func(c command) string { return strings.Fields(c.name)[0] })
	return command{}, fmt.Errorf("%q may be %s", word, strings.Join(names, ", "))
}

// Run describes the call of a run, and then reads and executes commands until the input ends. Ctrl-C
// interrupts a motion and keeps the session; SIGTERM ends it with an error. If the commands do not come
// from a terminal, ok reports whether all of them succeeded. sources reports whether files of the module are there.
func (p *Prompt) Run(ctx context.Context, events []event.Event, call span.Span, sources bool) (ok bool, err error) {
	p.program, p.marks = programOf(events[call.First-1]), map[string]uint64{}
	p.greet(events[0].RunID, call, sources)
	between := make(chan os.Signal, 1) // commands Ctrl-C does nothing
	signal.Notify(between, os.Interrupt)
	defer signal.Stop(between)
	ctx, stop := signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGTERM) // the first Ctrl-C has ended the other
	defer stop()
	next, typed := p.reader()
	failed := false
	for last := ""; ; {
		line, err := next()
		if errors.Is(err, bufio.ErrBufferFull) {
			failed = true
			p.Stderr.Printf("%s a command of more than 64 KiB; it is ignored\n", terminal.Bad.Of("error:"))
			continue
		} else if err != nil {
			break
		}
		line = strings.TrimSpace(line)
		if line = cmp.Or(line, last); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		last = line
		if !typed {
			p.Stdout.Printf("%s %s\n", terminal.Faint.Of("(debug)"), line)
		}
		moving, stopped := signal.NotifyContext(ctx, os.Interrupt)
		err = p.obey(moving, line)
		stopped()
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.Is(err, errLeave):
			return true, nil
		case err != nil:
			failed = true
			p.Stderr.Printf("%s %s\n", terminal.Bad.Of("error:"), err)
		}
	}
	return typed || !failed, nil
}

// obey executes one command.
func (p *Prompt) obey(ctx context.Context, line string) error {
	word, args, _ := strings.Cut(line, " ")
	if rest, ok := strings.CutPrefix(line, "reverse "); ok { // as in gdb's "reverse step"
		word, args, _ = strings.Cut("reverse-"+strings.TrimSpace(rest), " ")
	}
	if base, format, ok := strings.Cut(word, "/"); ok && base == "x" { // x/16 ADDRESS
		word, args = "x", args+" "+strings.TrimRight(format, "abcdhiostuwxz")
	}
	c, err := findCommand(word)
	if err != nil {
		return err
	}
	return c.do(p, ctx, strings.TrimSpace(args))
}

// reader returns a function that reads the next line: from a terminal, with history.
func (p *Prompt) reader() (next func() (string, error), typed bool) {
	in, ok := p.Stdin.(*os.File)
	if !ok || !terminal.Is(in) || !p.Stdout.Terminal {
		lines := bufio.NewReaderSize(p.Stdin, 64<<10)
		return func() (string, error) {
			line, more, err := lines.ReadLine()
			if err != nil || !more {
				return string(line), err
			}
			for more && err == nil {
				_, more, err = lines.ReadLine()
			}
			return "", bufio.ErrBufferFull
		}, false
	}
	line := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{clearing{in}, p.Stdout.Raw()}, "(debug) ")
	return func() (string, error) {
		state, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return "", err
		}
		defer term.Restore(int(in.Fd()), state)
		if width, height := p.Stdout.Size(); width > 0 {
			_ = line.SetSize(width, height)
		}
		return line.ReadLine()
	}, true
}

// clearing reads Ctrl-C as Ctrl-U: it clears the line, and does not leave.
type clearing struct{ io.Reader }

func (c clearing) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	for i, key := range b[:n] {
		if key == 3 {
			b[i] = 21
		}
	}
	return n, err
}

// greet describes the call, and where the session begins.
func (p *Prompt) greet(runID string, call span.Span, sources bool) {
	_, end, _ := p.Session.Position()
	text, diverged := p.Session.Outcome()
	look := terminal.Good
	if call.Error != "" || diverged {
		look = terminal.Bad
	}
	p.Stdout.Head("run", terminal.Plain, runID)
	p.Stdout.Head("call", terminal.Plain, fmt.Sprintf("%s %s, attempt %d, event %d", display.Printable(call.Name), display.Printable(call.CallID), call.Attempt, call.First))
	p.Stdout.Head("outcome", look, display.Shorten(display.Printable(text), 300))
	p.Stdout.Head("size", terminal.Plain, fmt.Sprintf("%s instructions, fuel %s, %s; lines: %s", display.Digits(end), display.Digits(call.Fuel), display.Plural(len(p.Session.Effects()), "effect"), cmp.Or(p.Session.Source(), "none")))
	if lines := p.Session.Source(); !sources && (lines == "DWARF" || lines == "Go") { // the files of a script are not known beforehand
		p.Stdout.Head("source", terminal.Plain, "no file of the module is below "+p.Files.Folder()+": --source FOLDER")
	}
	p.stopped("")
}

// stopped prints where the session is, and why.
func (p *Prompt) stopped(why string) {
	p.frames, p.listed = p.Session.Frames(), 0
	p.frame = max(slices.IndexFunc(p.frames, func(f Frame) bool { return f.Own }), 0)
	if at, end, _ := p.Session.Position(); why == "" && at == end {
		why = string(Ending)
	}
	p.here(why)
}

func (p *Prompt) move(ctx context.Context, m Motion, back bool, args string) error {
	n, err := strconv.Atoi(cmp.Or(args, "1"))
	if err != nil || n < 1 {
		return fmt.Errorf("%q is not how often", args)
	}
	var stop Stop
	for range n {
		if stop, err = p.Session.Move(ctx, m, back); err != nil {
			return err
		}
		if stop.Reason != Stepped && (m != Continue || stop.Breakpoint == nil) {
			break
		}
	}
	return p.report(stop, nil)
}

// report prints why a motion ended, and where.
func (p *Prompt) report(stop Stop, err error) error {
	if err != nil {
		return err
	}
	why := string(stop.Reason)
	switch {
	case stop.Reason == Stepped:
		why = ""
	case stop.Breakpoint != nil:
		why = fmt.Sprintf("%s %d: %s", stop.Reason, stop.Breakpoint.ID, stop.Breakpoint.What)
	case stop.Reason == Ending:
		text, _ := p.Session.Outcome()
		why += ": " + display.Shorten(display.Printable(text), 200)
	}
	p.stopped(why)
	if b := stop.Breakpoint; b != nil && b.Size > 0 {
		p.Stdout.Printf("%s\n", hexLine(b.Address, p.Session.Memory(b.Address, min(b.Size, 16))))
	}
	return nil
}

func (p *Prompt) until(ctx context.Context, args string) error {
	word, text, _ := strings.Cut(args, " ")
	fuel, err := display.ParseCount(strings.TrimSpace(text), display.FuelUnits())
	if word != "fuel" || err != nil {
		return errors.New("until fuel N, such as: until fuel 10M")
	}
	return p.report(p.Session.GotoFuel(ctx, fuel))
}

func (p *Prompt) jump(ctx context.Context, args string) error {
	at, ok := p.marks[args]
	if _, end, _ := p.Session.Position(); !ok && args == "end" {
		at, ok = end, true
	}
	if !ok {
		var err error
		number := strings.ReplaceAll(args, ",", "")
		if at, err = display.ParseCount(number, display.FuelUnits()); err != nil && number != "0" {
			return fmt.Errorf("there is no mark %q", args)
		}
	}
	return p.report(p.Session.Goto(ctx, at))
}

func (p *Prompt) breakAt(_ context.Context, args string) error {
	b, err := p.Session.Break(cmp.Or(args, fmt.Sprintf("%#x", p.chosen().Offset)))
	if err != nil {
		return err
	}
	where := ""
	switch {
	case b.Unchecked && len(b.Lines) > 0:
		where = ", if a line of the script begins there"
	case b.Unchecked:
		where = ", once the script calls it"
	case len(b.Lines) > 0 && b.Lines[0].File != "":
		where = " at " + placeName(b.Lines[0])
	}
	p.Stdout.Printf("breakpoint %d: %s%s\n", b.ID, b.What, where)
	return nil
}

// lowAddress is where the memory of a module begins that compilers use.
const lowAddress = 1024

// area parses WHAT [BYTES].
func (p *Prompt) area(args string, otherwise uint32) (address, size uint32, err error) {
	words := strings.Fields(args)
	if len(words) > 1 {
		n, err := strconv.ParseUint(words[len(words)-1], 0, 32)
		if err != nil {
			return 0, 0, fmt.Errorf("%q is not a number of bytes", words[len(words)-1])
		}
		size, words = uint32(n), words[:len(words)-1]
	}
	what := strings.Join(words, " ")
	v, err := p.Session.Eval(p.chosen(), what)
	if err == nil {
		err = v.NotInMemory(what)
	}
	if err == nil && strings.HasPrefix(what, "local") && v.Address < lowAddress {
		p.Stdout.Printf("%s is %#x, hardly an address: a local of WebAssembly is not in memory itself\n", what, v.Address)
	}
	return v.Address, cmp.Or(size, otherwise, v.Size), err
}

func (p *Prompt) watch(_ context.Context, args string) error {
	address, size, err := p.area(args, 0)
	if err != nil {
		return err
	}
	b, err := p.Session.Watch(address, size)
	if err == nil {
		p.Stdout.Printf("watchpoint %d: %s\n", b.ID, b.What)
	}
	return err
}

func (p *Prompt) lastWrite(ctx context.Context, args string) error {
	address, size, err := p.area(args, 0)
	if err != nil {
		return err
	}
	stop, err := p.Session.LastWrite(ctx, address, size)
	switch {
	case err != nil:
		return err
	case stop.Reason == Beginning:
		p.Stdout.Printf("the call has not written there before; it began with\n")
	case stop.Reason == Written:
		p.stopped(fmt.Sprintf("before the last write of %#x", address))
	}
	p.Stdout.Printf("%s\n", hexLine(address, p.Session.Memory(address, min(size, 16))))
	return nil
}

func (p *Prompt) remove(_ context.Context, args string) error {
	found := args == ""
	for _, b := range p.Session.Breakpoints() {
		if args == "" || args == strconv.Itoa(b.ID) {
			found = p.Session.Delete(b.ID)
		}
	}
	if !found {
		return fmt.Errorf("there is no breakpoint %s", args)
	}
	return nil
}

func (p *Prompt) chosen() Frame {
	if p.frame < len(p.frames) {
		return p.frames[p.frame]
	}
	return Frame{}
}

func (p *Prompt) mark(_ context.Context, args string) error {
	args = cmp.Or(args, strconv.Itoa(len(p.marks)+1))
	p.marks[args], _, _ = p.Session.Position()
	p.Stdout.Printf("mark %s; back here: goto %s\n", args, args)
	return nil
}

func (p *Prompt) help(_ context.Context, args string) error {
	if args != "" {
		c, err := findCommand(args)
		if err == nil {
			p.Stdout.Printf("%s\n", c.help())
		}
		return err
	}
	for _, c := range commands() {
		p.Stdout.Printf("%s\n", c.help())
	}
	p.Stdout.Printf("\nAn empty line repeats. Unambiguous beginnings of commands suffice.\n")
	return nil
}

// Eval returns the variable that an expression names in a frame. An expression is the name of a
// variable, followed by fields and elements, as in list.items[3], or an address, which means the
// four bytes there: a number, such as 0x1000, or a local of WebAssembly with an offset, as in local2+8.
// "&" before it takes the address.
func (s *Session) Eval(f Frame, expression string) (Variable, error) {
	text := strings.TrimSpace(expression)
	name, offset, _ := strings.Cut(text, "+")
	locals := s.Slots(f)
	if i := slices.IndexFunc(locals, func(v Variable) bool { return v.Name == strings.TrimSpace(name) }); i >= 0 {
		n, err := strconv.ParseUint(cmp.Or(strings.TrimSpace(offset), "0"), 0, 32)
		if offset == "" || err != nil {
			return locals[i], err
		}
		text = fmt.Sprint(locals[i].Address + uint32(n))
	}
	if rest, ok := strings.CutPrefix(text, "&"); ok {
		v, err := s.Eval(f, rest)
		if err == nil {
			err = v.NotInMemory(rest)
		}
		return Variable{Name: text, Type: "address", Value: fmt.Sprintf("%#x", v.Address), Address: v.Address, Size: v.Size}, err
	}
	if address, err := strconv.ParseUint(text, 0, 32); err == nil {
		b := s.Memory(uint32(address), 4)
		if len(b) < 4 {
			return Variable{}, fmt.Errorf("%s is not in memory, which has %d bytes", text, s.rec.Size())
		}
		n := binary.LittleEndian.Uint32(b)
		return Variable{Name: strings.TrimSpace(expression), Type: "u32", Value: fmt.Sprintf("%d (%#x)", n, n), Address: uint32(address), Size: 4}, nil
	}
	at := Variable{Children: append(s.Locals(f), s.variables(f)...)}
	path := strings.FieldsFunc(strings.NewReplacer("->", ".", "[", ".[").Replace(text), func(r rune) bool { return r == '.' })
	for _, part := range path {
		i := slices.IndexFunc(at.Children, func(v Variable) bool { return v.Name == part || v.Name == strings.Trim(part, "[]") })
		if i < 0 {
			return Variable{}, fmt.Errorf("there is no %q in %s; see: locals", part, f.Function)
		}
		at = at.Children[i]
	}
	if len(path) == 0 {
		return Variable{}, fmt.Errorf("name a variable or an address")
	}
	return at, nil
}
