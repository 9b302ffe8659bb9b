package sandbox

import (
	"fmt"
	"slices"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/wasm"
)

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
	if s.watch != nil {
		s.watch.call(s, f, stack)
		return
	}
	f.answer(s, stack)
}

func (f imported) answer(s *session, stack []uint64) {
	result := f.do(s, stack)
	if len(stack) > 0 { // room for a result; ignored when the type has none
		stack[0] = result
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
