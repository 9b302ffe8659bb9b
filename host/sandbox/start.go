package sandbox

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/internal/wasm"
	"github.com/starling-host/starling/host/sandbox/internal/image"
)

// start is the initial state of every call of a module: the state after start function,
// _initialize and starling_warmup. They run sealed, so it is a function of the module's
// bytes and limits alone, and running them once is the same as running them before every
// call.
type start struct {
	image   *image.Image // of the memory; nil after a failure
	pages   uint32
	globals []uint64 // in the order of instance.globals

	// The host's side, which continues: runtimes keep readings of the clock, and a
	// description is still sealed.
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
	empty, err := m.engine.store.Seal(nil, m.reserve)
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
	if err := i.module.function(rewrite.ExportWhole).CallWithStack(i.ctx, i.stack[:]); err != nil {
		return nil, hostFailed(ErrSpoiled)
	}
	i.session = session{instance: i, limits: m.limits}
	i.session.seal()
	if err := i.session.prepare(exports); err != nil {
		return &start{failure: err, meter: i.session.meter()}, nil
	}
	return i.capture(m.engine.store, m.reserve)
}

// prepare runs the code before every call, sealed and unattended.
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
	sealed, err := store.Seal(contents, reserve)
	if err != nil {
		return nil, err
	}
	s.clock.recount(i.fuel.Get())
	st := &start{
		image: sealed, pages: i.memory.Size() / wasm.PageSize,
		clock: s.clock, random: *s.random, log: s.log.clone(), meter: s.meter(),
	}
	i.fuel.Set(0) // the count of a call begins anew
	i.limit.Set(0)
	for _, g := range i.globals {
		st.globals = append(st.globals, value(g))
	}
	return st, nil
}

// value returns a global's value. For narrow types the engine may keep extra
// bits.
func value(g global) uint64 {
	if t := g.Type(); t == byte(wasm.I32) || t == byte(wasm.F32) {
		return uint64(uint32(g.Get()))
	}
	return g.Get()
}

// seal makes a session continue where the sealed part has ended.
func (st *start) seal(s *session) {
	random := st.random
	s.name, s.random, s.log = sealedName, &random, st.log.clone()
}

// digest is [Start].Digest for a module with that many globals of its own.
func (st *start) digest(own int) Digest {
	b := slices.Clone(st.image.Contents())
	for _, v := range st.globals[:own] {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return Sum(binary.LittleEndian.AppendUint32(b, st.pages))
}
