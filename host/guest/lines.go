package guest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/internal/source"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/tool"
)

// Line is a source line of a function. Its texts may be hostile.
type Line = sandbox.SourceLine

// Sources collect what modules say of their source, where calls of them are executed and observed, and
// which lines of it these calls execute. They are safe for concurrent use.
type Sources struct {
	work *work.Budget

	mu      sync.Mutex // guards what follows
	modules map[canon.Hash]*sourceOf
	texts   map[string]string // each once
	problem string
}

// sourceOf is the source of one module.
type sourceOf struct {
	all      *Sources
	language string
	names    []string        // of functions, or "", by their index; they may be hostile
	lines    map[Line]*spent // by what is not a sum
}

type spent struct{ executed, fuel uint64 }

// NewSources returns empty ones, which keep as much as b allows.
func NewSources(b *work.Budget) *Sources {
	return &Sources{work: b, modules: map[canon.Hash]*sourceOf{}, texts: map[string]string{}}
}

// Add returns what collects the source of a module for [sandbox.Observers].
func (s *Sources) Add(module canon.Hash) sandbox.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.modules[module]
	if m == nil {
		m = &sourceOf{all: s, lines: map[Line]*spent{}}
		s.modules[module] = m
	}
	return m
}

// hold charges bytes that are kept. The caller holds mu.
func (s *Sources) hold(n int) bool {
	err := s.work.Hold(n)
	if err != nil {
		s.problem = cmp.Or(s.problem, err.Error())
	}
	return err == nil
}

// text returns the one copy of a text. The caller holds mu.
func (s *Sources) text(text string) string {
	kept, ok := s.texts[text]
	if !ok && s.hold(len(text)+64) {
		kept = strings.Clone(text)
		s.texts[kept] = kept
	}
	return kept
}

// Module implements [sandbox.Source].
func (m *sourceOf) Module(functions int, language, problem string) {
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	m.language = m.all.text(language)
	m.all.problem = cmp.Or(m.all.problem, m.all.text(problem))
	if n := functions - len(m.names); n > 0 && m.all.hold(16*n) {
		m.names = append(m.names, make([]string, n)...)
	}
}

// Function implements [sandbox.Source].
func (m *sourceOf) Function(index uint32, name string) {
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	if int64(index) < int64(len(m.names)) {
		m.names[index] = m.all.text(name)
	}
}

// SourceLine implements [sandbox.Source].
func (m *sourceOf) SourceLine(l Line) {
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	key := Line{Function: l.Function, Name: m.all.text(l.Name), File: m.all.text(l.File), Line: l.Line}
	sum := m.lines[key]
	if sum == nil && int64(l.Function) < int64(len(m.names)) && m.all.hold(160) {
		sum = &spent{}
		m.lines[key] = sum
	}
	if sum != nil {
		sum.executed, sum.fuel = sum.executed+l.Executed, sum.fuel+l.Fuel
	}
}

// Problem returns why some names and lines are missing, or "".
func (s *Sources) Problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// Name returns the name of a function of a module that was called, or "". It may be hostile.
func (s *Sources) Name(module canon.Hash, function uint32) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.modules[module]; m != nil && int64(function) < int64(len(m.names)) {
		return m.names[function]
	}
	return ""
}

// Language returns the language of the scripts that a module interprets, such as "Python", or "". The
// module must have been called.
func (s *Sources) Language(module canon.Hash) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.modules[module]; m != nil {
		return m.language
	}
	return ""
}

// Lines returns the lines of the functions that were called, by their functions. Those that were not
// executed are among them.
func (s *Sources) Lines() (all []Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.modules {
		for l, sum := range m.lines {
			l.Executed, l.Fuel = sum.executed, sum.fuel
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), strings.Compare(a.Name, b.Name))
	})
	return all
}

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
