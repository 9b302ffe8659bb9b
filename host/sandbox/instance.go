package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/sandbox/internal/image"
	"github.com/starling-host/starling/internal/wasm"
)

// instance is a module in memory. It serves one call at a time, and is reset to the
// module's start between two calls, so that a used instance is as good as a new one.
type instance struct {
	module  running
	memory  memory
	mapping *image.Memory // nil when the engine's own allocator provides the memory

	fuel, limit, depth, refused global
	globals                     []global // the module's own, then the four

	functions map[string]function // by export; functions called so far
	stack     [2]uint64           // parameters and result of one call
	ctx       context.Context     // leads host functions to the instance

	session session
	spoiled bool // its code was ended from within; it is never used again
}

// instanceKey is the key of the context of an instance.
type instanceKey struct{}

// metered are the globals that the rewriter adds, in the order in which an
// instance keeps them.
var metered = []string{rewrite.GlobalFuel, rewrite.GlobalLimit, rewrite.GlobalDepth, rewrite.GlobalRefused}

// newInstance makes an instance whose memory begins as the image, or empty
// where images cannot be mapped.
func (m *Module) newInstance(from *image.Image) (*instance, error) {
	i := &instance{functions: map[string]function{}}
	if from.Mapped() {
		var err error
		if i.mapping, err = from.Map(); err != nil {
			return nil, hostFailed(fmt.Errorf("no memory for an instance: %w", err))
		}
	}
	module, err := m.code.instantiate(i)
	if err != nil {
		if i.mapping != nil {
			i.mapping.Free()
		}
		return nil, hostFailed(fmt.Errorf("the engine cannot instantiate the module: %w", err))
	}
	i.module, i.memory = module, module.memory()
	i.ctx = context.WithValue(context.Background(), instanceKey{}, i)
	if err := i.bindGlobals(m.globals); err != nil {
		i.discard()
		return nil, err
	}
	return i, nil
}

// bindGlobals finds the globals that make up the state of an instance.
func (i *instance) bindGlobals(own []string) error {
	for _, names := range [][]string{own, metered} {
		for _, name := range names {
			g := i.module.global(name)
			if g == nil {
				return hostFailed(fmt.Errorf("the rewritten module does not export %s", name))
			}
			i.globals = append(i.globals, g)
		}
	}
	last := i.globals[len(own):]
	i.fuel, i.limit, i.depth, i.refused = last[0], last[1], last[2], last[3]
	return nil
}

// begin gives a new instance the start of its module.
func (i *instance) begin(s *start) error {
	pages := i.memory.Size() / wasm.PageSize
	if _, ok := i.memory.Grow(s.pages - pages); !ok {
		return hostFailed(fmt.Errorf("no memory for the %d pages that the module starts with", s.pages))
	}
	if i.mapping == nil {
		i.memory.Write(0, s.image.Contents())
	}
	i.setGlobals(s)
	return nil
}

func (i *instance) setGlobals(s *start) {
	for n, g := range i.globals {
		g.Set(s.globals[n])
	}
}

// reset returns a used instance to its module's start. After an error it is unusable.
func (i *instance) reset(s *start) error {
	i.session = session{} // drops references of the call
	i.setGlobals(s)
	if err := i.mapping.Reset(uint64(s.pages) * wasm.PageSize); err != nil {
		return err
	}
	if i.memory.Size() == s.pages*wasm.PageSize {
		return nil
	}
	return i.shrink(s.pages)
}

// errNoShrink prevents the reuse of a grown instance: this version of the engine stores the
// length of a memory elsewhere.
var errNoShrink = errors.New("sandbox: the engine's memory cannot be shrunk")

// verify compares an instance with its module's start.
func (i *instance) verify(s *start) error {
	if got := i.memory.Size(); got != s.pages*wasm.PageSize {
		return hostFailed(fmt.Errorf("an instance was reset to %d bytes of memory, not %d pages", got, s.pages))
	}
	for n, g := range i.globals {
		if got := value(g); got != s.globals[n] {
			return hostFailed(fmt.Errorf("an instance was reset with %#x in global %d, not %#x", got, n, s.globals[n]))
		}
	}
	if err := i.mapping.Verify(); err != nil {
		return hostFailed(err)
	}
	return nil
}

// discard closes the instance, which gives its memory back.
func (i *instance) discard() { i.module.close() }

// has reports whether length bytes at address are in memory. It ignores the address of an
// empty area.
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

// function returns an export, which checkExports has found. Looking one up
// costs the engine more than calling it.
func (i *instance) function(export string) function {
	f, ok := i.functions[export]
	if !ok {
		f = i.module.function(export)
		i.functions[export] = f
	}
	return f
}

// invoke calls an export with at most two parameters and returns its result,
// zero when it has none.
func (s *session) invoke(export string, params ...uint64) (uint64, error) {
	i := s.instance
	s.phase = export
	if export == rewrite.ExportStart {
		s.phase = "the start function"
	}
	i.stack = [2]uint64{}
	copy(i.stack[:], params)
	if err := i.function(export).CallWithStack(i.ctx, i.stack[:]); err != nil {
		i.spoiled = true
		return 0, s.outcome(err)
	}
	return i.stack[0], nil
}
