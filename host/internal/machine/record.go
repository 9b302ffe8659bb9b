package machine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/starling-host/starling/internal/lists"
)

// Bounds of a recording. Beyond them it keeps half as many snapshots, twice as far apart, or ends
// the call.
const (
	mostSnapshots = 512
	mostPages     = 512 << 20 / pageBytes // in all snapshots
	mostJournal   = 512 << 20             // bytes of what the host answered

	chunk = 1 << 22 // operations between two looks at the context
)

// ErrJournal ends a recorded call whose host answers too much.
var ErrJournal = errors.New("the host's answers to this call are too many to keep")

// errReplay is a defect of this package: an execution from a snapshot went another way.
var errReplay = errors.New("machine: an execution from a snapshot differs from the recorded one")

// Recording is a recorded call. Its positions are the states between two operations: 0 is before the
// first, and End before the one that ended the call, which returned from the export, trapped, or called
// a host that did not return. It stands at one of them, in the beginning at End. It needs neither the
// host nor the instance's owner any more. It serves one goroutine.
type Recording struct {
	m         *Machine
	end       uint64
	finished  bool
	snapshots []*snapshot // in the order of their positions, from 0
	base      []*page     // memory at the last snapshot, taken or restored
	journal   []entry
	next      int   // entry of the journal
	kept      int   // bytes of the journal
	copied    int   // pages in the snapshots
	answering bool  // by the host
	failed    error // see errReplay

	offsets []uint32    // of breakpoints,
	broken  []*function // and all functions with them
}

type page [pageBytes]byte

// snapshot is a state. A page that is zero is nil.
type snapshot struct {
	at      uint64
	place   place
	frames  []place
	slots   []uint64
	globals []uint64
	pages   []*page
	next    int
}

// entry is what the host did in one call.
type entry struct {
	at      uint64
	fn      uint32
	slot    uint64 // the first, which has the result
	fuel    uint64 // at the call
	globals []uint64
	writes  []write
}

type write struct {
	at   uint32
	data []byte
}

// Record makes the machine record the calls that follow, with a snapshot every so many operations.
// Zero chooses a distance that takes some milliseconds to execute. It must not be in a call.
func (m *Machine) Record(every uint64) { m.every = cmp.Or(every, 1<<19) }

// Recording returns the recording of the last call, or nil. The machine becomes part of it and must not be used any
// more. The state at the end is executed again, since what ended the call may have changed it.
func (m *Machine) Recording() *Recording {
	if r := m.recording; r != nil && !r.finished {
		r.end, r.finished = m.at, true
		r.restore(r.snapshots[len(r.snapshots)-1])
		_, r.failed = r.forward(context.Background(), r.end)
		r.snap()
	}
	return m.recording
}

// record executes a call to its end.
func (m *Machine) record(ctx context.Context) error {
	r, every := &Recording{m: m}, m.every
	m.recording = r
	var zero page
	for p := range m.barrier { // the first snapshot has the other pages
		if m.barrier[p] = 0; bytes.Equal(m.page(p), zero[:]) {
			m.barrier[p] = isClean
		}
	}
	r.snap()
	var done bool
	var err error
	for !done && err == nil {
		if done, err = m.protected(every); err == nil && !done {
			r.snap()
			if len(r.snapshots) > mostSnapshots || r.copied > mostPages {
				r.thin()
				every *= 2
			}
			err = ctx.Err()
		}
	}
	if r.answering { // a host that did not return
		r.answering = false
		r.journal = r.journal[:len(r.journal)-1]
	}
	return err
}

// The bits of a page's barrier.
const (
	isClean   = 1 // not written since the last snapshot
	isWatched = 2
)

// written notices a write to pages with a barrier. It reports whether to stop.
func (m *Machine) written(at, n uint64) bool {
	if n == 0 {
		return false
	}
	for p := at >> pageBits; p <= (at+n-1)>>pageBits; p++ {
		m.barrier[p] &^= isClean
	}
	for _, w := range m.watched {
		if at < uint64(w.Addr)+uint64(w.Len) && uint64(w.Addr) < at+n {
			m.reason, m.hit = Written, w
			return true
		}
	}
	return false
}

// watch sets the barrier of the watched pages that memory has, or takes it away.
func (m *Machine) watch(watched bool) {
	for _, w := range m.watched {
		for p := w.Addr >> pageBits; uint64(p) < w.end() && int(p) < len(m.barrier); p++ {
			if m.barrier[p] &^= isWatched; watched {
				m.barrier[p] |= isWatched
			}
		}
	}
}

// answer lets the host answer, and keeps that in the journal; or answers from the journal.
func (r *Recording) answer(f *function, slots []uint64) {
	m := r.m
	if !r.finished {
		if r.kept += 128 + 8*len(m.globals); r.kept > mostJournal {
			panic(ErrJournal)
		}
		r.journal = append(r.journal, entry{at: m.at, fn: f.index, fuel: r.Fuel()})
		r.answering = true
		m.hosts[f.host](slots)
		r.answering = false
		e := &r.journal[len(r.journal)-1]
		e.slot, e.globals = slots[0], slices.Clone(m.globals)
		return
	}
	if r.next >= len(r.journal) || r.journal[r.next].at != m.at || r.journal[r.next].fn != f.index {
		panic(errReplay)
	}
	e := &r.journal[r.next]
	r.next++
	slots[0] = e.slot
	copy(m.globals, e.globals)
	if r.Fuel() >= m.fuelStop {
		m.reason = Fuel
	}
	for _, w := range e.writes {
		copy(m.mem[w.at:], w.data)
		m.written(uint64(w.at), uint64(len(w.data)))
	}
}

// snap keeps the state.
func (r *Recording) snap() {
	m := r.m
	if n := len(r.snapshots); n > 0 && r.snapshots[n-1].at == m.at {
		return
	}
	pages := make([]*page, len(m.barrier))
	copy(pages, r.base)
	for p := range pages {
		if m.barrier[p]&isClean == 0 {
			pages[p] = (*page)(slices.Clone(m.page(p)))
			m.barrier[p] |= isClean
			r.copied++
		}
	}
	r.base = pages
	r.snapshots = append(r.snapshots, &snapshot{
		at: m.at, place: m.place, frames: slices.Clone(m.frames), slots: slices.Clone(m.stack[:m.fp+m.funcs[m.fn].size]),
		globals: slices.Clone(m.globals), pages: pages, next: len(r.journal),
	})
}

// thin drops every other snapshot.
func (r *Recording) thin() {
	kept := r.snapshots[:0]
	var before []*page
	r.copied = 0
	for i, s := range r.snapshots {
		if i%2 == 1 {
			continue
		}
		for p := range s.pages {
			if s.pages[p] != nil && (p >= len(before) || before[p] != s.pages[p]) {
				r.copied++
			}
		}
		kept, before = append(kept, s), s.pages
	}
	clear(r.snapshots[len(kept):])
	r.snapshots = kept
}

// restore goes to a snapshot.
func (r *Recording) restore(s *snapshot) {
	m := r.m
	m.resize(len(s.pages) << pageBits)
	m.place, m.frames, m.at, r.next = s.place, append(m.frames[:0], s.frames...), s.at, s.next
	copy(m.stack, s.slots)
	copy(m.globals, s.globals)
	for p, kept := range s.pages {
		if before := p < len(r.base) && r.base[p] == kept || p >= len(r.base) && kept == nil; before && m.barrier[p]&isClean != 0 {
			continue
		}
		if clear(m.page(p)); kept != nil {
			copy(m.page(p), kept[:])
		}
		m.barrier[p] |= isClean
	}
	r.base = s.pages
}

// before returns the number of the last snapshot at or before a position.
func (r *Recording) before(at uint64) int {
	return sort.Search(len(r.snapshots), func(i int) bool { return r.snapshots[i].at > at }) - 1
}

// A Range is Len bytes of memory from Addr.
type Range struct{ Addr, Len uint32 }

// end returns the number of the page behind the range.
func (w Range) end() uint64 { return (uint64(w.Addr) + uint64(w.Len) + pageBytes - 1) >> pageBits }

// Stop are the conditions at which an execution stops. Zero values are none.
type Stop struct {
	Offsets []uint32 // before the first operation of an instruction at one of these offsets in the module, or behind it
	Writes  []Range  // after a write to one of these
	Fuel    uint64   // once that much fuel has been spent
	Below   int      // once fewer frames than this are left
}

// Reason is why an execution stopped.
type Reason int

// The reasons.
const (
	Position Reason = iota // it has reached the position that was asked for, or the end
	Offset
	Written
	Fuel
	Returned
)

// End returns the last position.
func (r *Recording) End() uint64 { return r.end }

// At returns the position.
func (r *Recording) At() uint64 { return r.m.at }

// Fuel returns the fuel that has been spent.
func (r *Recording) Fuel() uint64 { return r.m.Fuel() }

// locate returns the first operation at or behind an offset, in the same function. The first operation
// of a function may be behind its first instruction.
func (c *Code) locate(offset uint32) (f *function, pc int) {
	functions := c.funcs[len(c.Imports):]
	i := sort.Search(len(functions), func(i int) bool { return len(functions[i].offsets) > 0 && functions[i].offsets[0] > offset }) - 1
	if i >= 0 {
		f = functions[i]
		if pc = sort.Search(len(f.offsets), func(i int) bool { return f.offsets[i] >= offset }); pc < len(f.offsets) {
			return f, pc
		}
	}
	if i+1 == len(functions) {
		return nil, 0
	}
	return functions[i+1], 0
}

// Operation returns the offset at which a breakpoint at the given one stops, as Where returns it, and
// whether there is an operation.
func (r *Recording) Operation(offset uint32) (uint32, bool) {
	f, pc := r.m.code.locate(offset)
	if f == nil {
		return 0, false
	}
	return f.offsets[pc], true
}

// breakAt puts breakpoints at offsets, into copies of their functions.
func (r *Recording) breakAt(offsets []uint32) {
	code := r.m.code
	if r.broken == nil || !slices.Equal(r.offsets, offsets) {
		r.offsets, r.broken = slices.Clone(offsets), slices.Clone(code.funcs)
		for _, offset := range offsets {
			f, pc := code.locate(offset)
			if f == nil {
				continue
			}
			if r.broken[f.index] == f {
				copied := *f
				copied.code, r.broken[f.index] = slices.Clone(f.code), &copied
			}
			r.broken[f.index].code[pc].op = opBreak
		}
	}
	r.m.funcs = r.broken
}

// forward executes up to a position, or to what stops the machine.
func (r *Recording) forward(ctx context.Context, until uint64) (Reason, error) {
	m := r.m
	for m.reason = Position; m.at < until && m.reason == Position; {
		if err := cmp.Or(r.failed, ctx.Err()); err != nil {
			return Position, err
		}
		if done, err := m.protected(min(until-m.at, chunk)); done || err != nil {
			return Position, errors.Join(errReplay, err)
		}
	}
	reason := m.reason
	m.reason = Position
	return reason, nil
}

// Run executes from the position to another one, at most to End, unless it stops before. It executes at
// least one operation. A breakpoint stops before its instruction; all else stops behind the operation that
// caused it.
func (r *Recording) Run(ctx context.Context, until uint64, s Stop) (Reason, error) {
	m := r.m
	until = min(until, r.end)
	m.watched, m.below, m.fuelStop = s.Writes, s.Below-1, cmp.Or(s.Fuel, math.MaxUint64)
	m.watch(true)
	defer func() {
		m.watch(false)
		m.watched, m.below, m.fuelStop, m.funcs = nil, 0, math.MaxUint64, m.code.funcs
	}()
	reason, err := r.forward(ctx, min(m.at+1, until)) // even if there is a breakpoint
	if err != nil || reason != Position || m.at >= until {
		return reason, err
	}
	if len(s.Offsets) > 0 {
		r.breakAt(s.Offsets)
	}
	return r.forward(ctx, until)
}

// Seek goes to a position.
func (r *Recording) Seek(ctx context.Context, at uint64) error {
	if at > r.end {
		return fmt.Errorf("the call ends at position %d, before %d", r.end, at)
	}
	if s := r.snapshots[r.before(at)]; r.m.at > at || r.m.at < s.at {
		r.restore(s)
	}
	_, err := r.forward(ctx, at)
	return err
}

// SeekFuel goes to the first position at which that much fuel has been spent, or to End.
func (r *Recording) SeekFuel(ctx context.Context, fuel uint64) error {
	i := sort.Search(len(r.snapshots), func(i int) bool { return r.m.code.fuel >= 0 && r.snapshots[i].globals[r.m.code.fuel] >= fuel })
	r.restore(r.snapshots[max(i-1, 0)])
	if r.Fuel() >= fuel {
		return nil
	}
	_, err := r.Run(ctx, r.end, Stop{Fuel: fuel})
	return err
}

// LastWrite returns the position before the last write, before a position, to some bytes. It stays
// where it is. It is false if the call did not write them.
func (r *Recording) LastWrite(ctx context.Context, before uint64, w Range) (at uint64, ok bool, err error) {
	here := r.m.at
	err = ctx.Err()
	for i := r.before(before); i >= 0 && !ok && err == nil; i-- {
		s := r.snapshots[i]
		if i+1 < len(r.snapshots) && r.snapshots[i+1].at <= before && slices.Equal(s.within(w), r.snapshots[i+1].within(w)) {
			continue // nothing was written to the page in between
		}
		r.restore(s)
		end := before
		if i+1 < len(r.snapshots) {
			end = min(end, r.snapshots[i+1].at)
		}
		for r.m.at < end && err == nil {
			var why Reason
			if why, err = r.Run(ctx, end, Stop{Writes: []Range{w}}); why == Written {
				at, ok = r.m.at-1, true
			}
		}
	}
	return at, ok && err == nil, errors.Join(err, r.Seek(context.WithoutCancel(ctx), here))
}

// within returns the pages of a range. What is written to is another page in the next snapshot.
func (s *snapshot) within(w Range) []*page {
	end := min(w.end(), uint64(len(s.pages)))
	return s.pages[min(uint64(w.Addr)>>pageBits, end):end]
}

// Hit returns which of the watched ranges the last stop at a write was for.
func (r *Recording) Hit() Range { return r.m.hit }

// Frame is one function on the call stack.
type Frame struct {
	Offset uint32   // of its instruction, in the executed module
	Locals []uint64 // parameters first
}

// Where returns the offset of the next instruction in the executed module, and whether the next
// operation is its first.
func (r *Recording) Where() (offset uint32, first bool) {
	offsets, pc := r.m.code.funcs[r.m.fn].offsets, r.m.pc
	return offsets[pc], pc == 0 || offsets[pc-1] != offsets[pc]
}

// Depth returns the number of frames.
func (r *Recording) Depth() int { return len(r.m.frames) + 1 }

// Frames returns the call stack, the function that runs first.
func (r *Recording) Frames() []Frame {
	m := r.m
	all := make([]Frame, 0, r.Depth())
	for i := len(m.frames); i >= 0; i-- {
		at := m.place
		if i < len(m.frames) {
			at = m.frames[i]
			at.pc-- // the call
		}
		f := m.code.funcs[at.fn]
		all = append(all, Frame{f.offsets[at.pc], slices.Clone(m.stack[at.fp : at.fp+f.locals])})
	}
	return all
}

// Read returns a view of memory that is valid until the position changes.
func (r *Recording) Read(addr, n uint32) ([]byte, bool) { return r.m.Read(addr, n) }

// Size returns the size of memory in bytes.
func (r *Recording) Size() uint32 { return r.m.Size() }

// Globals returns a copy of the globals by their index in the executed module.
func (r *Recording) Globals() []uint64 { return slices.Clone(r.m.globals) }

// Effect is one call of the host.
type Effect struct {
	At   uint64
	Fuel uint64 // that had been spent
	Name string
}

// Effects lists the calls of the host that returned.
func (r *Recording) Effects() []Effect {
	return lists.Map(r.journal, func(e entry) Effect { return Effect{e.at, e.fuel, r.m.code.Imports[r.m.code.funcs[e.fn].host].Name} })
}
