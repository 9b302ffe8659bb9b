package sandbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/wasm"
)

// Imports performs the effects of a guest. Every method is one recorded
// effect. If a method panics with an error, the guest ends there and Call
// returns the error.
//
// The methods are called from within Call, on its goroutine, with a context
// that ends with the call's deadline. They must not call the same guest.
type Imports interface {
	// Now returns the time of day in Unix nanoseconds.
	Now(ctx context.Context) int64

	// Random returns 64 uniform bits.
	Random(ctx context.Context) uint64

	// Seed returns the key of the call's own generator, from which WASI's
	// random_get is served. It is called at most once in a call.
	Seed(ctx context.Context) [32]byte

	// HTTP makes one exchange. The request is the guest's, unchecked. With status
	// zero the first result is the response in message/http form; otherwise the
	// status names the failure and the result is a text. The guest's clock moves by the time
	// that the exchange took, as it is recorded.
	HTTP(ctx context.Context, request []byte) ([]byte, abi.Status, time.Duration)
}

// starlingFuncs is the import module of spec/abi.md.
var starlingFuncs = []hostFunc{
	{abi.ImportNow, importNow},
	{abi.ImportRandom, importRandom},
	{abi.ImportHTTP, importHTTP},
}

func importNow(s *session, _ args) uint64 {
	return uint64(s.now("starling:v1.now"))
}

// now reads the time of day, and keeps the virtual clock from falling behind it.
func (s *session) now(name string) int64 {
	s.effect(name, 8)
	t := cross(s, func() int64 { return s.imports.Now(s.outside()) })
	s.clock.run(s.instance.fuel.Get())
	s.clock.observe(t)
	return t
}

func importRandom(s *session, _ args) uint64 {
	s.effect("starling:v1.random", 8)
	return cross(s, func() uint64 { return s.imports.Random(s.outside()) })
}

// held is an answer of http that the guest has not fetched yet. There is one
// at a time: a new exchange drops the old one.
type held struct {
	data   []byte
	status abi.Status
}

// importHTTP makes one exchange, or with an empty request fetches the rest of
// the last answer.
func importHTTP(s *session, a args) uint64 {
	request, length, buf, capacity := a.u32(0), a.u32(1), a.u32(2), a.u32(3)
	s.charge(uint64(length))
	// Both areas are checked before anything happens: a wrong address must not
	// cost the guest the answer to a request that has been sent.
	s.need("http: the request", request, length)
	s.need("http: the buffer", buf, capacity)
	if length == 0 {
		return uint64(s.fetch(buf, capacity))
	}
	return uint64(s.exchange(request, length, buf, capacity))
}

func (s *session) exchange(request, length, buf, capacity uint32) int64 {
	s.effect("starling:v1.http", uint64(length))
	message := s.copyOut(request, length)
	answer := cross(s, func() held {
		data, status, took := s.imports.HTTP(s.outside(), message)
		s.clock.advance(uint64(max(took, 0)))
		return held{data, status}
	})
	s.held = &answer
	s.recorded(uint64(len(answer.data)))
	if answer.status != 0 {
		return int64(answer.status)
	}
	return s.fetch(buf, capacity)
}

// fetch writes the held answer into the guest's buffer and drops it. When it
// does not fit, nothing is written and it stays. Either way the guest learns
// its length.
func (s *session) fetch(buf, capacity uint32) int64 {
	if s.held == nil {
		return int64(abi.StatusNothingHeld)
	}
	length := len(s.held.data)
	if length <= int(capacity) {
		s.charge(uint64(length))
		s.copyIn(buf, s.held.data)
		s.held = nil
	}
	return int64(length)
}

// need ends the guest unless length bytes at address are in its memory. An empty area may
// be anywhere: Zig's empty slices point to 0xaaaaaaaa.
func (s *session) need(what string, address, length uint32) {
	if !s.instance.has(address, uint64(length)) {
		s.end(s.failure(abi.ErrPanicked, outside(what, address, length)))
	}
}

// hostFunc is one function that a guest may import. Its type is the gate's
// ([rewrite.ImportType]), so that the two cannot differ.
type hostFunc struct {
	name string
	do   func(s *session, a args) uint64
}

// imported is a host function in the engine's form.
type imported struct {
	hostFunc
	module string
	t      wasm.FuncType
}

// args are a host function's parameters from the engine.
type args []uint64

// u32 returns an i32 parameter. Compiled code leaves garbage in the upper half
// of the slot; the interpreter does not.
func (a args) u32(i int) uint32 { return uint32(a[i]) }

// call answers a guest. Each call is a check and costs a unit: a body has room for a
// quarter of a million calls between two of its own checks.
func (f imported) call(s *session, stack []uint64) {
	s.charge(1)
	profiler := s.watch.profile()
	if profiler != nil {
		profiler.EnterImport(f.module+"."+f.name, s.instance.fuel.Get())
	}
	result := f.do(s, stack)
	if len(stack) > 0 { // room for a result; ignored when the type has none
		stack[0] = result
	}
	if profiler != nil {
		profiler.Leave(s.instance.fuel.Get())
	}
}

// fuelFuncs are the further imports of a rewritten module from [rewrite.RefillModule]; the
// last two if it is profiled.
var fuelFuncs = map[string]struct {
	params []wasm.ValType
	do     func(s *session, a args)
}{
	rewrite.RefillName: {nil, func(s *session, _ args) { s.refill() }},
	rewrite.EnterName:  {i32, entered},
	rewrite.LeaveName:  {nil, left},
}

// answering returns what answers an import.
func answering(im rewrite.Import) func(*session, []uint64) {
	if im.Module == rewrite.RefillModule {
		do := fuelFuncs[im.Name].do
		return func(s *session, stack []uint64) { do(s, stack) }
	}
	for _, f := range slices.Concat(starlingFuncs, wasiFuncs) {
		if t, ok := rewrite.ImportType(im.Module, f.name); ok && f.name == im.Name {
			return imported{f, im.Module, t}.call
		}
	}
	return func(s *session, _ []uint64) {
		s.end(hostFailed(fmt.Errorf("there is no import %s %s", im.Module, im.Name)))
	}
}
