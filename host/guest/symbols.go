package guest

import (
	"context"
	"maps"
	"strings"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/tool"
)

// Symbols name the functions of the modules that a run used. A module is read when one of its
// functions is asked for. They are safe for concurrent use.
type Symbols struct {
	ctx     context.Context
	store   eventlog.ModuleReader
	other   []byte                // replaces every module; nil for none
	modules map[string]canon.Hash // by the tool

	mu    sync.Mutex // guards names
	names map[canon.Hash]map[uint32]string
}

// NewSymbols returns the names of the tools that a run began with. It reads modules until ctx ends.
// If other is not nil it replaces all of them.
func NewSymbols(ctx context.Context, started event.RunStarted, store eventlog.ModuleReader, other []byte) *Symbols {
	s := &Symbols{ctx: ctx, store: store, other: other, modules: map[string]canon.Hash{}, names: map[canon.Hash]map[uint32]string{}}
	for _, ref := range started.ToolSchemas {
		if ref.Sandbox == nil || len(ref.Sandbox.Module) != len(canon.Hash{}) {
			continue
		}
		s.modules[ref.Name] = canon.Hash(ref.Sandbox.Module)
		if original, ok := strings.CutPrefix(ref.Source, tool.SourceExport); ok {
			s.modules[original] = canon.Hash(ref.Sandbox.Module) // calls have this name
		}
	}
	return s
}

// Module returns the digest of the module of a tool.
func (s *Symbols) Module(tool string) (digest canon.Hash, ok bool) {
	digest, ok = s.modules[tool]
	return digest, ok
}

// Function returns the name of a function of a tool's module, or "" if it is not known. It may be
// hostile.
func (s *Symbols) Function(tool string, index uint32) string {
	digest, ok := s.modules[tool]
	if !ok {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	names, ok := s.names[digest]
	if !ok {
		wasm, err := s.other, error(nil)
		if wasm == nil {
			wasm, err = s.store.Module(s.ctx, digest)
		}
		if err == nil {
			if module, err := sandbox.Decode(wasm); err == nil {
				names = maps.Collect(module.FuncNames)
			}
		}
		s.names[digest] = names
	}
	return names[index]
}
