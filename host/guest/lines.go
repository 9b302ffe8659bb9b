package guest

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/internal/source"
	"github.com/starling-host/starling/host/internal/wasm"
	"github.com/starling-host/starling/host/sandbox"
)

// Lines counts how often the source lines of modules are executed. They are safe for concurrent use.
type Lines struct {
	ctx   context.Context
	store eventlog.ModuleReader

	mu      sync.Mutex // guards modules
	modules map[recordedKey]*lines
}

// lines are those of a module within limits, which are part of its code.
type lines struct {
	module  *wasm.Module
	table   *source.Table
	offsets *rewrite.Offsets
	counts  map[uint32]uint64 // by the offset of an instruction
}

// Line is a source line of a function. Its texts may be hostile.
type Line struct {
	Function uint32 // index of the one that it was compiled into
	Name     string // of the function of the source
	File     string
	Line     int
	Executed uint64 // how often, at most, one of its instructions was
	Fuel     uint64 // that its instructions cost, but for the bytes that bulk operations move
}

// NewLines returns lines that were not executed. It reads modules until ctx ends.
func NewLines(ctx context.Context, store eventlog.ModuleReader) *Lines {
	return &Lines{ctx: ctx, store: store, modules: map[recordedKey]*lines{}}
}

// Add adds what [sandbox.Config.Counts] reports of a call of a tool, which is profiled as well. It
// ignores a module that cannot be read.
func (l *Lines) Add(s *Symbols, tool string, counts iter.Seq2[uint32, uint64]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := recordedKey{digest: s.modules[tool], limits: s.limits[tool]}
	m, ok := l.modules[key]
	if !ok {
		m = l.open(key)
		l.modules[key] = m
	}
	if m == nil {
		return
	}
	call := map[uint32]uint64{}
	for rewritten, n := range counts {
		if at, ok := m.offsets.Original(rewritten); ok {
			call[at] = max(call[at], n)
		}
	}
	for at, n := range call {
		m.counts[at] += n
	}
}

func (l *Lines) open(key recordedKey) *lines {
	module, err := l.store.Module(l.ctx, key.digest)
	if err != nil {
		return nil
	}
	limits := sandbox.WithDefaults(sandbox.Limits(key.limits))
	rewritten, err := rewrite.Rewrite(module, rewrite.DefaultLimits(), rewrite.Options{MemoryPages: limits.MemoryPages, Depth: limits.Depth, Profile: true, Offsets: true})
	if err != nil {
		return nil
	}
	m := &lines{offsets: rewritten.Offsets, counts: map[uint32]uint64{}}
	if m.module, err = wasm.Decode(module); err != nil {
		return nil
	}
	m.table, err = source.Open(module)
	if err != nil {
		return nil
	}
	return m
}

// Of returns the lines of the functions of a module, or of all modules that were executed if digest is
// nil, by their functions. Those that were not executed are among them.
func (l *Lines) Of(digest *canon.Hash) (all []Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sums := map[Line]*Line{}
	for key, m := range l.modules {
		if m != nil && (digest == nil || key.digest == *digest) {
			m.add(sums)
		}
	}
	for _, sum := range sums {
		all = append(all, *sum)
	}
	slices.SortFunc(all, func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), strings.Compare(a.Name, b.Name))
	})
	return all
}

// add adds the lines to sums, by what is not a sum of them.
func (m *lines) add(sums map[Line]*Line) {
	type instruction struct {
		at   uint32
		cost uint64
	}
	imports := m.module.NumImportedFuncs()
	for body := range m.module.Code {
		_, it, err := m.module.Body(body, nil)
		var code []instruction
		for err == nil && it.Next() {
			code = append(code, instruction{uint32(it.Instr.Pos), rewrite.Cost(&it.Instr, imports)})
		}
		var n uint64
		for _, in := range slices.Backward(code) {
			if counted, ok := m.counts[in.at]; ok {
				n = counted
			} // else it is part of the operation behind it
			places := m.table.Lines(in.at)
			if len(places) == 0 || places[0].Line == 0 {
				continue
			}
			key := Line{Function: uint32(imports + body), Name: places[0].Function, File: places[0].File, Line: places[0].Line}
			sum := sums[key]
			if sum == nil {
				sum = &Line{key.Function, key.Name, key.File, key.Line, 0, 0}
				sums[key] = sum
			}
			sum.Executed, sum.Fuel = max(sum.Executed, n), sum.Fuel+n*in.cost
		}
	}
}
