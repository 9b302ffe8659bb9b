//go:build !js

package sandbox

import (
	"context"
	"errors"

	"github.com/starling-host/starling/host/internal/machine"
	"github.com/starling-host/starling/host/internal/rewrite"
)

// machineCode is a module that host/internal/machine executes.
type machineCode struct {
	code  *machine.Code
	count bool
}

// translated makes the machine translate a module.
func translated(p *Prepared, count bool) (executable, error) {
	code, err := machine.Translate(p.Wasm, rewrite.GlobalFuel)
	if err != nil {
		return nil, err
	}
	return &machineCode{code, count}, nil
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
	return &machineModule{m, i}, nil
}

type machineModule struct {
	m *machine.Machine
	i *instance
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
	err := f.m.Call(ctx, f.name, stack)
	if err != nil && errors.Is(err, ctx.Err()) {
		err = &guestStopped{s.interruption()}
	}
	return err
}

// observed gives the observers of a call what the machine has seen of it.
func (e *Engine) observed(i *instance, c Call) {
	m := i.module.(*machineModule).m
	if e.observers.Counts != nil {
		e.observers.Counts(c.Tool, m.Counts())
	}
	if c.Recorded != nil {
		c.Recorded(m.Recording())
	}
}
