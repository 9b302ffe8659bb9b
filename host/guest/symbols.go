package guest

import (
	"cmp"
	"context"
	"maps"
	"strings"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/internal/interp"
	"github.com/starling-host/starling/host/internal/source"
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
	limits  map[string]event.SandboxLimits
	calls   map[string]string // the names in the modules of tools that have another one

	mu    sync.Mutex // guards named
	named map[canon.Hash]named
}

// NewSymbols returns the names of the tools that a run began with. It reads modules until ctx ends.
// If other is not nil it replaces all of them.
func NewSymbols(ctx context.Context, started event.RunStarted, store eventlog.ModuleReader, other []byte) *Symbols {
	s := &Symbols{ctx: ctx, store: store, other: other, modules: map[string]canon.Hash{}, calls: map[string]string{}, named: map[canon.Hash]named{}, limits: map[string]event.SandboxLimits{}}
	for _, ref := range started.ToolSchemas {
		if ref.Sandbox == nil || len(ref.Sandbox.Module) != len(canon.Hash{}) {
			continue
		}
		s.modules[ref.Name], s.limits[ref.Name] = canon.Hash(ref.Sandbox.Module), ref.Sandbox.Limits
		if original, ok := strings.CutPrefix(ref.Source, tool.SourceExport); ok {
			s.modules[original], s.limits[original], s.calls[ref.Name] = canon.Hash(ref.Sandbox.Module), ref.Sandbox.Limits, original
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
func (s *Symbols) Function(tool string, index uint32) string { return s.module(tool).names[index] }

// Language returns the language of the scripts that a tool's module interprets, such as "Python", or "".
func (s *Symbols) Language(tool string) string { return s.module(tool).language }

// named is what is read of a module.
type named struct {
	names    map[uint32]string
	language string
}

func (s *Symbols) module(tool string) named {
	digest, ok := s.modules[tool]
	if !ok {
		return named{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.named[digest]
	if ok {
		return m
	}
	wasm, err := s.other, error(nil)
	if wasm == nil {
		wasm, err = s.store.Module(s.ctx, digest)
	}
	if err == nil {
		if about := interp.Of(wasm); about != nil {
			m.language = about.Language
		}
		if module, err := sandbox.Decode(wasm); err == nil {
			m.names = maps.Collect(module.FuncNames)
			for index, name := range m.names {
				m.names[index] = source.Readable(name)
			}
		}
	}
	s.named[digest] = m
	return m
}

// Functions returns the names of all functions of a module by their index, or "" for those without
// one, and how many of them, the first ones, are imports.
func Functions(wasm []byte) (names []string, imports int, err error) {
	module, err := sandbox.Decode(wasm)
	if err != nil {
		return nil, 0, err
	}
	names = make([]string, module.NumFuncs())
	for index, name := range module.FuncNames {
		if int64(index) < int64(len(names)) {
			names[index] = name
		}
	}
	return names, module.NumImportedFuncs(), nil
}
