package dap

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"sync"

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
	s     *debug.Session // nil before launch
	ids   map[string][]int
	seq   int
	w     io.Writer
	err   error // the first error of w

	frames []debug.Frame
	groups [][]debug.Variable // by variablesReference minus 1, since the last stop

	mu     sync.Mutex
	cancel context.CancelFunc // of the request in progress
}

// request is any request of the protocol.
type request struct {
	dap.Request
	Arguments json.RawMessage `json:"arguments"`
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
			content, err := dap.ReadBaseMessage(in)
			var q request
			if err == nil {
				err = json.Unmarshal(content, &q)
			}
			if err != nil {
				failed = err
				v.interrupt()
				return
			}
			if q.Command == "pause" || q.Command == "terminate" || q.Command == "disconnect" {
				v.interrupt() // a motion in progress
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

func (v *server) interrupt() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cancel != nil {
		v.cancel()
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

// handle answers a request. What follows the answer, such as the event of a stop, is sent behind it.
func (v *server) handle(ctx context.Context, q request) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	v.mu.Lock()
	v.cancel = cancel
	v.mu.Unlock()
	answer, known := handlers[q.Command]
	var body any
	var after func()
	err := fmt.Errorf("%s is not supported", q.Command)
	switch {
	case known && v.s == nil && q.Command != "initialize" && q.Command != "launch" && q.Command != "attach" && q.Command != "disconnect":
		err = errors.New("launch comes first")
	case known:
		body, after, err = answer(v, ctx, q.Arguments)
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
	if err == nil && after != nil {
		after()
	}
}

type handler func(v *server, ctx context.Context, arguments json.RawMessage) (body any, after func(), err error)

// reads makes a handler of a function that only answers.
func reads[A any](f func(v *server, a A) (any, error)) handler {
	return func(v *server, _ context.Context, arguments json.RawMessage) (any, func(), error) {
		var a A
		if err := json.Unmarshal(arguments, &a); err != nil && len(arguments) > 0 {
			return nil, nil, err
		}
		body, err := f(v, a)
		return body, nil, err
	}
}

// moves makes a handler of a motion.
func moves(m debug.Motion, back bool) handler {
	return func(v *server, ctx context.Context, arguments json.RawMessage) (any, func(), error) {
		var a dap.NextArguments // all steps have these
		_ = json.Unmarshal(arguments, &a)
		if a.Granularity == "instruction" && (m == debug.Line || m == debug.Over) {
			m = debug.Instruction
		}
		return map[string]any{"allThreadsContinued": true}, func() { v.stopped(v.s.Move(ctx, m, back)) }, nil
	}
}

var handlers = map[string]handler{
	"initialize": reads(func(*server, struct{}) (any, error) {
		return dap.Capabilities{
			SupportsConfigurationDoneRequest: true, SupportsFunctionBreakpoints: true, SupportsEvaluateForHovers: true, SupportsStepBack: true,
			SupportsDataBreakpoints: true, SupportsReadMemoryRequest: true, SupportsDisassembleRequest: true, SupportsSteppingGranularity: true,
			SupportsInstructionBreakpoints: true, SupportsTerminateRequest: true,
			ExceptionBreakpointFilters: []dap.ExceptionBreakpointsFilter{{Filter: "effect", Label: "Effects", Description: "Stop at each recorded host call"}},
		}, nil
	}),
	"launch": (*server).launch,
	"attach": (*server).launch,
	"configurationDone": func(v *server, _ context.Context, _ json.RawMessage) (any, func(), error) {
		return nil, func() {
			text, _ := v.s.Outcome()
			v.event("output", dap.OutputEventBody{Category: "console", Output: "the recorded call ended: " + display.Printable(text) + "\n"})
			v.stopped(debug.Stop{Reason: "entry"}, nil)
		}, nil
	},
	"next":            moves(debug.Over, false),
	"stepIn":          moves(debug.Line, false),
	"stepOut":         moves(debug.Out, false),
	"continue":        moves(debug.Continue, false),
	"stepBack":        moves(debug.Over, true),
	"reverseContinue": moves(debug.Continue, true),
	"reverseStepIn":   moves(debug.Line, true),
	"reverseStepOut":  moves(debug.Out, true),
	"lastWrite": func(v *server, ctx context.Context, arguments json.RawMessage) (any, func(), error) {
		var a dap.EvaluateArguments
		if err := json.Unmarshal(arguments, &a); err != nil {
			return nil, nil, err
		}
		found, err := v.s.Eval(v.frame(a.FrameId), a.Expression)
		if err == nil && found.Size == 0 {
			err = fmt.Errorf("%s is not in memory", a.Expression)
		}
		return nil, func() { v.stopped(v.s.LastWrite(ctx, found.Address, found.Size)) }, err
	},
	"untilFuel": func(v *server, ctx context.Context, arguments json.RawMessage) (any, func(), error) {
		var a struct {
			Fuel uint64 `json:"fuel"`
		}
		err := json.Unmarshal(arguments, &a)
		return nil, func() { v.stopped(v.s.GotoFuel(ctx, a.Fuel)) }, err
	},
	"pause": reads(func(*server, struct{}) (any, error) { return nil, nil }),
	"terminate": func(v *server, _ context.Context, _ json.RawMessage) (any, func(), error) {
		return nil, func() { v.event("terminated", struct{}{}) }, nil
	},
	"disconnect": reads(func(*server, struct{}) (any, error) { return nil, nil }),
	"threads": reads(func(*server, struct{}) (any, error) {
		return dap.ThreadsResponseBody{Threads: []dap.Thread{{Id: thread, Name: "the call"}}}, nil
	}),
	"stackTrace": reads((*server).stackTrace),
	"scopes": reads(func(v *server, a dap.ScopesArguments) (any, error) {
		return dap.ScopesResponseBody{Scopes: []dap.Scope{
			{Name: "Locals", PresentationHint: "locals", VariablesReference: v.group(v.s.Locals(v.frame(a.FrameId)))},
			{Name: "WebAssembly", PresentationHint: "registers", VariablesReference: v.group(v.s.Slots(v.frame(a.FrameId))), Expensive: true},
			{Name: "Call", VariablesReference: v.group(v.call())},
		}}, nil
	}),
	"variables": reads(func(v *server, a dap.VariablesArguments) (any, error) {
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
	}),
	"evaluate": reads(func(v *server, a dap.EvaluateArguments) (any, error) {
		x, err := v.s.Eval(v.frame(a.FrameId), a.Expression)
		return dap.EvaluateResponseBody{Result: x.Value, Type: x.Type, VariablesReference: v.group(x.Children), MemoryReference: reference(x)}, err
	}),
	"readMemory": reads(func(v *server, a dap.ReadMemoryArguments) (any, error) {
		address, err := strconv.ParseUint(a.MemoryReference, 0, 32)
		from := int(address) + a.Offset
		if err != nil || from < 0 || int64(from) > 1<<32-1 || a.Count < 0 {
			return nil, errors.New("no such memory")
		}
		b := v.s.Memory(uint32(from), uint32(min(a.Count, 1<<20)))
		return dap.ReadMemoryResponseBody{Address: fmt.Sprintf("%#x", from), Data: base64.StdEncoding.EncodeToString(b), UnreadableBytes: a.Count - len(b)}, nil
	}),
	"disassemble": reads((*server).disassemble),
	"setBreakpoints": reads(func(v *server, a dap.SetBreakpointsArguments) (any, error) {
		var places []string
		for _, b := range a.Breakpoints {
			places = append(places, fmt.Sprintf("%s:%d", a.Source.Path, b.Line))
		}
		return v.set("source "+a.Source.Path, places), nil
	}),
	"setFunctionBreakpoints": reads(func(v *server, a dap.SetFunctionBreakpointsArguments) (any, error) {
		var places []string
		for _, b := range a.Breakpoints {
			places = append(places, b.Name)
		}
		return v.set("function", places), nil
	}),
	"setInstructionBreakpoints": reads(func(v *server, a dap.SetInstructionBreakpointsArguments) (any, error) {
		var places []string
		for _, b := range a.Breakpoints {
			address, _ := strconv.ParseUint(b.InstructionReference, 0, 32)
			places = append(places, fmt.Sprintf("%#x", int(address)+b.Offset))
		}
		return v.set("instruction", places), nil
	}),
	"setExceptionBreakpoints": reads(func(v *server, a dap.SetExceptionBreakpointsArguments) (any, error) {
		return v.set("exception", a.Filters), nil
	}),
	"dataBreakpointInfo": reads(func(v *server, a dap.DataBreakpointInfoArguments) (any, error) {
		x, err := debug.Variable{}, error(nil)
		if n := a.VariablesReference; 0 < n && n <= len(v.groups) {
			for _, c := range v.groups[n-1] {
				if c.Name == a.Name {
					x = c
				}
			}
		} else {
			x, err = v.s.Eval(v.frame(a.FrameId), a.Name)
		}
		if err != nil || x.Size == 0 {
			return dap.DataBreakpointInfoResponseBody{Description: a.Name + " is not in memory"}, nil
		}
		return dap.DataBreakpointInfoResponseBody{DataId: fmt.Sprintf("%d:%d", x.Address, x.Size), Description: a.Name, AccessTypes: []dap.DataBreakpointAccessType{"write"}}, nil
	}),
	"setDataBreakpoints": reads(func(v *server, a dap.SetDataBreakpointsArguments) (any, error) {
		var places []string
		for _, b := range a.Breakpoints {
			places = append(places, b.DataId)
		}
		return v.set("data", places), nil
	}),
}

func (v *server) launch(ctx context.Context, _ json.RawMessage) (any, func(), error) {
	var err error
	if v.s == nil {
		v.s, err = v.open(ctx)
	}
	return nil, func() { v.event("initialized", struct{}{}) }, err
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

// set replaces the breakpoints of one kind.
func (v *server) set(kind string, places []string) any {
	for _, id := range v.ids[kind] {
		v.s.Delete(id)
	}
	v.ids[kind] = nil
	all := []dap.Breakpoint{}
	for _, place := range places {
		b, err := v.place(kind, place)
		if err != nil {
			all = append(all, dap.Breakpoint{Message: display.Printable(err.Error())})
			continue
		}
		v.ids[kind] = append(v.ids[kind], b.ID)
		verified := dap.Breakpoint{Id: b.ID, Verified: true}
		if len(b.Lines) > 0 {
			verified.Line = b.Lines[0].Line
		}
		all = append(all, verified)
	}
	return map[string]any{"breakpoints": all}
}

func (v *server) place(kind, place string) (*debug.Breakpoint, error) {
	if kind == "data" {
		var address, size uint32
		if _, err := fmt.Sscanf(place, "%d:%d", &address, &size); err != nil {
			return nil, err
		}
		return v.s.Watch(address, size)
	}
	for {
		b, err := v.s.Break(place)
		_, shorter, more := strings.Cut(strings.TrimPrefix(place, "/"), "/")
		if err == nil || !more || !strings.HasPrefix(kind, "source") {
			return b, err
		}
		place = shorter // the compiler may have had the file elsewhere
	}
}

func (v *server) stackTrace(a dap.StackTraceArguments) (any, error) {
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

func (v *server) disassemble(a dap.DisassembleArguments) (any, error) {
	address, err := strconv.ParseUint(a.MemoryReference, 0, 32)
	if err != nil || a.InstructionCount < 0 || a.InstructionCount > 1<<16 {
		return nil, errors.New("no such instructions")
	}
	code := v.s.Disassemble(debug.Frame{Offset: uint32(int(address) + a.Offset)})
	at := 0
	for at < len(code) && code[at].Offset < uint32(int(address)+a.Offset) {
		at++
	}
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
