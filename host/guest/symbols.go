package guest

import (
	"cmp"
	"context"
	"strings"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/internal/source"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/tool"
)

// Symbols name the functions of the modules that a run used. A module is read when one of its
// functions is asked for. They are safe for concurrent use.
type Symbols struct {
	ctx     context.Context
	store   eventlog.ModuleReader
	other   []byte                // replaces every module; nil for none
	modules map[string]canon.Hash // by the tool
	calls   map[string]string     // the names in the modules of tools that have another one

	mu    sync.Mutex // guards named
	named map[canon.Hash]*source.Table
}

// NewSymbols returns the names of the tools that a run began with. It reads modules until ctx ends.
// If other is not nil it replaces all of them.
func NewSymbols(ctx context.Context, started event.RunStarted, store eventlog.ModuleReader, other []byte) *Symbols {
	s := &Symbols{ctx: ctx, store: store, other: other, modules: map[string]canon.Hash{}, calls: map[string]string{}, named: map[canon.Hash]*source.Table{}}
	for _, ref := range started.ToolSchemas {
		if ref.Sandbox == nil || len(ref.Sandbox.Module) != len(canon.Hash{}) {
			continue
		}
		s.modules[ref.Name] = canon.Hash(ref.Sandbox.Module)
		if original, ok := strings.CutPrefix(ref.Source, tool.SourceExport); ok {
			s.modules[original], s.calls[ref.Name] = canon.Hash(ref.Sandbox.Module), original
		}
	}
	return s
}

// Module returns the digest of the module of a tool.
func (s *Symbols) Module(tool string) (digest canon.Hash, ok bool) {
	digest, ok = s.modules[tool]
	return digest, ok
}

// Original returns the name that a tool has in its module.
func (s *Symbols) Original(tool string) string { return cmp.Or(s.calls[tool], tool) }

// Function returns the name of a function of a tool's module, or "" if it is not known. It may be
// hostile.
func (s *Symbols) Function(tool string, index uint32) string {
	digest, ok := s.modules[tool]
	if !ok {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	table, ok := s.named[digest]
	if !ok {
		wasm, err := s.other, error(nil)
		if wasm == nil {
			wasm, err = s.store.Module(s.ctx, digest)
		}
		if err == nil {
			table, _ = source.Open(work.For(s.ctx, len(wasm)), wasm) // or nothing is known
		}
		s.named[digest] = table
	}
	if table == nil {
		return ""
	}
	return table.Function(index)
}
