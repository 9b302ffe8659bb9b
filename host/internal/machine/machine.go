package machine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/starling-host/starling/internal/wasm"
)

const (
	maxSlots  = 1 << 16 // of a frame: what the number of a slot can name
	maxStack  = 1 << 24 // slots of all frames
	pageBits  = 12
	pageBytes = 1 << pageBits // of memory, the unit in which snapshots keep it
)

// A Trap is the reason for which WebAssembly itself ends a call.
type Trap string

func (t Trap) Error() string { return string(t) }

const (
	trapUnreachable = Trap("unreachable")
	trapOverflow    = Trap("integer overflow")
	trapDivide      = Trap("integer divide by zero")
	trapConversion  = Trap("invalid conversion to integer")
	trapMemory      = Trap("out of bounds memory access")
	trapTable       = Trap("invalid table access")
	trapType        = Trap("indirect call type mismatch")
)

// ErrStack ends a call that nests deeper than the machine has room for, far beyond the greatest
// depth that a rewritten module can have.
var ErrStack = errors.New("stack overflow")

// Host answers an import. The slots hold the parameters, and then the result. It ends the call by
// a panic with an error.
type Host func(slots []uint64)

// place is where a function stands: the next operation, and the first slot of its frame.
type place struct {
	fn     uint32 // index in Machine.funcs
	pc, fp int
}

// Machine is an instance of a module. It serves one call at a time.
type Machine struct {
	code    *Code
	funcs   []*function // the code's, or copies with breakpoints
	hosts   []Host
	globals []uint64
	mem     []byte
	barrier []byte     // for each page of mem: not zero when a write to it must be noticed, see written
	stack   []uint64   // with maxSlots behind the last frame
	frames  []place    // of the callers
	place              // of the function that runs
	counts  [][]uint64 // of each function's operations; nil unless they are counted
	observe func() []Range

	at        uint64 // operations executed in this call
	every     uint64 // operations between two snapshots; 0 when the machine does not record
	recording *Recording

	// What run stops at, before a call or position ends it, and why it did.
	watched  []Range
	fuelStop uint64
	below    int // frames of callers
	reason   Reason
	hit      Range // of those watched
}

// New makes an instance. There is a host for each import, in their order. Memory is empty where the
// module has no data segments, as rewritten modules have none.
func New(code *Code, hosts []Host) *Machine {
	m := &Machine{
		code: code, funcs: code.funcs, hosts: hosts, globals: append([]uint64(nil), code.initial...),
		stack: make([]uint64, maxSlots+1<<12), fuelStop: math.MaxUint64,
	}
	m.resize(int(code.memory.Min) * wasm.PageSize)
	return m
}

// Call calls an export with parameters on the stack, which receives the results. The error is a
// Trap, the value with which a host panicked, or the context's, at which only a machine that records
// looks: another one trusts its hosts to end the call.
func (m *Machine) Call(ctx context.Context, export string, stack []uint64) (err error) {
	index, ok := m.code.exports[export]
	if !ok {
		return fmt.Errorf("machine: no export %q", export)
	}
	f := m.funcs[index]
	m.place, m.frames, m.at, m.reason = place{fn: f.index}, m.frames[:0], 0, 0
	copy(m.stack, stack[:f.params])
	clear(m.stack[f.params:f.locals])
	if m.every > 0 {
		err = m.record(ctx)
	} else {
		for done := false; !done && err == nil; {
			m.watch(false)
			if m.watched = nil; m.observe != nil {
				m.watched = m.observe()
			}
			m.watch(true)
			m.reason = 0
			done, err = m.protected(math.MaxUint64)
		}
	}
	copy(stack, m.stack[:f.results])
	return err
}

// protected is run, whose error is also that with which a host panicked.
func (m *Machine) protected(budget uint64) (done bool, err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case error:
			err = v
		default:
			panic(v)
		}
	}()
	return m.run(budget)
}

// answer lets the host answer a call of f, or the journal.
func (m *Machine) answer(f *function, slots []uint64) {
	if r := m.recording; r != nil {
		r.answer(f, slots)
	} else {
		m.hosts[f.host](slots)
	}
	if f.result == wasm.I32 || f.result == wasm.F32 {
		slots[0] = uint64(uint32(slots[0]))
	}
}

// enlarge makes room for frames of that many slots.
func (m *Machine) enlarge(slots int) bool {
	if slots > maxStack {
		return false
	}
	m.stack = append(m.stack, make([]uint64, slots)...)
	return true
}

// Size returns the size of memory in bytes.
func (m *Machine) Size() uint32 { return uint32(len(m.mem)) }

// Grow is memory.grow.
func (m *Machine) Grow(pages uint32) (before uint32, ok bool) {
	before = uint32(len(m.mem) / wasm.PageSize)
	if uint64(before)+uint64(pages) > uint64(m.code.memory.Max) {
		return 0, false
	}
	m.resize((int(before) + int(pages)) * wasm.PageSize)
	return before, true
}

// resize changes the size of memory. What it grows by is zero.
func (m *Machine) resize(size int) {
	old := len(m.mem)
	if size > cap(m.mem) {
		most := int(m.code.memory.Max) * wasm.PageSize
		mem := make([]byte, size, max(size, min(most, size+size/4)))
		copy(mem, m.mem)
		barrier := make([]byte, cap(mem)>>pageBits)
		copy(barrier, m.barrier)
		m.mem, m.barrier = mem, barrier
	}
	if size < old {
		clear(m.mem[size:])
	}
	m.mem, m.barrier = m.mem[:size], m.barrier[:size>>pageBits]
	for p := old >> pageBits; m.recording != nil && p < len(m.barrier); p++ {
		m.barrier[p] = isClean
	}
	m.watch(true)
}

func (m *Machine) page(p int) []byte { return m.mem[p<<pageBits : (p+1)<<pageBits] }

// Fuel returns the fuel that has been spent.
func (m *Machine) Fuel() uint64 {
	if m.code.fuel < 0 {
		return 0
	}
	return m.globals[m.code.fuel]
}

// Write writes to memory.
func (m *Machine) Write(at uint32, b []byte) bool {
	if uint64(at)+uint64(len(b)) > uint64(len(m.mem)) {
		return false
	}
	copy(m.mem[at:], b)
	m.written(uint64(at), uint64(len(b)))
	if r := m.recording; r != nil && r.answering { // which keeps what the host wrote
		e := &r.journal[len(r.journal)-1]
		e.writes = append(e.writes, write{at, slices.Clone(b)})
		r.kept += len(b)
	}
	return true
}

// Read returns a view of memory that is valid until the guest runs again.
func (m *Machine) Read(at, n uint32) ([]byte, bool) {
	if uint64(at)+uint64(n) > uint64(len(m.mem)) {
		return nil, false
	}
	return m.mem[at : at+n : at+n], true
}

// Global is an exported global.
type Global struct {
	m     *Machine
	index uint32
}

// Global returns an exported global, or nil.
func (m *Machine) Global(name string) *Global {
	if index, ok := m.code.exportedGlobals[name]; ok {
		return &Global{m, index}
	}
	return nil
}

// Type returns the type as its byte in the binary format.
func (g *Global) Type() byte { return byte(g.m.code.globals[g.index].Type) }

// Get returns the value.
func (g *Global) Get() uint64 { return g.m.globals[g.index] }

// Set changes the value of a mutable global.
func (g *Global) Set(v uint64) { g.m.globals[g.index] = v }

// Observe makes the machine call a function at the beginning of each call that it does not record, and
// after each write to one of the ranges that the function returned last. Nil removes it.
func (m *Machine) Observe(f func() []Range) { m.observe = f }

// Count makes the machine count how often each operation is executed.
func (m *Machine) Count() { m.counts = make([][]uint64, len(m.funcs)) }

func (m *Machine) countsOf(f *function) []uint64 {
	if m.counts == nil {
		return nil
	}
	if m.counts[f.index] == nil {
		m.counts[f.index] = make([]uint64, len(f.code))
	}
	return m.counts[f.index]
}

// Counts yields how often each instruction was executed since Count, by its offset in the module.
// Instructions that are part of a later operation, such as constants, are missing, and so are all of a
// function that was not called.
func (m *Machine) Counts() iter.Seq2[uint32, uint64] {
	return func(yield func(uint32, uint64) bool) {
		for fn, counts := range m.counts {
			offsets := m.funcs[fn].offsets
			for pc, n := range counts { // the last operation of an instruction counts
				if more := pc+1 < len(counts) && offsets[pc+1] == offsets[pc]; !more && !yield(offsets[pc], n) {
					return
				}
			}
		}
	}
}
