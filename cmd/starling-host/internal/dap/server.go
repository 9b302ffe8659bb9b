package dap

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/google/go-dap"

	"github.com/starling-host/starling/host/debug"
	"github.com/starling-host/starling/internal/display"
)

// Open executes the call, up to where the session begins.
type Open func(ctx context.Context) (*debug.Session, error)

// thread is the id of the one thread.
const thread = 1

// server has one client.
type server struct {
	open  Open
	files *debug.Files
	s     *debug.Session   // nil before launch
	ids   map[string][]int // of breakpoints, by what has set them
	seq   int
	w     io.Writer
	err   error  // the first error of w
	after func() // what follows the response in progress, such as the event of a stop

	frames []debug.Frame
	groups [][]debug.Variable // by variablesReference minus 1, since the last stop

	cancel atomic.Pointer[context.CancelFunc] // of the request in progress
}

// request is any request of the protocol.
type request struct {
	dap.Request
	Arguments json.RawMessage `json:"arguments"`
}

// arguments are those of all requests together: where two have the same name, they have the same type.
type arguments struct {
	FrameId, VariablesReference, StartFrame, Levels    int
	Offset, Count, InstructionOffset, InstructionCount int
	Name, Expression, Granularity, MemoryReference     string
	Fuel                                               uint64
	Filters                                            []string
	Source                                             struct{ Path string }
	Breakpoints                                        []breakpoint
}

// breakpoint is one to set, of any kind.
type breakpoint struct {
	Line, Offset                       int
	Name, DataId, InstructionReference string
}

// decode parses JSON of the client. Its errors are for the client's author.
func decode(text []byte, into any) error {
	err := json.Unmarshal(text, into)
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	must := "an object"
	switch wrong.Type.Kind() {
	case reflect.String:
		must = "a string"
	case reflect.Slice:
		must = "an array"
	case reflect.Int:
		must = "a whole number"
	case reflect.Uint64:
		must = "a whole number of at least 0"
	}
	field := []byte(cmp.Or(wrong.Field, "the message"))
	for i := range field {
		if i == 0 || field[i-1] == '.' {
			field[i] |= 'a' - 'A' // the names of Go's fields begin with a capital letter
		}
	}
	return fmt.Errorf("%s must be %s, not %s", field, must, wrong.Value)
}

// Serve serves a client until it disconnects. Source files are read below a folder only.
func Serve(ctx context.Context, r io.Reader, w io.Writer, open Open, folder string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	v := &server{open: open, files: debug.NewFiles(folder), w: w, ids: map[string][]int{}}
	requests := make(chan request)
	var failed error
	go func() {
		defer close(requests)
		for in := bufio.NewReader(r); ; {
			var q request
			content, err := dap.ReadBaseMessage(in)
			if err == nil {
				err = decode(content, &q)
			}
			if cancel := v.cancel.Load(); cancel != nil && (err != nil || q.Command == "pause" || q.Command == "terminate" || q.Command == "disconnect") {
				(*cancel)() // a motion in progress
			}
			if failed = err; err != nil {
				return
			}
			select {
			case requests <- q:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case q, ok := <-requests:
			if !ok && errors.Is(failed, io.EOF) {
				return nil
			} else if !ok {
				return failed
			}
			v.handle(ctx, q)
			if v.err != nil || q.Command == "disconnect" {
				return v.err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// send writes a message. A text of a guest is escaped in JSON.
func (v *server) send(message any) {
	content, err := json.Marshal(message)
	if err == nil {
		err = dap.WriteBaseMessage(v.w, content)
	}
	v.err = errors.Join(v.err, err)
}

func (v *server) event(name string, body any) {
	v.seq++
	v.send(map[string]any{"seq": v.seq, "type": "event", "event": name, "body": body})
}

// handle answers a request.
func (v *server) handle(ctx context.Context, q request) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	v.cancel.Store(&cancel)
	v.after = func() {}
	var body any
	var a arguments
	var err error
	answer, known := handlers[q.Command]
	first := q.Command == "initialize" || q.Command == "launch" || q.Command == "attach" || q.Command == "disconnect"
	switch {
	case q.Type != "" && q.Type != "request": // nothing is to be answered
		return
	case !known:
		err = fmt.Errorf("%s is not supported", q.Command)
	case v.s == nil && !first:
		err = errors.New("launch comes first")
	case !first && len(q.Arguments) > 0: // the arguments of the others are the editor's own
		err = decode(q.Arguments, &a)
	}
	if err == nil {
		body, err = answer(v, ctx, a)
	}
	v.seq++
	response := map[string]any{"seq": v.seq, "type": "response", "request_seq": q.Seq, "command": q.Command, "success": err == nil}
	if body != nil {
		response["body"] = body
	}
	if err != nil {
		response["message"] = display.Printable(err.Error())
	}
	v.send(response)
	if err == nil {
		v.after()
	}
}

type handler func(v *server, ctx context.Context, a arguments) (body any, err error)

// moves makes a handler of a motion.
func moves(m debug.Motion, back bool) handler {
	return func(v *server, ctx context.Context, a arguments) (any, error) {
		if a.Granularity == "instruction" && (m == debug.Line || m == debug.Over) {
			m = debug.Instruction
		}
		v.after = func() { v.stopped(v.s.Move(ctx, m, back)) }
		return map[string]any{"allThreadsContinued": true}, nil
	}
}

// sets makes a handler that replaces the breakpoints of a kind, and in a file.
func sets(kind string, place func(v *server, file string, b breakpoint) (*debug.Breakpoint, error)) handler {
	return func(v *server, ctx context.Context, a arguments) (any, error) {
		kind := kind + " " + a.Source.Path
		for _, id := range v.ids[kind] {
			v.s.Delete(id)
		}
		v.ids[kind] = nil
		for _, name := range a.Filters {
			a.Breakpoints = append(a.Breakpoints, breakpoint{Name: name})
		}
		all := []dap.Breakpoint{}
		for _, wanted := range a.Breakpoints {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			b, err := place(v, a.Source.Path, wanted)
			if err != nil {
				all = append(all, dap.Breakpoint{Message: display.Printable(err.Error())})
				continue
			}
			v.ids[kind] = append(v.ids[kind], b.ID)
			verified := dap.Breakpoint{Id: b.ID, Verified: !b.Unchecked}
			if b.Unchecked {
				verified.Message = "stops if a line or a function of the script begins there"
			}
			if len(b.Lines) > 0 {
				verified.Line = b.Lines[0].Line
			}
			all = append(all, verified)
		}
		return map[string]any{"breakpoints": all}, nil
	}
}

func breakAtName(v *server, _ string, b breakpoint) (*debug.Breakpoint, error) {
	return v.s.Break(b.Name)
}

// nothing answers requests that were obeyed before, see [Serve].
func nothing(*server, context.Context, arguments) (any, error) { return nil, nil }

var handlers = map[string]handler{
	"initialize": func(*server, context.Context, arguments) (any, error) {
		return dap.Capabilities{
			SupportsConfigurationDoneRequest: true, SupportsFunctionBreakpoints: true, SupportsEvaluateForHovers: true, SupportsStepBack: true,
			SupportsDataBreakpoints: true, SupportsReadMemoryRequest: true, SupportsDisassembleRequest: true, SupportsSteppingGranularity: true,
			SupportsInstructionBreakpoints: true, SupportsTerminateRequest: true,
			ExceptionBreakpointFilters: []dap.ExceptionBreakpointsFilter{{Filter: "effect", Label: "Effects", Description: "Stop at each recorded host call"}},
		}, nil
	},
	"launch": (*server).launch,
	"attach": (*server).launch,
	"configurationDone": func(v *server, _ context.Context, _ arguments) (any, error) {
		v.after = func() {
			text, _ := v.s.Outcome()
			v.event("output", dap.OutputEventBody{Category: "console", Output: "the recorded call ended: " + display.Printable(text) + "\n"})
			v.stopped(debug.Stop{Reason: "entry"}, nil)
		}
		return nil, nil
	},
	"pause":      nothing,
	"disconnect": nothing,
	"terminate": func(v *server, _ context.Context, _ arguments) (any, error) {
		v.after = func() { v.event("terminated", struct{}{}) }
		return nil, nil
	},

	"next":            moves(debug.Over, false),
	"stepIn":          moves(debug.Line, false),
	"stepOut":         moves(debug.Out, false),
	"continue":        moves(debug.Continue, false),
	"stepBack":        moves(debug.Over, true),
	"reverseContinue": moves(debug.Continue, true),
	"reverseStepIn":   moves(debug.Line, true),
	"reverseStepOut":  moves(debug.Out, true),
	"lastWrite": func(v *server, ctx context.Context, a arguments) (any, error) {
		found, err := v.s.Eval(v.frame(a.FrameId), a.Expression)
		if err == nil {
			err = found.NotInMemory(a.Expression)
		}
		if err == nil {
			v.after = func() { v.stopped(v.s.LastWrite(ctx, found.Address, found.Size)) }
		}
		return nil, err
	},
	"untilFuel": func(v *server, ctx context.Context, a arguments) (any, error) {
		v.after = func() { v.stopped(v.s.GotoFuel(ctx, a.Fuel)) }
		return nil, nil
	},

	"threads": func(*server, context.Context, arguments) (any, error) {
		return dap.ThreadsResponseBody{Threads: []dap.Thread{{Id: thread, Name: "the call"}}}, nil
	},
	"stackTrace": (*server).stackTrace,
	"scopes": func(v *server, _ context.Context, a arguments) (any, error) {
		return dap.ScopesResponseBody{Scopes: []dap.Scope{
			{Name: "Locals", PresentationHint: "locals", VariablesReference: v.group(v.s.Locals(v.frame(a.FrameId)))},
			{Name: "WebAssembly", PresentationHint: "registers", VariablesReference: v.group(v.s.Slots(v.frame(a.FrameId))), Expensive: true},
			{Name: "Call", VariablesReference: v.group(v.call())},
		}}, nil
	},
	"variables": func(v *server, _ context.Context, a arguments) (any, error) {
		body := dap.VariablesResponseBody{Variables: []dap.Variable{}}
		if a.VariablesReference < 1 || a.VariablesReference > len(v.groups) {
			return nil, errors.New("these variables are of an earlier stop")
		}
		for _, x := range v.groups[a.VariablesReference-1] {
			body.Variables = append(body.Variables, dap.Variable{
				Name: x.Name, Value: x.Value, Type: x.Type, VariablesReference: v.group(x.Children), MemoryReference: reference(x),
			})
		}
		return body, nil
	},
	"evaluate": func(v *server, _ context.Context, a arguments) (any, error) {
		x, err := v.s.Eval(v.frame(a.FrameId), a.Expression)
		return dap.EvaluateResponseBody{Result: x.Value, Type: x.Type, VariablesReference: v.group(x.Children), MemoryReference: reference(x)}, err
	},
	"readMemory": func(v *server, _ context.Context, a arguments) (any, error) {
		address, err := strconv.ParseUint(a.MemoryReference, 0, 32)
		from := int(address) + a.Offset
		if err != nil || from < 0 || int64(from) > 1<<32-1 || a.Count < 0 {
			return nil, errors.New("no such memory")
		}
		b := v.s.Memory(uint32(from), uint32(min(a.Count, 1<<20)))
		return dap.ReadMemoryResponseBody{Address: fmt.Sprintf("%#x", from), Data: base64.StdEncoding.EncodeToString(b), UnreadableBytes: a.Count - len(b)}, nil
	},
	"disassemble": (*server).disassemble,

	"setBreakpoints": sets("line", func(v *server, file string, b breakpoint) (*debug.Breakpoint, error) {
		for {
			at, err := v.s.Break(fmt.Sprintf("%s:%d", file, b.Line))
			_, shorter, more := strings.Cut(strings.TrimPrefix(file, "/"), "/")
			if err == nil || !more {
				return at, err
			}
			file = shorter // the compiler may have had the file elsewhere
		}
	}),
	"setFunctionBreakpoints":  sets("function", breakAtName),
	"setExceptionBreakpoints": sets("exception", breakAtName),
	"setInstructionBreakpoints": sets("instruction", func(v *server, _ string, b breakpoint) (*debug.Breakpoint, error) {
		address, _ := strconv.ParseUint(b.InstructionReference, 0, 32)
		return v.s.Break(fmt.Sprintf("%#x", int(address)+b.Offset))
	}),
	"setDataBreakpoints": sets("data", func(v *server, _ string, b breakpoint) (*debug.Breakpoint, error) {
		var address, size uint32
		if _, err := fmt.Sscanf(b.DataId, "%d:%d", &address, &size); err != nil {
			return nil, errors.New("there is no such data")
		}
		return v.s.Watch(address, size)
	}),
	"dataBreakpointInfo": func(v *server, _ context.Context, a arguments) (any, error) {
		x, err := debug.Variable{}, error(nil)
		if n := a.VariablesReference; 0 < n && n <= len(v.groups) {
			if i := slices.IndexFunc(v.groups[n-1], func(c debug.Variable) bool { return c.Name == a.Name }); i >= 0 {
				x = v.groups[n-1][i]
			}
		} else {
			x, err = v.s.Eval(v.frame(a.FrameId), a.Name)
		}
		if err == nil {
			err = x.NotInMemory(a.Name)
		}
		if err != nil {
			return dap.DataBreakpointInfoResponseBody{Description: err.Error()}, nil
		}
		return dap.DataBreakpointInfoResponseBody{DataId: fmt.Sprintf("%d:%d", x.Address, x.Size), Description: a.Name, AccessTypes: []dap.DataBreakpointAccessType{"write"}}, nil
	},
}

func (v *server) launch(ctx context.Context, _ arguments) (_ any, err error) {
	if v.s == nil {
		v.s, err = v.open(ctx)
	}
	v.after = func() { v.event("initialized", struct{}{}) }
	return nil, err
}

// stopped tells the client where a motion ended.
func (v *server) stopped(stop debug.Stop, err error) {
	v.frames, v.groups = v.s.Frames(), nil
	body := dap.StoppedEventBody{Reason: "step", ThreadId: thread, AllThreadsStopped: true}
	switch stop.Reason {
	case debug.Hit:
		body.Reason = "breakpoint"
	case debug.Written:
		body.Reason = "data breakpoint"
	case debug.Interrupted:
		body.Reason = "pause"
	case debug.Beginning, debug.Ending, "entry":
		body.Reason, body.Description = "entry", string(stop.Reason)
	}
	if b := stop.Breakpoint; b != nil {
		body.HitBreakpointIds, body.Text = []int{b.ID}, b.What
	}
	if err != nil {
		body.Text = display.Printable(err.Error())
	}
	v.event("stopped", body)
}

func (v *server) stackTrace(_ context.Context, a arguments) (any, error) {
	body := dap.StackTraceResponseBody{StackFrames: []dap.StackFrame{}, TotalFrames: len(v.frames)}
	for i, f := range v.frames {
		if i < a.StartFrame || a.Levels > 0 && i >= a.StartFrame+a.Levels {
			continue
		}
		frame := dap.StackFrame{Id: i + 1, Name: f.Function, Line: f.Line, Column: f.Column}
		if f.File != "" {
			frame.Source = &dap.Source{Name: path.Base(f.File)}
			if frame.Source.Path, _ = v.files.Lines(f.File); frame.Source.Path == "" {
				frame.PresentationHint = "subtle"
			}
		}
		if !f.Script {
			frame.InstructionPointerReference = fmt.Sprintf("%#x", f.Offset)
		}
		body.StackFrames = append(body.StackFrames, frame)
	}
	return body, nil
}

// frame returns the frame of an id, or the innermost.
func (v *server) frame(id int) debug.Frame {
	if id < 1 || id > len(v.frames) {
		id = 1
	}
	if len(v.frames) == 0 {
		return debug.Frame{}
	}
	return v.frames[id-1]
}

// group returns the reference of variables, or 0 for none.
func (v *server) group(variables []debug.Variable) int {
	if len(variables) == 0 {
		return 0
	}
	v.groups = append(v.groups, variables)
	return len(v.groups)
}

func reference(x debug.Variable) string {
	if x.Size == 0 {
		return ""
	}
	return fmt.Sprintf("%#x", x.Address)
}

// call describes where in the call the session is.
func (v *server) call() []debug.Variable {
	at, end, fuel := v.s.Position()
	outcome, _ := v.s.Outcome()
	all := []debug.Variable{{Name: "instruction", Value: fmt.Sprintf("%d of %d", at, end)}, {Name: "fuel", Value: fmt.Sprint(fuel)}, {Name: "outcome", Value: outcome}}
	for i, e := range v.s.Effects() {
		when := "to come: "
		if e.At < at {
			when = ""
		}
		all = append(all, debug.Variable{Name: fmt.Sprintf("effect %d", i+1), Value: when + e.Text})
	}
	return all
}

func (v *server) disassemble(_ context.Context, a arguments) (any, error) {
	address, err := strconv.ParseUint(a.MemoryReference, 0, 32)
	if err != nil || a.InstructionCount < 0 || a.InstructionCount > 1<<16 {
		return nil, errors.New("no such instructions")
	}
	start := uint32(int(address) + a.Offset)
	code := v.s.Disassemble(debug.Frame{Offset: start})
	at, _ := slices.BinarySearchFunc(code, start, func(c debug.Code, start uint32) int { return cmp.Compare(c.Offset, start) })
	all := []dap.DisassembledInstruction{}
	for i := at + a.InstructionOffset; len(all) < a.InstructionCount; i++ {
		next := dap.DisassembledInstruction{Address: "0x0", Instruction: "-"}
		if 0 <= i && i < len(code) {
			next = dap.DisassembledInstruction{Address: fmt.Sprintf("%#x", code[i].Offset), Instruction: code[i].Text}
		}
		all = append(all, next)
	}
	return dap.DisassembleResponseBody{Instructions: all}, nil
}
