package sandbox

import (
	"context"
	"fmt"

	"github.com/starling-host/starling/host/rewrite"
	"github.com/tetratelabs/wazero/api"
)

type mutableGlobal = api.MutableGlobal

// instance is one module in memory. A call has one of its own and nothing
// outlives it.
type instance struct {
	module                      api.Module
	memory                      api.Memory
	fuel, limit, depth, refused mutableGlobal
}

// has reports whether length bytes at address are in memory. The address of an
// empty area is not looked at.
func (i *instance) has(address uint32, length uint64) bool {
	return length == 0 || uint64(address)+length <= uint64(i.memory.Size())
}

// copyOut copies from guest memory. The area has been checked.
func (s *session) copyOut(address, length uint32) []byte {
	return append([]byte(nil), s.view(area{address, length})...)
}

// copyIn copies to guest memory. The area has been checked.
func (s *session) copyIn(address uint32, data []byte) {
	if len(data) > 0 {
		s.instance.memory.Write(address, data)
	}
}

func outside(what string, address, length uint32) string {
	return fmt.Sprintf("%s (%d bytes at %#x) is outside of memory", what, length, address)
}

// invoke calls an export and returns its result, zero when it has none.
func (s *session) invoke(ctx context.Context, export string, params ...uint64) (uint64, error) {
	s.phase = export
	if export == rewrite.ExportStart {
		s.phase = "the start function"
	}
	results, err := s.instance.module.ExportedFunction(export).Call(ctx, params...)
	if err := s.outcome(err); err != nil {
		return 0, err
	}
	if len(results) == 0 {
		return 0, nil
	}
	return results[0], nil
}
