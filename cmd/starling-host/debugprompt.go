package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/debug"
	"github.com/starling-host/starling/internal/display"
)

// prompt is the line prompt of one session.
type prompt struct {
	app     *app
	s       *debug.Session
	target  debug.Target
	started string
	files   *debug.Files
	frame   int // of the last stop's frames
	frames  []debug.Frame
	marks   map[string]uint64
	listed  int // the last line that list has printed
	failed  bool
}

func newPrompt(a *app, s *debug.Session, events []event.Event, t debug.Target, source string) *prompt {
	return &prompt{app: a, s: s, target: t, started: events[0].RunID, files: debug.NewFiles(source), marks: map[string]uint64{}}
}

// debugCommand is one command of the prompt.
type debugCommand struct {
	name  string // and shorter names that mean it although they begin others
	args  string
	usage string
	do    func(p *prompt, ctx context.Context, args string) error
}

var debugCommands []debugCommand

func init() { // its help lists the commands
	move := func(m debug.Motion, back bool) func(*prompt, context.Context, string) error {
		return func(p *prompt, ctx context.Context, args string) error { return p.move(ctx, m, back, args) }
	}
	debugCommands = []debugCommand{
		{"step s", "[N]", "to the next line, also of a function that is called", move(debug.Line, false)},
		{"next n", "[N]", "to the next line of this function", move(debug.Over, false)},
		{"finish fin", "", "to the return of this function", move(debug.Out, false)},
		{"stepi si", "[N]", "to the next instruction", move(debug.Instruction, false)},
		{"continue c", "[N]", "to the next breakpoint, or the end", move(debug.Continue, false)},
		{"reverse-step rs", "[N]", "back to the line before, also of a function", move(debug.Line, true)},
		{"reverse-next rn", "[N]", "back to the line before of this function", move(debug.Over, true)},
		{"reverse-finish rf", "", "back to the call of this function", move(debug.Out, true)},
		{"back reverse-stepi rsi", "[N]", "back one instruction", move(debug.Instruction, true)},
		{"reverse-continue rc", "[N]", "back to the breakpoint before, or the start", move(debug.Continue, true)},
		{"until u", "fuel N", "to where N units of fuel are spent", (*prompt).until},
		{"goto", "MARK|N|end", "to a mark, or to the instruction of a number", (*prompt).jump},
		{"break b", "PLACE", "FILE:LINE, FUNCTION, 0xOFFSET, effect [NAME|N], fuel N", (*prompt).breakAt},
		{"watch", "WHAT [BYTES]", "stop when memory is written: a variable or an address", (*prompt).watch},
		{"last-write lw", "WHAT [BYTES]", "back to the last write of a variable or an address", (*prompt).lastWrite},
		{"delete d", "[N]", "remove a breakpoint, or all", (*prompt).remove},
		{"bt where backtrace", "[all]", "the stack; all: with the interpreter's own", (*prompt).stack},
		{"frame f", "N", "choose a function of the stack", (*prompt).choose},
		{"up", "", "choose the caller", func(p *prompt, _ context.Context, _ string) error { return p.chooseFrame(p.frame + 1) }},
		{"down", "", "choose the function that it called", func(p *prompt, _ context.Context, _ string) error { return p.chooseFrame(p.frame - 1) }},
		{"locals", "[all]", "the variables here; all: with the locals of WebAssembly", (*prompt).locals},
		{"print p", "WHAT", "a variable, as in list.items[3]", (*prompt).print},
		{"x", "WHAT [BYTES]", "memory", (*prompt).memory},
		{"disassemble", "", "the instructions here", (*prompt).disassemble},
		{"effects", "", "the host calls of the call, and where it made them", (*prompt).effects},
		{"mark", "[NAME]", "name this place for goto", (*prompt).mark},
		{"list l", "[LINE]", "the source, if the file is below --source", (*prompt).list},
		{"info i", "", "this place, breakpoints and marks", (*prompt).info},
		{"help h", "", "this list", (*prompt).help},
		{"quit q", "", "leave", func(*prompt, context.Context, string) error { return io.EOF }},
	}
}

// findDebugCommand returns the command that a word names or begins, if no other does.
func findDebugCommand(word string) (debugCommand, error) {
	var found []debugCommand
	for _, c := range debugCommands {
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
		return debugCommand{}, fmt.Errorf("unknown command %q; type help", word)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, c := range found {
		names = append(names, strings.Fields(c.name)[0])
	}
	return debugCommand{}, fmt.Errorf("%q may be %s", word, strings.Join(names, ", "))
}

// loop reads commands until the input ends. Ctrl-C interrupts a motion and keeps the session.
func (p *prompt) loop(ctx context.Context) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx = context.WithoutCancel(ctx) // the first Ctrl-C ends it
	p.greet()
	next, terminal := p.reader()
	for last := ""; ; {
		line, err := next()
		if err != nil {
			break
		}
		line = strings.TrimSpace(line)
		if line = cmp.Or(line, last); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		last = line
		if !terminal {
			p.app.stdout.printf("%s %s\n", styled{faint, "(debug)"}, line)
		}
		err = p.run(ctx, line, signals)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			p.failed = true
			p.app.stderr.printf("%s %s\n", styled{bad, "error:"}, err)
		}
		select {
		case s := <-signals:
			if s != os.Interrupt {
				return silent(exitCancelled)
			}
		default:
		}
	}
	if p.failed && !terminal {
		return silent(exitFailed)
	}
	return nil
}

// run executes one command, which a signal interrupts.
func (p *prompt) run(ctx context.Context, line string, signals chan os.Signal) error {
	word, args, _ := strings.Cut(line, " ")
	if rest, ok := strings.CutPrefix(line, "reverse "); ok { // as in gdb's "reverse step"
		word, args, _ = strings.Cut("reverse-"+strings.TrimSpace(rest), " ")
	}
	if base, format, ok := strings.Cut(word, "/"); ok && base == "x" { // x/16 ADDRESS
		word, args = "x", args+" "+strings.TrimRight(format, "abcdhiostuwxz")
	}
	c, err := findDebugCommand(word)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case s := <-signals:
			cancel()
			if s != os.Interrupt {
				signals <- s
			}
		case <-ctx.Done():
		}
	}()
	err = c.do(p, ctx, strings.TrimSpace(args))
	cancel()
	<-done
	return err
}

// reader returns a function that reads the next line: from a terminal, with history.
func (p *prompt) reader() (next func() (string, error), terminal bool) {
	in, ok := p.app.stdin.(*os.File)
	if !ok || !isTerminal(in) || !p.app.stdout.terminal {
		scanner := bufio.NewScanner(p.app.stdin)
		return func() (string, error) {
			if !scanner.Scan() {
				return "", cmp.Or(scanner.Err(), io.EOF)
			}
			return scanner.Text(), nil
		}, false
	}
	line := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{clearing{in}, p.app.stdout.raw()}, "(debug) ")
	return func() (string, error) {
		state, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return "", err
		}
		defer term.Restore(int(in.Fd()), state)
		if width, height := p.app.stdout.size(); width > 0 {
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
func (p *prompt) greet() {
	call := p.target.Call
	_, end, _ := p.s.Position()
	text, diverged := p.s.Outcome()
	look := good
	if call.Error != "" || diverged {
		look = bad
	}
	p.app.stdout.printf("run      %s\ncall     %s %s, attempt %d, event %d\n", p.started, call.Name, call.CallID, call.Attempt, call.First)
	p.app.stdout.printf("outcome  %s\n", styled{look, shorten(printable(text), 300)})
	p.app.stdout.printf("size     %s instructions, fuel %s, %s; lines: %s\n", grouped(end), grouped(call.Fuel), plural(len(p.s.Effects()), "effect"), cmp.Or(p.s.Source(), "none"))
	p.stopped("")
}

// stopped prints where the session is, and why.
func (p *prompt) stopped(why string) {
	p.frames, p.listed = p.s.Frames(), 0
	p.frame = max(slices.IndexFunc(p.frames, func(f debug.Frame) bool { return f.Own }), 0)
	if at, end, _ := p.s.Position(); why == "" && at == end {
		why = string(debug.Ending)
	}
	p.here(why)
}

// here prints the chosen frame and its line.
func (p *prompt) here(why string) {
	_, _, fuel := p.s.Position()
	if why != "" {
		p.app.stdout.printf("%s, ", styled{strong, why})
	}
	p.app.stdout.printf("fuel %s\n", grouped(fuel))
	if p.frame < len(p.frames) {
		f := p.frames[p.frame]
		p.app.stdout.printf("%s\n", p.describe(p.frame))
		if text := p.sourceLine(f.File, f.Line); text != "" {
			p.app.stdout.printf("%-6d%s\n", f.Line, text)
		}
	}
}

// describe is one line of the stack.
func (p *prompt) describe(n int) string {
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
func (p *prompt) cut(line string) string {
	return shorten(printable(line), cmp.Or(p.app.stdout.width(), 120))
}

// placeName is a line as FILE:LINE, with the last folders of a long path.
func placeName(f debug.Place) string {
	name := f.File
	for len(name) > 40 && strings.Contains(name, "/") {
		_, name, _ = strings.Cut(name, "/")
	}
	if f.Line == 0 {
		return name
	}
	return fmt.Sprintf("%s:%d", name, f.Line)
}

func (p *prompt) sourceLine(file string, line int) string {
	if _, lines := p.files.Lines(file); 0 < line && line <= len(lines) {
		return p.cut(strings.ReplaceAll(lines[line-1], "\t", "    "))
	}
	return ""
}

func (p *prompt) move(ctx context.Context, m debug.Motion, back bool, args string) error {
	n, err := strconv.Atoi(cmp.Or(args, "1"))
	if err != nil || n < 1 {
		return fmt.Errorf("%q is not how often", args)
	}
	var stop debug.Stop
	for range n {
		if stop, err = p.s.Move(ctx, m, back); err != nil {
			return err
		}
		if stop.Reason != debug.Stepped && (m != debug.Continue || stop.Breakpoint == nil) {
			break
		}
	}
	p.report(stop)
	return nil
}

// report prints why a motion ended, and where.
func (p *prompt) report(stop debug.Stop) {
	why := string(stop.Reason)
	switch {
	case stop.Reason == debug.Stepped:
		why = ""
	case stop.Breakpoint != nil:
		why = fmt.Sprintf("%s %d: %s", stop.Reason, stop.Breakpoint.ID, stop.Breakpoint.What)
	case stop.Reason == debug.Ending:
		text, _ := p.s.Outcome()
		why += ": " + shorten(printable(text), 200)
	}
	p.stopped(why)
	if b := stop.Breakpoint; b != nil && b.Size > 0 {
		p.app.stdout.printf("%s\n", hexLine(b.Address, p.s.Memory(b.Address, min(b.Size, 16))))
	}
}

func (p *prompt) until(ctx context.Context, args string) error {
	word, text, _ := strings.Cut(args, " ")
	fuel, err := display.ParseCount(strings.TrimSpace(text), fuelUnits)
	if word != "fuel" || err != nil {
		return errors.New("until fuel N, such as: until fuel 10M")
	}
	stop, err := p.s.GotoFuel(ctx, fuel)
	if err == nil {
		p.report(stop)
	}
	return err
}

func (p *prompt) jump(ctx context.Context, args string) error {
	at, ok := p.marks[args]
	if _, end, _ := p.s.Position(); !ok && args == "end" {
		at, ok = end, true
	}
	if !ok {
		var err error
		if at, err = strconv.ParseUint(strings.ReplaceAll(args, ",", ""), 10, 64); err != nil {
			return fmt.Errorf("there is no mark %q", args)
		}
	}
	stop, err := p.s.Goto(ctx, at)
	if err == nil {
		p.report(stop)
	}
	return err
}

func (p *prompt) breakAt(_ context.Context, args string) error {
	if args == "" {
		args = fmt.Sprintf("%#x", p.chosen().Offset)
	}
	b, err := p.s.Break(args)
	if err != nil {
		return err
	}
	where := ""
	if len(b.Lines) > 0 && b.Lines[0].File != "" {
		where = " at " + placeName(b.Lines[0])
	} else if b.Unchecked {
		where = ", once the script calls it"
	}
	p.app.stdout.printf("breakpoint %d: %s%s\n", b.ID, b.What, where)
	return nil
}

// area parses WHAT [BYTES].
func (p *prompt) area(args string, otherwise uint32) (address, size uint32, err error) {
	words := strings.Fields(args)
	if len(words) > 1 {
		n, err := strconv.ParseUint(words[len(words)-1], 0, 32)
		if err != nil {
			return 0, 0, fmt.Errorf("%q is not a number of bytes", words[len(words)-1])
		}
		size, words = uint32(n), words[:len(words)-1]
	}
	what := strings.Join(words, " ")
	v, err := p.s.Eval(p.chosen(), what)
	if err == nil && v.Size == 0 {
		err = fmt.Errorf("%s has no address: it is in a local of WebAssembly, or an object of the script; step to its change with reverse-next", what)
	}
	return v.Address, cmp.Or(size, otherwise, v.Size), err
}

func (p *prompt) watch(_ context.Context, args string) error {
	address, size, err := p.area(args, 0)
	if err != nil {
		return err
	}
	b, err := p.s.Watch(address, size)
	if err == nil {
		p.app.stdout.printf("watchpoint %d: %s\n", b.ID, b.What)
	}
	return err
}

func (p *prompt) lastWrite(ctx context.Context, args string) error {
	address, size, err := p.area(args, 0)
	if err != nil {
		return err
	}
	stop, err := p.s.LastWrite(ctx, address, size)
	switch {
	case err != nil:
		return err
	case stop.Reason == debug.Beginning:
		p.app.stdout.printf("the call has not written there before; it began with\n")
	case stop.Reason == debug.Written:
		p.stopped(fmt.Sprintf("before the last write of %#x", address))
	}
	p.app.stdout.printf("%s\n", hexLine(address, p.s.Memory(address, min(size, 16))))
	return nil
}

func (p *prompt) remove(_ context.Context, args string) error {
	for _, b := range p.s.Breakpoints() {
		if args == "" || args == strconv.Itoa(b.ID) {
			p.s.Delete(b.ID)
			if args != "" {
				return nil
			}
		}
	}
	if args != "" {
		return fmt.Errorf("there is no breakpoint %s", args)
	}
	return nil
}

func (p *prompt) stack(_ context.Context, args string) error {
	const most = 100
	hidden, shown, repeated := 0, 0, 0
	script := len(p.frames) > 0 && p.frames[0].Script
	for n, f := range p.frames {
		if script && !f.Script && args != "all" || shown >= most && args != "all" {
			hidden++
			continue
		}
		same := func(other debug.Frame) bool { return other.Place == f.Place && other.Offset == f.Offset }
		if n > 1 && same(p.frames[n-1]) && same(p.frames[n-2]) { // of a recursion
			if repeated++; n+1 == len(p.frames) || !same(p.frames[n+1]) {
				p.app.stdout.printf("     the same %s more\n", plural(repeated, "time"))
				repeated = 0
			}
			continue
		}
		shown++
		p.app.stdout.printf("%s\n", p.describe(n))
	}
	if hidden > 0 {
		p.app.stdout.printf("%s more; all of them: bt all\n", plural(hidden, "function"))
	}
	return nil
}

func (p *prompt) chosen() debug.Frame {
	if p.frame < len(p.frames) {
		return p.frames[p.frame]
	}
	return debug.Frame{}
}

func (p *prompt) choose(_ context.Context, args string) error {
	n, err := strconv.Atoi(args)
	if err != nil {
		n = -1
	}
	return p.chooseFrame(n)
}

func (p *prompt) chooseFrame(n int) error {
	if n < 0 || n >= len(p.frames) {
		return errors.New("the stack has no such function; see: bt")
	}
	p.frame, p.listed = n, 0
	p.here("")
	return nil
}

func (p *prompt) locals(_ context.Context, args string) error {
	all, slots := p.s.Locals(p.chosen()), p.s.Slots(p.chosen())
	for _, v := range all {
		v.Children = nil // print has them
		p.variable(v, 0)
	}
	if args != "all" && len(slots) > 0 {
		p.app.stdout.printf("%s of WebAssembly: locals all\n", plural(len(slots), "local"))
		return nil
	}
	for _, v := range slots {
		p.variable(v, 0)
	}
	return nil
}

// variable prints a variable and its parts.
func (p *prompt) variable(v debug.Variable, depth int) {
	const most = 40
	p.app.stdout.printf("%s\n", p.cut(fmt.Sprintf("%*s%s %s = %s", 2*depth, "", v.Name, v.Type, v.Value)))
	for _, c := range v.Children[:min(len(v.Children), most)] {
		p.variable(c, depth+1)
	}
}

func (p *prompt) print(_ context.Context, args string) error {
	v, err := p.s.Eval(p.chosen(), args)
	if err == nil {
		p.variable(v, 0)
	}
	return err
}

func (p *prompt) memory(_ context.Context, args string) error {
	const most = 4096
	address, size, err := p.area(args, 64)
	if err != nil {
		return err
	}
	b := p.s.Memory(address, min(size, most))
	for len(b) > 0 {
		n := min(16, len(b))
		p.app.stdout.printf("%s\n", hexLine(address, b[:n]))
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

func (p *prompt) disassemble(context.Context, string) error {
	f := p.chosen()
	const around = 8
	all := p.s.Disassemble(f)
	at := slices.IndexFunc(all, func(c debug.Code) bool { return c.Offset >= f.Offset })
	for i := max(at-around, 0); i < min(at+around, len(all)); i++ {
		mark := " "
		if i == at {
			mark = ">"
		}
		p.app.stdout.printf("%s %#08x  %s\n", mark, all[i].Offset, all[i].Text)
	}
	return nil
}

func (p *prompt) effects(context.Context, string) error {
	at, _, _ := p.s.Position()
	passed := false
	for n, e := range p.s.Effects() {
		mark := " "
		if !passed && e.At >= at {
			mark, passed = ">", true
		}
		p.app.stdout.printf("%s\n", p.cut(fmt.Sprintf("%s%3d  event %-5d fuel %-12s %s", mark, n+1, e.Seq, grouped(e.Fuel), e.Text)))
	}
	if len(p.s.Effects()) == 0 {
		p.app.stdout.printf("the call has no effects\n")
	}
	return nil
}

func (p *prompt) mark(_ context.Context, args string) error {
	args = cmp.Or(args, strconv.Itoa(len(p.marks)+1))
	p.marks[args], _, _ = p.s.Position()
	p.app.stdout.printf("mark %s; back here: goto %s\n", args, args)
	return nil
}

func (p *prompt) list(_ context.Context, args string) error {
	f := p.chosen()
	const size = 10
	from := max(f.Line-size/2, 1)
	if p.listed > 0 {
		from = p.listed + 1
	}
	if n, err := strconv.Atoi(args); err == nil {
		from = max(n-size/2, 1)
	}
	_, lines := p.files.Lines(f.File)
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
		p.app.stdout.printf("%-6s%s\n", strconv.Itoa(n)+mark, p.sourceLine(f.File, n))
		p.listed = n
	}
	return nil
}

func (p *prompt) info(_ context.Context, args string) error {
	at, end, fuel := p.s.Position()
	p.app.stdout.printf("instruction %s of %s, fuel %s\n", grouped(at), grouped(end), grouped(fuel))
	for _, b := range p.s.Breakpoints() {
		kind := debug.Hit
		if b.Size > 0 {
			kind = debug.Written
		}
		p.app.stdout.printf("%s %d: %s\n", kind, b.ID, b.What)
	}
	for _, name := range slices.Sorted(maps.Keys(p.marks)) {
		p.app.stdout.printf("mark %s: instruction %s\n", name, grouped(p.marks[name]))
	}
	return nil
}

func (p *prompt) help(context.Context, string) error {
	for _, c := range debugCommands {
		name, short, _ := strings.Cut(c.name, " ")
		p.app.stdout.printf("%-17s%-13s%s%s\n", name, c.args, c.usage, map[bool]string{true: " (" + short + ")"}[short != ""])
	}
	p.app.stdout.printf("\nAn empty line repeats. Unambiguous beginnings of commands suffice.\n")
	return nil
}
