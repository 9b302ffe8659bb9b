package debug

import (
	"context"
	"errors"
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

// spot is what is known of an instruction: how many functions are inlined there, and the line, or 0.
type spot struct {
	inlined int
	line    int32
}

type sourceLine struct {
	file string
	line int
}

// lineID returns a number for a line to stop in, or 0.
func (s *Session) lineID(p Place) int32 {
	if p.Line == 0 || strings.HasPrefix(p.File, "<frozen ") || p.File == "<string>" || s.own != nil && !s.own[p.File] {
		return 0
	}
	at := sourceLine{p.File, p.Line}
	id, ok := s.lines[at]
	if !ok {
		s.byID = append(s.byID, at)
		id = int32(len(s.byID))
		s.lines[at] = id
	}
	return id
}

// spot describes the instruction at an offset of the rewritten module.
func (s *Session) spot(rewritten uint32) spot {
	known, ok := s.spots[rewritten]
	if ok {
		return known
	}
	if offset, ok := s.offsets.Original(rewritten); ok {
		places := s.table.Lines(offset)
		for i, p := range places {
			if known.line = s.lineID(p); known.line > 0 {
				known.inlined = len(places) - 1 - i
				break
			}
		}
		if !s.table.Statement(offset) {
			known.line = 0
		}
	}
	s.spots[rewritten] = known
	return known
}

// memory returns a view of all memory.
func (s *Session) memory() []byte {
	memory, _ := s.rec.Read(0, s.rec.Size())
	return memory
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
func (s *Session) trail(script bool) (t trail) {
	if script {
		_, depth := s.table.Innermost(s.memory())
		for i, p := range slices.Backward(s.table.Interpreted(s.memory())) {
			t.enter(level{depth: depth - i}, s.lineID(p.Place))
		}
		return t
	}
	frames := s.rec.Frames()
	for i, f := range slices.Backward(frames) {
		if offset, ok := s.offsets.Original(f.Offset); ok {
			places := s.table.Lines(offset)
			for j, p := range slices.Backward(places) {
				t.enter(level{len(frames) - i, len(places) - 1 - j}, s.lineID(p))
			}
		}
	}
	return t
}

// motion is a motion under way. It ends at the first place, or going back at the last one, that
// ends finds.
type motion struct {
	*Session
	kind   Motion
	back   bool
	script bool         // it looks at the script that the module interprets
	breaks machine.Stop // the breakpoints in the module

	// Where it began.
	began level
	from  int32 // line
	fuel  uint64

	// The place where it is.
	trail    trail
	now      level
	line     int32
	follower source.Follower
	pulse    [3]uint32 // what the interpreter changes when it goes on
}

// look returns the level and the line of the next instruction. In the middle of a call, and in a function of the interpreter, the level of the script is not known: zero.
func (m *motion) look() (level, int32) {
	if m.script {
		place, depth, pulse, _ := m.follower.Look(m.memory())
		m.pulse = pulse
		return level{depth: depth}, m.lineID(place)
	}
	offset, _ := m.rec.Where()
	here := m.spot(offset)
	return level{m.rec.Depth(), here.inlined}, here.line
}

// Move moves a session to the next such place, or back to the last one. When ctx ends, the session
// is where it was, and the reason is Interrupted.
func (s *Session) Move(ctx context.Context, kind Motion, back bool) (Stop, error) {
	m := &motion{Session: s, kind: kind, back: back, fuel: s.rec.Fuel(), script: s.interpreted() && kind != Continue}
	for _, b := range s.breaks {
		m.breaks.Offsets = append(m.breaks.Offsets, b.rewritten...)
		if b.Size > 0 {
			m.breaks.Writes = append(m.breaks.Writes, machine.Range{Addr: b.Address, Len: b.Size})
		}
		m.script = m.script || b.script != (Place{})
	}
	m.script = m.script && kind != Instruction
	m.follower.Table = s.table
	m.began, _ = m.look()
	if t := s.trail(m.script); len(t) > 0 {
		m.from = t[len(t)-1].line
	} else if kind == Over { // no function of the user runs
		m.kind = Line
	}
	return s.undoing(ctx, func() (Stop, error) {
		if back {
			return m.backwards(ctx)
		}
		_, stop, err := m.scan(ctx, s.rec.End(), false)
		if stop.Reason == "" {
			stop.Reason = Ending
		}
		return stop, err
	})
}

// backwards executes windows before the present place again, of growing size, and goes to the last
// place in them that ends the motion. It need not look before a place that is known without.
func (m *motion) backwards(ctx context.Context) (Stop, error) {
	began, floor, known := m.rec.At(), uint64(0), Stop{Reason: Beginning}
	for _, b := range m.Session.breaks {
		for _, at := range b.places {
			if at < began && at >= floor {
				floor, known = at, Stop{Hit, b}
			}
		}
		if m.kind == Continue && b.Size > 0 {
			at, ok, err := m.rec.LastWrite(ctx, began, machine.Range{Addr: b.Address, Len: b.Size})
			if err != nil {
				return Stop{}, err
			}
			if ok && at >= floor {
				floor, known = at, Stop{Written, b}
			}
		}
	}
	const least, most = 1 << 12, 1 << 24
	size := uint64(least)
	if m.kind == Instruction {
		size = 1 << 5
	}
	looks := m.kind != Continue || m.script || len(m.breaks.Offsets) > 0
	for to := began; looks && to > floor; size = min(8*size, most) {
		from := to - min(to-floor, size)
		if err := m.rec.Seek(ctx, from-min(from, 1)); err != nil {
			return Stop{}, err
		}
		at, stop, err := m.scan(ctx, to, true)
		if err != nil || stop.Reason != "" {
			return stop, errors.Join(err, m.rec.Seek(ctx, at))
		}
		to = from
	}
	return known, m.rec.Seek(ctx, floor)
}

// scan executes up to a position, and returns the first place that ends the motion, or the last one
// before the position. It stays there, or at the position.
func (m *motion) scan(ctx context.Context, to uint64, last bool) (found uint64, stop Stop, err error) {
	m.follower = source.Follower{Table: m.table}
	m.trail = m.Session.trail(m.script)
	m.now, m.line = m.look()
	for m.rec.At() < to {
		until, conditions := m.next(to)
		why, err := m.rec.Run(ctx, until, conditions)
		if err != nil {
			return 0, Stop{}, err
		}
		at := m.rec.At()
		ends := m.ends(at < to || !last, at < m.rec.End())
		if why == machine.Written && m.watched() != nil && (ends.Reason == "" || ends.Reason == Stepped && !last) {
			ends = Stop{Written, m.watched()}
			if last { // and goes before it
				at--
			}
		}
		if ends.Reason != "" {
			if found, stop = at, ends; !last {
				break
			}
		}
	}
	return found, stop, nil
}

// next returns how far the machine may run before something changes that the motion looks at.
// Functions that it need not look into run at full speed.
func (m *motion) next(to uint64) (until uint64, s machine.Stop) {
	for _, b := range m.Session.breaks {
		for _, at := range b.places {
			if at > m.rec.At() {
				to = min(to, at)
			}
		}
	}
	s = machine.Stop{Offsets: m.breaks.Offsets, Writes: slices.Clip(m.breaks.Writes)}
	within := level{}
	if n := len(m.trail); n > 0 {
		within = m.trail[n-1].level
	}
	switch {
	case m.script:
		for _, address := range m.pulse {
			s.Writes = append(s.Writes, machine.Range{Addr: address, Len: 4})
		}
	case m.kind == Continue:
	case m.kind >= Over && m.now.depth > m.began.depth:
		s.Below = m.began.depth + 1
	case m.kind == Out && m.now == m.began && m.began.inlined == 0:
		s.Below = m.began.depth
	case m.kind != Instruction && m.line == 0 && m.now.depth > within.depth && (within.depth > 0 || m.kind == Line):
		s.Below = within.depth + 1 // in code of others, until it calls back or returns
		if m.kind == Line {
			s.Offsets = slices.Concat(s.Offsets, m.heads)
		}
	default:
		to = min(to, m.rec.At()+1)
	}
	return to, s
}

// ends describes why the motion may end at the present place: there is a breakpoint, or it has arrived.
func (m *motion) ends(breakpoints, arrives bool) (stop Stop) {
	if b := m.here(); b != nil && breakpoints {
		stop = Stop{Hit, b}
	}
	switch offset, first := m.rec.Where(); {
	case m.kind == Instruction:
		if _, ok := m.offsets.Original(offset); ok && first && stop.Reason == "" && breakpoints && arrives {
			stop.Reason = Stepped
		}
		return stop
	case m.kind == Continue && !m.script:
		return stop
	}
	before := m.now
	m.now, m.line = m.look()
	begins := m.trail.enter(m.now, m.line)
	switch {
	case stop.Reason != "" || m.now.depth == 0 || !breakpoints || !arrives:
	case m.script && begins && m.inScript(before.above(m.now)) != nil:
		stop = Stop{Hit, m.inScript(before.above(m.now))}
	case !m.script && m.kind != Out && m.mixed():
	case m.kind == Out && m.now.above(m.began), m.kind == Over && begins && !m.began.above(m.now), m.kind == Line && begins:
		stop.Reason = Stepped
	}
	return stop
}

// mixed reports whether the line is not beyond the one where the motion began, in code without a
// branch: a compiler mixes the instructions of such lines.
func (m *motion) mixed() bool {
	if m.from == 0 || m.line == 0 || m.now != m.began || m.rec.Fuel() != m.fuel {
		return false
	}
	from, to := m.byID[m.from-1], m.byID[m.line-1]
	return from.file == to.file && (m.back && to.line >= from.line || !m.back && to.line <= from.line)
}

// Goto moves a session to a position.
func (s *Session) Goto(ctx context.Context, at uint64) (Stop, error) {
	return s.jump(ctx, func() error { return s.rec.Seek(ctx, min(at, s.rec.End())) })
}

// GotoFuel moves a session to the first instruction before which that much fuel is spent.
func (s *Session) GotoFuel(ctx context.Context, fuel uint64) (Stop, error) {
	return s.jump(ctx, func() error { return s.rec.SeekFuel(ctx, fuel) })
}

func (s *Session) jump(ctx context.Context, to func() error) (Stop, error) {
	return s.undoing(ctx, func() (Stop, error) {
		err := to()
		if s.rec.At() == s.rec.End() {
			return Stop{Reason: Ending}, err
		}
		return Stop{Reason: Stepped}, err
	})
}

// LastWrite moves a session back to the instruction that wrote last to n bytes at an address. The
// reason is Beginning, and the session stays, if the call wrote nothing there before.
func (s *Session) LastWrite(ctx context.Context, address, n uint32) (Stop, error) {
	return s.undoing(ctx, func() (Stop, error) {
		at, ok, err := s.rec.LastWrite(ctx, s.rec.At(), machine.Range{Addr: address, Len: n})
		if err != nil || !ok {
			return Stop{Reason: Beginning}, err
		}
		return Stop{Reason: Written}, s.rec.Seek(ctx, at)
	})
}

// undoing returns to where a motion began if it was interrupted.
func (s *Session) undoing(ctx context.Context, move func() (Stop, error)) (Stop, error) {
	began := s.rec.At()
	stop, err := move()
	if err == nil {
		return stop, nil
	}
	if again := s.rec.Seek(context.WithoutCancel(ctx), began); again != nil || ctx.Err() == nil {
		return Stop{}, errors.Join(err, again)
	}
	return Stop{Reason: Interrupted}, nil
}

// interpreted reports whether the module is an interpreter of a script.
func (s *Session) interpreted() bool {
	return s.table.Format() == source.Python || s.table.Format() == source.JavaScript
}
