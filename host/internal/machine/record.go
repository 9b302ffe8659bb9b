package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
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
	dirty     []uint32    // pages written since
	journal   []entry
	next      int  // entry of the journal
	kept      int  // bytes of the journal
	copied    int  // pages in the snapshots
	answering bool // by the host
	hit       Range
	failed    error // see errReplay
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
func (m *Machine) Record(every uint64) {
	m.every = every
	if every == 0 {
		m.every = 1 << 19
	}
}

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

func newRecording(m *Machine) *Recording {
	r := &Recording{m: m}
	m.recording = r
	for p := range m.barrier {
		m.barrier[p] = isClean
		b := m.mem[p<<pageBits : (p+1)<<pageBits]
		if zero := (page{}); string(b) != string(zero[:]) {
			r.dirty = append(r.dirty, uint32(p))
		}
	}
	r.snap()
	return r
}

// record executes a call to its end.
func (m *Machine) record(ctx context.Context) error {
	r, every := m.recording, m.every
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
	r := m.recording
	if r == nil || n == 0 {
		return false
	}
	for p := at >> pageBits; p <= (at+n-1)>>pageBits; p++ {
		if m.barrier[p]&isClean != 0 {
			m.barrier[p] &^= isClean
			r.dirty = append(r.dirty, uint32(p))
		}
	}
	for _, w := range m.watched {
		if at < uint64(w.Addr)+uint64(w.Len) && uint64(w.Addr) < at+n {
			m.reason, r.hit = Written, w
			return true
		}
	}
	return false
}

// clean sets the barrier of pages that memory has grown by.
func (r *Recording) clean(from, to int) {
	for p := from; p < to; p++ {
		r.m.barrier[p] = isClean
	}
	r.watch(func(b byte) byte { return b | isWatched })
}

func (r *Recording) hostWrote(at uint32, b []byte) {
	if r.answering {
		e := &r.journal[len(r.journal)-1]
		e.writes = append(e.writes, write{at, slices.Clone(b)})
		r.kept += len(b)
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
	pages := make([]*page, len(m.mem)>>pageBits)
	copy(pages, r.base)
	for _, p := range r.dirty {
		pages[p] = (*page)(slices.Clone(m.mem[p<<pageBits : (p+1)<<pageBits]))
		m.barrier[p] |= isClean
	}
	r.copied += len(r.dirty)
	r.base, r.dirty = pages, r.dirty[:0]
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
	put := func(p int) {
		if b := m.mem[p<<pageBits : (p+1)<<pageBits]; s.pages[p] != nil {
			copy(b, s.pages[p][:])
		} else {
			clear(b)
		}
		m.barrier[p] |= isClean
	}
	for _, p := range r.dirty {
		if int(p) < len(s.pages) {
			put(int(p))
		}
	}
	for p := range s.pages {
		if p >= len(r.base) && s.pages[p] != nil || p < len(r.base) && r.base[p] != s.pages[p] {
			put(p)
		}
	}
	r.base, r.dirty = s.pages, r.dirty[:0]
}

// before returns the number of the last snapshot at or before a position.
func (r *Recording) before(at uint64) int {
	return sort.Search(len(r.snapshots), func(i int) bool { return r.snapshots[i].at > at }) - 1
}

// A Range is Len bytes of memory from Addr.
type Range struct{ Addr, Len uint32 }

// Stop are the conditions at which an execution stops. Zero values are none.
type Stop struct {
	Offsets []uint32 // before the first operation of an instruction at one of these offsets in the module, or behind it
	Writes  []Range  // after a write to one of these
	Fuel    uint64   // once that much fuel has been spent
	Below   int      // once fewer frames than this are left
	Above   int      // once a call makes this many frames
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
	Entered
)

// End returns the last position.
func (r *Recording) End() uint64 { return r.end }

// At returns the position.
func (r *Recording) At() uint64 { return r.m.at }

// Fuel returns the fuel that has been spent.
func (r *Recording) Fuel() uint64 {
	if r.m.code.fuel < 0 {
		return 0
	}
	return r.m.globals[r.m.code.fuel]
}

// arm sets what run stops at.
func (r *Recording) arm(s Stop) {
	m := r.m
	m.watched, m.above, m.below, m.fuelStop = s.Writes, s.Above-1, s.Below-1, s.Fuel
	if s.Fuel == 0 {
		m.fuelStop = math.MaxUint64
	}
	r.watch(func(b byte) byte { return b | isWatched })
	m.funcs = m.code.funcs
	for _, offset := range s.Offsets {
		r.breakAt(offset)
	}
}

func (r *Recording) disarm() {
	m := r.m
	r.watch(func(b byte) byte { return b &^ isWatched })
	m.watched, m.above, m.below, m.fuelStop, m.funcs = nil, 0, 0, math.MaxUint64, m.code.funcs
}

// watch changes the barrier of the watched pages that memory has.
func (r *Recording) watch(change func(byte) byte) {
	barrier := r.m.barrier
	for _, w := range r.m.watched {
		for p := uint64(w.Addr) >> pageBits; w.Len > 0 && p <= (uint64(w.Addr)+uint64(w.Len)-1)>>pageBits && p < uint64(len(barrier)); p++ {
			barrier[p] = change(barrier[p])
		}
	}
}

// locate returns the first operation at or behind an offset, in the same function. The first operation
// of a function may be behind its first instruction.
func (m *Machine) locate(offset uint32) (f *function, pc int) {
	functions := m.funcs[len(m.code.Imports):]
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
	f, pc := r.m.locate(offset)
	if f == nil {
		return 0, false
	}
	return f.offsets[pc], true
}

// breakAt puts a breakpoint at an offset, in a copy of the function.
func (r *Recording) breakAt(offset uint32) {
	m := r.m
	at, pc := m.locate(offset)
	if at == nil {
		return
	}
	if &m.funcs[0] == &m.code.funcs[0] {
		m.funcs = slices.Clone(m.funcs)
	}
	if at == m.code.funcs[at.index] {
		copied := *at
		copied.code = slices.Clone(at.code)
		at = &copied
		m.funcs[at.index] = at
	}
	at.code[pc].op = opBreak
}

// forward executes up to a position, or to what is armed.
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

// past executes one operation in spite of a breakpoint.
func (r *Recording) past(ctx context.Context, until uint64) (Reason, error) {
	broken := r.m.funcs
	r.m.funcs = r.m.code.funcs
	reason, err := r.forward(ctx, min(r.m.at+1, until))
	r.m.funcs = broken
	return reason, err
}

// Run executes from the position to another one, at most to End, unless it stops before. It executes at
// least one operation. A breakpoint stops before its instruction; all else stops behind the operation that
// caused it.
func (r *Recording) Run(ctx context.Context, until uint64, s Stop) (Reason, error) {
	until = min(until, r.end)
	r.arm(s)
	defer r.disarm()
	reason, err := r.past(ctx, until)
	if err != nil || reason != Position {
		return reason, err
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

// Back goes back to the last position, not before from, at which something holds: that the next
// instruction is at one of the offsets; that the next operation writes one of the ranges, or makes that
// many frames. If there is none, it goes to from. The other conditions do not count.
func (r *Recording) Back(ctx context.Context, from uint64, s Stop) (Reason, error) {
	s.Fuel, s.Below = 0, 0
	here, end := r.m.at, r.m.at
	found, why := from, Position
	r.arm(s)
	err := func() error {
		defer r.disarm()
		for i := r.before(end); i >= 0 && end > from && why == Position; i-- {
			if r.untouched(i, end, s) {
				end = r.snapshots[i].at
				continue
			}
			r.restore(r.snapshots[i])
			for {
				reason, err := r.forward(ctx, end)
				if err != nil {
					return err
				}
				at := r.m.at
				if reason == Written || reason == Entered {
					at--
				}
				if reason != Position && at >= from && at < end {
					found, why = at, reason
				}
				if r.m.at < end && reason == Offset {
					if reason, err = r.past(ctx, end); err != nil {
						return err
					}
					if reason != Position && r.m.at-1 >= from {
						found, why = r.m.at-1, reason
					}
				}
				if r.m.at >= end {
					break
				}
			}
			end = r.snapshots[i].at
		}
		return nil
	}()
	if err != nil {
		return Position, errors.Join(err, r.Seek(context.WithoutCancel(ctx), here))
	}
	return why, r.Seek(ctx, found)
}

// untouched reports whether nothing that s watches was written between a snapshot and the next one.
func (r *Recording) untouched(i int, end uint64, s Stop) bool {
	if len(s.Offsets) > 0 || s.Above > 0 || i+1 >= len(r.snapshots) || r.snapshots[i+1].at > end {
		return false
	}
	a, b := r.snapshots[i].pages, r.snapshots[i+1].pages
	for _, w := range s.Writes {
		for p := uint64(w.Addr) >> pageBits; w.Len > 0 && p <= (uint64(w.Addr)+uint64(w.Len)-1)>>pageBits && p < uint64(len(b)); p++ {
			if p >= uint64(len(a)) && b[p] != nil || p < uint64(len(a)) && a[p] != b[p] {
				return false
			}
		}
	}
	return true
}

// Hit returns which of the watched ranges the last stop at a write was for.
func (r *Recording) Hit() Range { return r.hit }

// LastWrite returns the position before the last write, before a position, to some bytes. It stays
// where it is. It is false if the call did not write them.
func (r *Recording) LastWrite(ctx context.Context, before uint64, addr, n uint32) (at uint64, ok bool, err error) {
	here := r.m.at
	if err := r.Seek(ctx, before); err != nil {
		return 0, false, err
	}
	reason, err := r.Back(ctx, 0, Stop{Writes: []Range{{addr, n}}})
	at = r.m.at
	return at, reason == Written, errors.Join(err, r.Seek(context.WithoutCancel(ctx), here))
}

// Frame is one function on the call stack.
type Frame struct {
	Function uint32   // index in the executed module
	Offset   uint32   // of its instruction, in the executed module
	Locals   []uint64 // parameters first

	// Operands are the slots of the operand stack. A slot that no operation has used yet is stale, and a
	// constant or a copy of a local needs none.
	Operands []uint64
}

// Where returns the function that runs and the offset of its instruction.
func (r *Recording) Where() (function, offset uint32) {
	f := r.m.code.funcs[r.m.fn]
	return f.index, f.offsets[r.m.pc]
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
		slots := slices.Clone(m.stack[at.fp : at.fp+f.size])
		all = append(all, Frame{f.index, f.offsets[at.pc], slots[:f.locals:f.locals], slots[f.locals:]})
	}
	return all
}

// Read returns a view of memory that is valid until the position changes.
func (r *Recording) Read(addr, n uint32) ([]byte, bool) { return r.m.Read(addr, n) }

// Size returns the size of memory in bytes.
func (r *Recording) Size() uint32 { return r.m.Size() }

// Globals returns a copy of the globals by their index in the executed module.
func (r *Recording) Globals() []uint64 { return slices.Clone(r.m.globals) }

// Global returns an exported global.
func (r *Recording) Global(name string) (uint64, bool) {
	index, ok := r.m.code.exportedGlobals[name]
	if !ok {
		return 0, false
	}
	return r.m.globals[index], true
}

// Effect is one call of the host.
type Effect struct {
	At           uint64
	Fuel         uint64 // that had been spent
	Module, Name string
}

// Effects lists the calls of the host that returned.
func (r *Recording) Effects() []Effect {
	all := make([]Effect, len(r.journal))
	for i, e := range r.journal {
		im := r.m.code.Imports[r.m.code.funcs[e.fn].host]
		all[i] = Effect{e.at, e.fuel, im.Module, im.Name}
	}
	return all
}
