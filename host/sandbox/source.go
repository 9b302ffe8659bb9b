//go:build !js

package sandbox

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/starling-host/starling/host/internal/interp"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/internal/source"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// sourceOf is what a module says of its source, and where its instructions are in the rewritten module.
type sourceOf struct {
	module   *wasm.Module
	size     int // of the module
	language string
	table    *source.Table // nil with a problem
	offsets  *rewrite.Offsets
	problem  string
	reported atomic.Bool // the functions
}

// mostRead is how many bytes of memory a process spends on what a module says of its source: a quarter of
// what it has beside the memory of the module.
const mostRead = 128 << 20

// reading returns the budget of one reading of a module's source.
func reading(ctx context.Context, size int) *work.Budget {
	l := work.ForSize(size)
	l.Bytes = min(l.Bytes, mostRead)
	return work.New(ctx, l)
}

// describe reads what a module says of its source, for the observers of an engine.
func describe(ctx context.Context, p *Prepared, o Observers) (*sourceOf, error) {
	b := work.For(ctx, len(p.Module)) // gated with as much
	module, err := wasm.Decode(b, p.Module)
	if err != nil {
		return nil, err
	}
	d := &sourceOf{module: module, size: len(p.Module)}
	if about := interp.Of(p.Module); about != nil {
		d.language = about.Language
	}
	if d.table, err = source.Open(reading(ctx, d.size), p.Module); err != nil {
		d.problem = err.Error()
	}
	if o.Source != nil && d.table != nil && d.table.HasLines() {
		rewritten, err := rewrite.Rewrite(b, p.Module, rewrite.DefaultLimits(), rewrite.Options{MemoryPages: p.Limits.MemoryPages, Depth: p.Limits.Depth, Profile: o.Profile != nil, Offsets: true})
		if err != nil {
			return nil, err
		}
		d.offsets = rewritten.Offsets
	}
	return d, nil
}

// script returns the table of a module that interprets a script, or nil.
func (d *sourceOf) script() *source.Table {
	if d != nil && d.table != nil && (d.table.Format() == source.Python || d.table.Format() == source.JavaScript) {
		return d.table
	}
	return nil
}

// report reports the module to an observer, with the lines of the functions that were called.
func (d *sourceOf) report(to Source, counts iter.Seq2[uint32, uint64]) {
	executed, called := map[uint32]uint64{}, make([]bool, len(d.module.Code))
	if d.offsets != nil {
		body := 0
		for rewritten, n := range counts {
			at, ok := d.offsets.Original(rewritten)
			if !ok {
				continue
			}
			executed[at] = max(executed[at], n)
			if c := d.module.Code[body]; int(at) < c.Pos || int(at) >= c.End {
				body, _ = slices.BinarySearchFunc(d.module.Code, int(at), func(c wasm.Code, at int) int { return cmp.Compare(c.End, at+1) })
				body = min(body, len(called)-1)
			}
			called[body] = true
		}
	}
	b := reading(context.Background(), d.size)
	to.Module(d.module.NumFuncs(), d.language, d.problem)
	if imports := d.module.NumImportedFuncs(); !d.reported.Swap(true) {
		for index := range d.module.NumFuncs() {
			if name := d.name(uint32(index)); name != "" || index >= imports {
				to.Function(uint32(index), name)
			}
		}
	}
	for body := range d.module.Code {
		if called[body] {
			for _, l := range d.lines(b, body, executed) {
				to.SourceLine(l)
			}
		}
	}
}

func (d *sourceOf) name(index uint32) string {
	if d.table == nil {
		return ""
	}
	return d.table.Function(index)
}

// lines returns the lines of a function body, as far as b goes.
func (d *sourceOf) lines(b *work.Budget, body int, executed map[uint32]uint64) []SourceLine {
	type instruction struct {
		at   uint32
		cost uint64
	}
	imports := d.module.NumImportedFuncs()
	_, it, err := d.module.Body(body, nil)
	var code []instruction
	for err == nil && b.Spend(1) == nil && it.Next() {
		code = append(code, instruction{uint32(it.Instr.Pos), rewrite.Cost(&it.Instr, imports)})
	}
	var n uint64
	sums := map[SourceLine]*SourceLine{} // by what is not a sum
	for _, in := range slices.Backward(code) {
		if counted, ok := executed[in.at]; ok {
			n = counted
		} // else it is part of the operation behind it
		places := d.table.Lines(in.at)
		if len(places) == 0 || places[0].Line == 0 {
			continue
		}
		key := SourceLine{Function: uint32(imports + body), Name: places[0].Function, File: places[0].File, Line: places[0].Line}
		sum := sums[key]
		if sum == nil {
			made := key
			sum = &made
			sums[key] = sum
		}
		sum.Executed, sum.Fuel = max(sum.Executed, n), sum.Fuel+n*in.cost
	}
	return slices.SortedFunc(func(yield func(SourceLine) bool) {
		for sum := range maps.Values(sums) {
			if !yield(*sum) {
				return
			}
		}
	}, func(a, b SourceLine) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), strings.Compare(a.Name, b.Name))
	})
}

// observed gives the observers of a call what the machine has seen of it.
func (e *Engine) observed(i *instance, c Call) {
	m := i.module.(*machineModule)
	if e.observers.Source != nil && m.source != nil {
		if to := e.observers.Source(c.Tool); to != nil {
			m.source.report(to, m.m.Counts())
		}
	}
	if c.Recorded != nil {
		c.Recorded(m.m.Recording())
	}
}
