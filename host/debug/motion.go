package debug

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/starling-host/starling/host/internal/machine"
	"github.com/starling-host/starling/host/internal/source"
)

// Motion is how far a session moves.
type Motion int

// The motions. Each goes to the nearest such place, or to a breakpoint before it.
const (
	Instruction Motion = iota // the next instruction of the module
	Line                      // the next line, also of a function that is called
	Over                      // the next line of this function or its callers
	Out                       // the return of this function
	Continue                  // the next breakpoint
)

// Reason is why a motion ended.
type Reason string

// The reasons.
const (
	Stepped     Reason = "step"
	Hit         Reason = "breakpoint"
	Written     Reason = "watchpoint"
	Beginning   Reason = "the start of the call"
	Ending      Reason = "the end of the call"
	Interrupted Reason = "interrupted"
)

// Stop describes where a motion ended.
type Stop struct {
	Reason     Reason
	Breakpoint *Breakpoint // of Hit and Written
}

// level is the depth of a function on the stack. Functions that were inlined are levels of the
// same physical frame.
type level struct{ depth, inlined int }

func (l level) above(other level) bool { // closer to the outermost function
	return l.depth < other.depth || l.depth == other.depth && l.inlined < other.inlined
}

// spot is what is known of an instruction: how many functions are inlined there, the line, or 0,
// and the offset in the module, or 0 for code that the rewriter added.
type spot struct {
	inlined int
	line    int32
	offset  uint32
}

// view is what a motion looks at.
type view int

const (
	instructions view = iota
	lines
	script // lines of the script that the module interprets
)

type sourceLine struct {
	file string
	line int
}

func (s *Session) lineID(p Place) int32 {
	if p.Line == 0 || strings.HasPrefix(p.File, "<frozen ") || p.File == "<string>" || s.own != nil && !s.own[p.File] {
		return 0
	}
	at := sourceLine{p.File, p.Line}
	id, ok := s.lines[at]
	if !ok {
		id = int32(len(s.lines) + 1)
		s.lines[at] = id
	}
	return id
}

// spotOf describes the instruction at an offset of the rewritten module.
func (s *Session) spotOf(rewritten uint32) spot {
	known, ok := s.spots[rewritten]
	if ok {
		return known
	}
	if offset, ok := s.offsets.Original(rewritten); ok {
		known.offset = offset
		places := s.table.Lines(offset)
		for i, p := range places {
			if known.line = s.lineID(p); known.line > 0 {
				known.inlined = len(places) - 1 - i
				break
			}
		}
	}
	s.spots[rewritten] = known
	return known
}

// script returns the functions of the script that the module interprets, innermost first.
func (s *Session) script() []source.Call {
	if !s.interpreted() {
		return nil
	}
	memory, _ := s.rec.Read(0, s.rec.Size())
	var locals [][]uint64
	for _, f := range s.rec.Frames() {
		locals = append(locals, f.Locals)
	}
	return s.table.Interpreted(memory, locals...)
}

// innermost returns the place of the innermost function of the script, and how many there are.
func (s *Session) innermost() (Place, int) {
	memory, _ := s.rec.Read(0, s.rec.Size())
	var locals [][]uint64
	if s.table.Format() == source.JavaScript {
		for _, f := range s.rec.Frames() {
			locals = append(locals, f.Locals)
		}
	}
	return s.table.Innermost(memory, locals...)
}

// look returns the level and the line of the next instruction. The lines of instructions are their
// offsets.
func (s *Session) look(v view) (level, int32) {
	if v == script {
		place, depth := s.innermost()
		return level{depth: depth}, s.lineID(place)
	}
	_, offset := s.rec.Where()
	here := s.spotOf(offset)
	if v == instructions {
		return level{depth: s.rec.Depth()}, int32(here.offset)
	}
	return level{s.rec.Depth(), here.inlined}, here.line
}

// trail has the line at which each function on the stack is, outermost first.
type trail []struct {
	level
	line int32
}

// enter takes the next instruction, and reports whether a line begins there. To return into the
// middle of a line does not begin it.
func (t *trail) enter(at level, line int32) bool {
	if at.depth == 0 { // in a function of the interpreter, the calls of the script are not known
		return false
	}
	for len(*t) > 0 && at.above((*t)[len(*t)-1].level) {
		*t = (*t)[:len(*t)-1]
	}
	if line == 0 {
		return false
	}
	if last := len(*t) - 1; last >= 0 && (*t)[last].level == at {
		begins := (*t)[last].line != line
		(*t)[last].line = line
		return begins
	}
	*t = append(*t, struct {
		level
		line int32
	}{at, line})
	return true
}

// trail returns the lines of the present stack.
func (s *Session) trail(v view) (t trail) {
	if v == script {
		_, depth := s.innermost()
		for i, p := range slices.Backward(s.script()) {
			t.enter(level{depth: depth - i}, s.lineID(p.Place))
		}
		return t
	}
	frames := s.rec.Frames()
	for i, f := range slices.Backward(frames) {
		offset, ok := s.offsets.Original(f.Offset)
		if v == instructions {
			t.enter(level{depth: len(frames) - i}, int32(offset))
		} else if places := s.table.Lines(offset); ok {
			for j, p := range slices.Backward(places) {
				t.enter(level{len(frames) - i, len(places) - 1 - j}, s.lineID(p))
			}
		}
	}
	return t
}

// Move moves a session to the next such place, or back to the last one. When ctx ends, the session
// is where it was, and the reason is Interrupted.
func (s *Session) Move(ctx context.Context, m Motion, back bool) (stop Stop, err error) {
	return s.undoing(ctx, func() (Stop, error) {
		switch {
		case !back && s.rec.At() == s.rec.End():
			return Stop{Reason: Ending}, nil
		case back && s.rec.At() == 0:
			return Stop{Reason: Beginning}, nil
		case m == Continue && back:
			return s.backward(ctx)
		case m == Continue && s.scripted() == nil:
			return s.forward(ctx, s.rec.End(), machine.Stop{})
		case back:
			return s.search(ctx, m, 0, Stop{Reason: Beginning})
		}
		return s.step(ctx, m)
	})
}

// Goto moves a session to a position.
func (s *Session) Goto(ctx context.Context, at uint64) (Stop, error) {
	return s.undoing(ctx, func() (Stop, error) { return s.at(s.rec.Seek(ctx, min(at, s.rec.End()))) })
}

// GotoFuel moves a session to the first instruction before which that much fuel is spent.
func (s *Session) GotoFuel(ctx context.Context, fuel uint64) (Stop, error) {
	return s.undoing(ctx, func() (Stop, error) { return s.at(s.rec.SeekFuel(ctx, fuel)) })
}

// LastWrite moves a session back to the instruction that wrote last to n bytes at an address. The
// reason is Beginning, and the session stays, if the call wrote nothing there before.
func (s *Session) LastWrite(ctx context.Context, address, n uint32) (Stop, error) {
	return s.undoing(ctx, func() (Stop, error) {
		at, ok, err := s.rec.LastWrite(ctx, s.rec.At(), address, n)
		if err != nil || !ok {
			return Stop{Reason: Beginning}, err
		}
		return Stop{Reason: Written}, s.rec.Seek(ctx, at)
	})
}

// at is the stop after a jump.
func (s *Session) at(err error) (Stop, error) {
	if s.rec.At() == s.rec.End() {
		return Stop{Reason: Ending}, err
	}
	return Stop{Reason: Stepped}, err
}

// undoing returns to where a motion began if it was interrupted.
func (s *Session) undoing(ctx context.Context, move func() (Stop, error)) (Stop, error) {
	began := s.rec.At()
	stop, err := move()
	if err != nil || stop.Reason == Beginning && s.rec.At() != 0 {
		if again := s.rec.Seek(context.WithoutCancel(ctx), began); again != nil {
			return stop, errors.Join(err, again)
		}
	}
	if err != nil && ctx.Err() != nil {
		return Stop{Reason: Interrupted}, nil
	}
	return stop, err
}

// forward runs to a position, to what more describes, or to a breakpoint.
func (s *Session) forward(ctx context.Context, until uint64, more machine.Stop) (Stop, error) {
	var hit *Breakpoint
	for _, b := range s.breaks {
		for _, at := range b.places {
			if at > s.rec.At() && at < until {
				until, hit = at, b
			}
		}
		more.Offsets = slices.Concat(more.Offsets, b.rewritten)
		if b.Size > 0 {
			more.Writes = append(more.Writes, machine.Range{Addr: b.Address, Len: b.Size})
		}
	}
	why, err := s.rec.Run(ctx, until, more)
	switch {
	case err != nil:
		return Stop{}, err
	case why == machine.Written && s.watched() != nil:
		return Stop{Written, s.watched()}, nil
	case why == machine.Offset && s.here() != nil:
		return Stop{Hit, s.here()}, nil
	case s.rec.At() == s.rec.End():
		return Stop{Reason: Ending}, nil
	case s.rec.At() == until && hit != nil:
		return Stop{Hit, hit}, nil
	}
	return Stop{Reason: Stepped}, nil
}

// backward goes back to the last breakpoint, in the module or in the script.
func (s *Session) backward(ctx context.Context) (Stop, error) {
	began := s.rec.At()
	stop, err := s.inModule(ctx)
	if at := s.rec.At(); err == nil && s.scripted() != nil {
		if err = s.rec.Seek(ctx, began); err == nil {
			return s.search(ctx, Continue, at, stop)
		}
	}
	return stop, err
}

// inModule goes back to the last breakpoint in the module.
func (s *Session) inModule(ctx context.Context) (Stop, error) {
	began := s.rec.At()
	var floor uint64
	var hit *Breakpoint
	var more machine.Stop
	for _, b := range s.breaks {
		for _, at := range b.places {
			if at < began && (hit == nil || at > floor) {
				floor, hit = at, b
			}
		}
		more.Offsets = slices.Concat(more.Offsets, b.rewritten)
		if b.Size > 0 {
			more.Writes = append(more.Writes, machine.Range{Addr: b.Address, Len: b.Size})
		}
	}
	if len(more.Offsets) > 0 || len(more.Writes) > 0 {
		why, err := s.rec.Back(ctx, floor, more)
		switch {
		case err != nil:
			return Stop{}, err
		case why == machine.Written:
			return Stop{Written, s.watched()}, nil
		case why == machine.Offset:
			return Stop{Hit, s.here()}, nil
		}
	}
	if hit != nil {
		return Stop{Hit, hit}, s.rec.Seek(ctx, floor)
	}
	return Stop{Reason: Beginning}, s.rec.Seek(ctx, 0)
}

// scripted returns the breakpoints in the script.
func (s *Session) scripted() (all []*Breakpoint) {
	for _, b := range s.breaks {
		if b.script != (Place{}) {
			all = append(all, b)
		}
	}
	return all
}

// inScript returns the breakpoint in the script at which the session is, or nil. A line of it begins
// here, perhaps in a function that was called.
func (s *Session) inScript(called bool) *Breakpoint {
	here, depth := s.innermost()
	if depth == 0 {
		return nil
	}
	for _, b := range s.scripted() {
		file := b.script.File // as much of its path as the user has given, or all of it
		same := strings.HasSuffix("/"+here.File, "/"+file) || strings.HasSuffix("/"+file, "/"+here.File)
		if b.script.Line > 0 && here.Line == b.script.Line && same || b.script.Line == 0 && called && here.Function == b.script.Function {
			return b
		}
	}
	return nil
}

// wanted reports whether a motion that began at a level ends at another, where a line may begin.
func (s *Session) wanted(m Motion, began, before, now level, begins bool) bool {
	if now.depth == 0 {
		return false
	}
	switch m {
	case Continue:
		return begins && s.inScript(before.above(now)) != nil
	case Over:
		return begins && !began.above(now)
	case Out:
		return now.above(began)
	}
	return begins
}

// step moves forwards to the end of a motion. Functions that it need not look into run at full
// speed.
func (s *Session) step(ctx context.Context, m Motion) (Stop, error) {
	v := s.view(m)
	began, _ := s.look(v)
	trail := s.trail(v)
	if m == Over && len(trail) == 0 { // no function of the user runs yet
		m = Line
	}
	for before := began; ; {
		if err := ctx.Err(); err != nil {
			return Stop{}, err
		}
		stop, err := s.advance(ctx, s.rec.End(), m, began, v, trail, true)
		if err != nil || stop.Reason != Stepped {
			return stop, err
		}
		now, line := s.look(v)
		begins := trail.enter(now, line)
		if v == script && m != Out && begins && s.inScript(before.above(now)) != nil {
			return Stop{Hit, s.inScript(before.above(now))}, nil
		}
		if s.wanted(m, began, before, now, begins) {
			return stop, nil
		}
		before = now
	}
}

// view is what a motion looks at from here.
func (s *Session) view(m Motion) view {
	switch {
	case m == Instruction:
		return instructions
	case s.interpreted():
		return script
	}
	return lines
}

// interpreted reports whether the module is an interpreter of a script.
func (s *Session) interpreted() bool {
	return s.table.Format() == source.Python || s.table.Format() == source.JavaScript
}

// advance executes instructions until something may have changed that a motion looks at.
func (s *Session) advance(ctx context.Context, until uint64, m Motion, began level, v view, t trail, breaks bool) (Stop, error) {
	var more machine.Stop
	now, line := s.look(v)
	switch {
	case v == script:
		memory, _ := s.rec.Read(0, s.rec.Size())
		for _, address := range s.table.Pulse(memory) {
			more.Writes = append(more.Writes, machine.Range{Addr: address, Len: 4})
		}
	case m >= Over && now.depth > began.depth:
		more.Below = began.depth + 1
	case m == Out && now == began && began.inlined == 0:
		more.Below = began.depth
	case v == lines && line == 0 && len(t) > 0 && now.depth > t[len(t)-1].depth: // in code of others, until it calls back or returns
		more.Below = t[len(t)-1].depth + 1
		if m == Line {
			more.Offsets = s.heads
		}
	case v == lines && m == Line && line == 0 && len(t) == 0:
		more.Offsets = s.heads
	default:
		until = min(until, s.rec.At()+1)
	}
	watching := slices.ContainsFunc(s.breaks, func(b *Breakpoint) bool { return b.Size > 0 })
	if breaks && (watching || until > s.rec.At()+1) {
		return s.forward(ctx, until, more)
	}
	_, err := s.rec.Run(ctx, until, more)
	b := s.here()
	switch {
	case err != nil || !breaks:
	case b != nil:
		return Stop{Hit, b}, nil
	case s.rec.At() == s.rec.End():
		return Stop{Reason: Ending}, nil
	}
	return Stop{Reason: Stepped}, err
}

// search moves backwards: it executes windows before the present place again, of growing size, and
// goes to the last place in them that the motion wants, or else to a floor.
func (s *Session) search(ctx context.Context, m Motion, floor uint64, otherwise Stop) (Stop, error) {
	v := s.view(m)
	began, _ := s.look(v)
	const least, most = 1 << 12, 1 << 24
	size := uint64(least)
	if m == Instruction {
		size = 1 << 5
	}
	for to := s.rec.At(); to > floor; size = min(8*size, most) {
		from := to - min(to-floor, size)
		if err := s.rec.Seek(ctx, from-min(from, 1)); err != nil {
			return Stop{}, err
		}
		trail := s.trail(v)
		found, before := uint64(math.MaxUint64), began
		if from > 0 {
			before, _ = s.look(v)
		}
		for {
			if err := ctx.Err(); err != nil {
				return Stop{}, err
			}
			if _, err := s.advance(ctx, to, m, began, v, trail, false); err != nil {
				return Stop{}, err
			}
			if s.rec.At() >= to {
				break
			}
			now, line := s.look(v)
			if s.wanted(m, began, before, now, trail.enter(now, line)) {
				found = s.rec.At()
			}
			before = now
		}
		if found != math.MaxUint64 {
			if err := s.rec.Seek(ctx, found); m != Continue || err != nil {
				return Stop{Reason: Stepped}, err
			}
			return Stop{Hit, s.inScript(true)}, nil
		}
		to = from
	}
	return otherwise, s.rec.Seek(ctx, floor)
}
