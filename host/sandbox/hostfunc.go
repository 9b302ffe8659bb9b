package sandbox

import (
	"context"

	"github.com/starling-host/starling/host/internal/wasm"
	"github.com/tetratelabs/wazero/api"
)

// hostFunc is one function that a guest may import. Its type is the gate's
// ([rewrite.ImportType]), so that the two cannot differ.
type hostFunc struct {
	name string
	do   func(s *session, a args) uint64
}

// imported is a host function as the engine knows it.
type imported struct {
	hostFunc
	module string
	t      wasm.FuncType
}

// args are a host function's parameters as the engine hands them over.
type args []uint64

// u32 returns an i32 parameter. Compiled code leaves garbage in the upper half
// of the slot; the interpreter does not.
func (a args) u32(i int) uint32 { return uint32(a[i]) }

// Call implements api.GoFunction. The instance travels in the context, because
// one host function serves all of them. Each call is a check and costs a unit: a
// body has room for a quarter of a million calls between two of its own checks.
func (f imported) Call(ctx context.Context, stack []uint64) {
	s := sessionOf(ctx)
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

func sessionOf(ctx context.Context) *session { return &ctx.Value(instanceKey{}).(*instance).session }

// engineTypes names types in the engine's way. Both use the numbers of the
// binary format.
func engineTypes(types []wasm.ValType) []api.ValueType {
	out := make([]api.ValueType, len(types))
	for i, t := range types {
		out[i] = api.ValueType(t)
	}
	return out
}
