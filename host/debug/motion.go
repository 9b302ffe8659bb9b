package debug

import (
	"cmp"
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

// spot is what is known of an instruction.
type spot struct {
	known    bool    // whether it has a line, of any file; those that the rewriter has added have none
	chain    []entry // the functions of the user that run there, outermost first
	function string  // the innermost of them
	begins   bool    // whether it is a good place to stop in the line of the innermost
	own      bool    // whether its function has lines of the user anywhere
}

// entry is a function in a spot: how many functions around it are inlined, and its line.
type entry struct {
	inlined int
	line    int32 // -1 before the first statement
}

// innermost returns the level of the innermost function of the user, if there is any, and its line or 0.
func (h spot) innermost(depth int) (level, int32) {
	if len(h.chain) == 0 {
		return level{depth: depth}, 0
	}
	last := h.chain[len(h.chain)-1]
	return level{depth, last.inlined}, last.line
}

// lineID returns a number for a line to stop in, or 0.
func (s *Session) lineID(p Place) int32 {
	if p.Line == 0 || strings.HasPrefix(p.File, "<frozen ") || p.File == "<string>" || s.own != nil && !s.own[p.File] {
		return 0
	}
	at := Place{File: p.File, Line: p.Line}
	id, ok := s.lines[at]
	if !ok {
		s.byID = append(s.byID, at)
		id = int32(len(s.byID))
		s.lines[at] = id
	}
	return id
}

// spot describes the instruction at an offset of the rewritten module. All of it follows from the offset:
// so a line begins at the same places for motions in both directions.
func (s *Session) spot(rewritten uint32) (here spot) {
	here, ok := s.spots[rewritten]
	if ok {
		return here
	}
	if offset, ok := s.offsets.Original(rewritten); ok {
		places := s.table.Lines(offset)
		function, _ := s.function(offset)
		here.own = s.ownFunctions[function]
		here.known = len(places) > 0 && places[0].Line > 0
		for i, p := range slices.Backward(places) {
			line := s.lineID(p)
			if line == 0 {
				continue
			}
			here.begins = s.table.Statement(offset)
			if i == 0 && !here.begins { // it belongs to the statement before it
				p.Line = s.table.StatementBefore(offset)
				line = cmp.Or(s.lineID(p), -1)
			}
			here.function = p.Function
			here.chain = append(here.chain, entry{len(places) - 1 - i, line})
		}
	}
	s.spots[rewritten] = here
	return here
}

// memory returns a view of all memory.
func (s *Session) memory() []byte {
	memory, _ := s.rec.Read(0, s.rec.Size())
	return memory
}

// trail has the functions of the user on the stack, outermost first.
type trail []runningCall

type runningCall struct {
	depth int
	chain []entry
}

// enter takes the next instruction, and reports whether a line begins there. To return into the
// middle of a line does not begin it.
func (t *trail) enter(depth int, here spot) bool {
	if depth == 0 { // in a function of the interpreter, the calls of the script are not known
		return false
	}
	for len(*t) > 0 && (*t)[len(*t)-1].depth > depth {
		*t = (*t)[:len(*t)-1]
	}
	if !here.known {
		return false
	}
	var before []entry
	if last := len(*t) - 1; last >= 0 && (*t)[last].depth == depth {
		before, *t = (*t)[last].chain, (*t)[:last]
	}
	if len(here.chain) > 0 {
		*t = append(*t, runningCall{depth, here.chain})
	}
	return here.begins && !slices.Equal(before[:min(len(here.chain), len(before))], here.chain)
}

// trail returns the lines of the present stack.
func (s *Session) trail(script bool) (t trail) {
	if script {
		_, depth := s.table.Innermost(s.memory())
		for i, p := range slices.Backward(s.table.Interpreted(s.memory())) {
			t.enter(depth-i, s.scriptSpot(p.Place))
		}
		return t
	}
	frames := s.rec.Frames()
	for i, f := range slices.Backward(frames) {
		t.enter(len(frames)-i, s.spot(f.Offset))
	}
	return t
}

// scriptSpot describes a place in the script. One that is not the user's is as unknown as an instruction
// that the rewriter has added.
func (s *Session) scriptSpot(p Place) (here spot) {
	if line := s.lineID(p); line > 0 {
		here = spot{known: true, begins: true, function: p.Function, chain: []entry{{line: line}}}
	}
	return here
}

// block has the lines of instructions that run one after the other, without a branch or a call. A
// compiler mixes the instructions of such lines: only a line beyond those before it begins there.
type block struct {
	fuel uint64
	seen map[int32]bool
	last map[part]int // the last line of each part
}

// part is a file's part in a function that runs.
type part struct {
	level
	function, file string
}

// enter takes the next instruction, and reports whether its line may begin there.
func (b *block) enter(fuel uint64, at level, function string, id int32, line Place) bool {
	if b.seen == nil || fuel != b.fuel {
		*b = block{fuel, map[int32]bool{}, map[part]int{}}
	}
	here := part{at, function, line.File}
	beyond := !b.seen[id] && line.Line > b.last[here]
	b.seen[id], b.last[here] = true, max(b.last[here], line.Line)
	return beyond
}

// motion is a motion under way. It ends at the first place, or going back at the last one, that
// ends finds.
type motion struct {
	*Session
	kind   Motion
	script bool         // it looks at the script that the module interprets
	breaks machine.Stop // the breakpoints in the module

	// Where it began.
	began  level
	frames map[uint32]bool // of the script, on the stack

	// The place where it is.
	trail    trail
	block    block
	now      level
	line     int32
	spot     spot
	place    Place // in the script
	follower source.Follower
	pulse    [3]uint32 // what the interpreter changes when it goes on
}

// look looks at the next instruction. In the middle of a call, and in a function of the interpreter,
// the depth of the script is not known: zero.
func (m *motion) look() {
	depth := m.rec.Depth()
	if m.script {
		var place Place
		place, depth, m.pulse, _ = m.follower.Look(m.memory())
		m.spot, m.place = m.scriptSpot(place), place
	} else {
		offset, _ := m.rec.Where()
		m.spot = m.Session.spot(offset)
	}
	m.now, m.line = m.spot.innermost(depth)
}

// Move moves a session to the next such place, or back to the last one. When ctx ends, the session
// is where it was, and the reason is Interrupted.
func (s *Session) Move(ctx context.Context, kind Motion, back bool) (Stop, error) {
	m := &motion{Session: s, kind: kind, script: s.interpreted() && kind != Continue}
	for _, b := range s.breaks {
		m.breaks.Offsets = append(m.breaks.Offsets, b.rewritten...)
		if b.Size > 0 {
			m.breaks.Writes = append(m.breaks.Writes, machine.Range{Addr: b.Address, Len: b.Size})
		}
		m.script = m.script || b.script != (Place{})
	}
	m.script = m.script && kind != Instruction
	m.follower.Table = s.table
	m.look()
	m.began = m.now
	if m.script && kind == Over {
		m.frames = map[uint32]bool{}
		for _, frame := range s.table.Stack(s.memory()) {
			m.frames[frame] = true
		}
	}
	if kind == Over && len(s.trail(m.script)) == 0 { // no function of the user runs
		m.kind = Line
	}
	return s.undoing(ctx, func() (Stop, error) {
		if back {
			return m.backwards(ctx)
		}
		_, stop, err := m.scan(ctx, s.rec.At(), s.rec.End(), false)
		stop.Reason = cmp.Or(stop.Reason, Ending)
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
		at, stop, err := m.scan(ctx, from-min(from, 1), to, true)
		if err != nil || stop.Reason != "" {
			return stop, errors.Join(err, m.rec.Seek(ctx, at))
		}
		to = from
	}
	return known, m.rec.Seek(ctx, floor)
}

// scan executes from one position up to another, and returns the first place in between that ends the
// motion, or the last one before the other. It stays there, or at the position.
func (m *motion) scan(ctx context.Context, from, to uint64, last bool) (found uint64, stop Stop, err error) {
	err = m.rec.Seek(ctx, from)
	begins, before := m.rec.At(), uint64(0)
	switch {
	case err != nil:
	case m.script:
		before = 1 << 14 // enough for an interpreter to say where it is
	case m.kind == Line || m.kind == Over: // the lines of the block before it matter
		before = 32 // enough for an instruction of the module, behind what the rewriter adds to each block
		err = m.rec.SeekFuel(ctx, m.rec.Fuel())
		begins = min(m.rec.At(), from)
	}
	if err == nil && before > 0 {
		err = m.rec.Seek(ctx, begins-min(begins, before))
	}
	if err != nil {
		return 0, Stop{}, err
	}
	m.follower = source.Follower{Table: m.table}
	m.trail, m.block = m.Session.trail(m.script), block{}
	m.look()
	for m.rec.At() < from {
		until, conditions := m.next(from)
		if _, err := m.rec.Run(ctx, until, conditions); err != nil {
			return 0, Stop{}, err
		}
		m.ends(false, false)
	}
	for m.rec.At() < to {
		until, conditions := m.next(to)
		why, err := m.rec.Run(ctx, until, conditions)
		if err != nil {
			return 0, Stop{}, err
		}
		m.follower.Wrote = 0
		if why == machine.Written {
			m.follower.Wrote = m.rec.Hit().Addr
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
	within := 0
	if n := len(m.trail); n > 0 {
		within = m.trail[n-1].depth
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
	case m.kind != Instruction && m.line == 0 && !m.spot.own && m.now.depth > within && (within > 0 || m.kind == Line):
		s.Below = within + 1 // in code of others, until it calls back or returns
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
	m.look()
	begins := m.trail.enter(m.now.depth, m.spot) && !(m.script && m.follower.Resumed)
	if !m.script && m.line > 0 {
		beyond := m.block.enter(m.rec.Fuel(), m.now, m.spot.function, m.line, m.byID[m.line-1])
		begins = begins && beyond
	}
	switch {
	case stop.Reason != "" || m.now.depth == 0 || !breakpoints || !arrives:
	case m.script && begins && m.inScript(m.place, m.follower.Called) != nil:
		stop = Stop{Hit, m.inScript(m.place, m.follower.Called)}
	case m.kind == Out && m.now.above(m.began), m.kind == Line && begins,
		m.kind == Over && begins && (m.frames[m.follower.Function] || !m.script && !m.began.above(m.now)):
		stop.Reason = Stepped
	}
	return stop
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
