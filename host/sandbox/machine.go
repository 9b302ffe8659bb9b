//go:build !js

package sandbox

import (
	"context"
	"errors"

	"github.com/starling-host/starling/host/internal/machine"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/internal/source"
)

// machineCode is a module that host/internal/machine executes.
type machineCode struct {
	code   *machine.Code
	count  bool
	source *sourceOf // nil if nothing observes it
}

// translated makes the machine translate a module.
func translated(ctx context.Context, p *Prepared, o Observers) (executable, error) {
	code, err := machine.Translate(ctx, p.Wasm, rewrite.GlobalFuel)
	if err != nil {
		return nil, err
	}
	c := &machineCode{code: code, count: o.Source != nil}
	if p.Module != nil {
		c.source, err = describe(ctx, p, o)
	}
	return c, err
}

func (c *machineCode) close(context.Context) error { return nil }

// instantiate makes an instance on memory of its own: that of a recording outlives it.
func (c *machineCode) instantiate(i *instance) (running, error) {
	hosts := make([]machine.Host, len(c.code.Imports))
	for n, im := range c.code.Imports {
		answer := answering(rewrite.Import{Module: im.Module, Name: im.Name})
		room := max(len(im.Type.Params), 1)
		hosts[n] = func(slots []uint64) { answer(&i.session, slots[:room]) }
	}
	m := machine.New(c.code, hosts)
	if c.count {
		m.Count()
	}
	return &machineModule{m, i, c.source}, nil
}

type machineModule struct {
	m      *machine.Machine
	i      *instance
	source *sourceOf
}

func (m *machineModule) memory() memory { return m.m }

func (m *machineModule) global(name string) global {
	if g := m.m.Global(name); g != nil {
		return g
	}
	return nil
}

func (m *machineModule) function(name string) function { return machineFunction{m, name} }

func (m *machineModule) close() {}

type machineFunction struct {
	*machineModule
	name string
}

// CallWithStack calls the export. A recorded call looks at the caller's context itself, since it is not
// refilled.
func (f machineFunction) CallWithStack(_ context.Context, stack []uint64) error {
	s, ctx := &f.i.session, context.Background()
	if s.record {
		f.m.Record(0)
		ctx = s.ctx
	}
	f.m.Observe(s.watch.lines(f.m, f.source.script()))
	err := f.m.Call(ctx, f.name, stack)
	if err != nil && errors.Is(err, ctx.Err()) {
		err = &guestStopped{s.interruption()}
	}
	return err
}

// mostWalked bounds the frames that are read to follow a script. What it spends afterwards belongs to no
// function of it.
const mostWalked = 1 << 26

// lines returns what reports the lines of a script, or nil.
func (w *watch) lines(m *machine.Machine, script *source.Table) func() []machine.Range {
	if w.profile() == nil || script == nil {
		return nil
	}
	w.script = true
	follower, last, deep := source.Follower{Table: script}, source.Place{}, -1
	return func() []machine.Range {
		if follower.Walked > mostWalked {
			w.profiler.Line(0, "", "", 0, m.Fuel())
			return nil
		}
		memory, _ := m.Read(0, m.Size())
		at, depth, addresses, ok := follower.Look(memory)
		if at.Line, at.Column = max(at.Line, 0), 0; ok && (at != last || depth != deep) && (at.File != "" || depth == 0) {
			last, deep = at, depth
			w.profiler.Line(depth, at.Function, at.File, at.Line, m.Fuel())
		}
		ranges := make([]machine.Range, 0, len(addresses))
		for _, address := range addresses {
			ranges = append(ranges, machine.Range{Addr: address, Len: 4})
		}
		return ranges
	}
}
