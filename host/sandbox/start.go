package sandbox

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/sandbox/internal/image"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// start is the initial state of every call of a module: the state after start function,
// _initialize and starling_warmup. They have no effects, so it is a function of the module's
// bytes and limits alone, and running them once is the same as running them before every
// call.
type start struct {
	image   *image.Image // of the memory; nil after a failure
	pages   uint32
	globals []uint64 // in the order of instance.globals

	// The host's side, which continues: runtimes keep readings of the clock, and a
	// description is written as in start-up.
	clock  clock
	random rand.ChaCha8
	log    capture

	// failure is the reason of a failed start-up, and meter its consumption. Every call
	// ends with it, as if the call itself had failed.
	failure error
	meter   Meter
}

// prepare brings an instance of the module to its start and captures that. The error is the
// host's; the module's own errors become the start's failure.
func (m *Module) prepare(data []rewrite.Segment, exports []string) (*start, error) {
	empty, err := m.engine.store.New(0, m.reserve, image.Pieces(nil))
	if err != nil {
		return nil, err
	}
	defer empty.Close()
	i, err := m.newInstance(empty)
	if err != nil {
		return nil, err
	}
	defer i.discard()
	for _, d := range data {
		i.memory.Write(d.Offset, d.Bytes)
	}
	if err := i.whole(); err != nil {
		return nil, err
	}
	i.session = session{instance: i, limits: m.limits}
	i.session.beginStart()
	if err := i.session.prepare(exports); err != nil {
		return &start{failure: err, meter: i.session.meter()}, nil
	}
	return i.capture(m.engine.store, m.reserve)
}

// whole finds out whether the code is the module's.
func (i *instance) whole() error {
	if err := i.module.function(rewrite.ExportWhole).CallWithStack(i.ctx, i.stack[:]); err != nil {
		return hostFailed(ErrSpoiled)
	}
	return nil
}

// prepare runs the code before every call, without effects and unattended.
func (s *session) prepare(exports []string) error {
	s.allow(prepareFuel)
	for _, export := range exports {
		if _, err := s.invoke(export); err != nil {
			return fmt.Errorf("in %s: %w", s.phase, s.exited(err))
		}
	}
	return nil
}

// capture keeps the state of an instance.
func (i *instance) capture(store *image.Store, reserve uint64) (*start, error) {
	s := &i.session
	contents, _ := i.memory.Read(0, i.memory.Size())
	kept, err := store.New(uint64(len(contents)), reserve, image.Pieces(contents))
	if err != nil {
		return nil, err
	}
	s.clock.recount(i.fuel.Get())
	st := &start{
		image: kept, pages: i.memory.Size() / wasm.PageSize,
		clock: s.clock, random: *s.random, log: s.log.clone(), meter: s.meter(),
	}
	i.fuel.Set(0) // the count of a call begins anew
	i.limit.Set(0)
	for _, g := range i.globals {
		st.globals = append(st.globals, value(g))
	}
	return st, nil
}

// heavyStart is how much fuel a start-up takes that is kept for other processes, beside the
// code and in its place: some milliseconds. An image is larger than the data that it is made of.
const heavyStart = 5_000_000

// MaxStart is how many bytes of memory a start has at most that is kept, without the pages
// that are zero.
const MaxStart = 64 << 20

// savedStart is a start in the form for other processes, without its memory. It can come from a
// process that a module has taken over, so it is JSON, and resume checks it.
type savedStart struct {
	Pages    uint32   `json:"pages"`
	Fuel     uint64   `json:"fuel"`
	Globals  []uint64 `json:"globals"` // the module's own
	Refused  uint64   `json:"refused"`
	Mono     uint64   `json:"mono"`
	Offset   uint64   `json:"offset"`
	Anchored bool     `json:"anchored"`
	Random   []byte   `json:"random"`
	LogTotal uint64   `json:"log_total"`
	LogHead  []byte   `json:"log_head"`
	LogTail  []byte   `json:"log_tail"`
}

// keep puts the start of a module that had a heavy start-up into p, in place of the data that
// the start-up began with. The new data is valid until the module is closed.
func (m *Module) keep(p *Prepared) error {
	s := m.start
	if s.failure != nil || s.meter.Fuel < m.engine.heavy {
		return nil
	}
	var data []rewrite.Segment
	bytes := 0
	for offset, b := range image.Pieces(s.image.Contents()) {
		data = append(data, rewrite.Segment{Offset: offset, Bytes: b})
		bytes += len(b)
	}
	if bytes > MaxStart {
		return nil
	}
	random, err := s.random.MarshalBinary()
	if err != nil {
		return hostFailed(err)
	}
	own := len(m.globals)
	state, err := json.Marshal(savedStart{
		Pages: s.pages, Fuel: s.meter.Fuel, Globals: s.globals[:own], Refused: s.globals[own+3],
		Mono: s.clock.mono, Offset: s.clock.offset, Anchored: s.clock.anchored, Random: random,
		LogTotal: s.log.total, LogHead: s.log.head, LogTail: s.log.tail,
	})
	if err != nil {
		return hostFailed(err)
	}
	p.Start, p.Data = state, data
	return nil
}

// saved decodes p.Start; the image is missing.
func (p *Prepared) saved() (*start, error) {
	var k savedStart
	s := &start{}
	budget := work.For(context.Background(), len(p.Start))
	err := errors.Join(budget.Spend(len(p.Start)/64+len(p.Data)), budget.Hold(8*len(p.Start)))
	if err == nil {
		err = json.Unmarshal(p.Start, &k)
	}
	if err == nil {
		err = s.random.UnmarshalBinary(k.Random)
	}
	size := uint64(k.Pages) * wasm.PageSize
	outside := func(d rewrite.Segment) bool { return uint64(d.Offset)+uint64(len(d.Bytes)) > size }
	if err != nil || size > p.Reserve || slices.ContainsFunc(p.Data, outside) || len(k.Globals) != len(p.Globals) || k.Refused > 1 || k.Mono > maxMono ||
		uint64(len(k.LogHead)) > min(p.Limits.LogBytes, k.LogTotal) || len(k.LogTail) > 4*excerptTail {
		return nil, hostFailed(ErrSpoiled)
	}
	s.pages, s.meter.Fuel = k.Pages, k.Fuel
	s.globals = append(k.Globals, 0, 0, uint64(p.Limits.Depth), k.Refused)
	s.clock = clock{mono: k.Mono, offset: k.Offset, anchored: k.Anchored}
	s.log = capture{limit: p.Limits.LogBytes, total: k.LogTotal, head: k.LogHead, tail: k.LogTail}
	return s, nil
}

// Resume makes a module begin with the start that a process has kept, which the module may have
// taken over. The error is ErrSpoiled if no start-up can have left it.
func (p *Prepared) Resume(start []byte, data []rewrite.Segment) error {
	resumed := *p
	resumed.Start, resumed.Data = start, data
	if _, err := resumed.saved(); err != nil {
		return err
	}
	*p = resumed
	return nil
}

// resume brings a module to the start that another process has kept.
func (m *Module) resume(p *Prepared) error {
	s, err := p.saved()
	if err != nil {
		return err
	}
	s.image, err = m.engine.store.New(uint64(s.pages)*wasm.PageSize, m.reserve, func(yield func(uint32, []byte) bool) {
		for _, d := range p.Data {
			if !yield(d.Offset, d.Bytes) {
				return
			}
		}
	})
	if err != nil {
		return hostFailed(err)
	}
	m.start = s
	i, err := m.newInstance(s.image)
	if err != nil {
		return err
	}
	if err := errors.Join(i.whole(), i.begin(s)); err != nil {
		i.discard()
		return err
	}
	return m.giveBack(i) // for the first call
}

// value returns a global's value. For narrow types the engine may keep extra
// bits.
func value(g global) uint64 {
	if t := g.Type(); t == byte(wasm.I32) || t == byte(wasm.F32) {
		return uint64(uint32(g.Get()))
	}
	return g.Get()
}

// resume makes a session continue where the start-up has ended.
func (st *start) resume(s *session) {
	random := st.random
	s.name, s.random, s.log = startName, &random, st.log.clone()
}

// digest is [Start].Digest for a module with that many globals of its own.
func (st *start) digest(own int) Digest {
	b := slices.Clone(st.image.Contents())
	for _, v := range st.globals[:own] {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return Sum(binary.LittleEndian.AppendUint32(b, st.pages))
}
