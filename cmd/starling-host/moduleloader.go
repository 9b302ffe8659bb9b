package main

import (
	"context"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/host/agentfile"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/registry"
	"github.com/starling-host/starling/host/worker"
	"github.com/starling-host/starling/runtime/tool"
)

// moduleLoader loads the modules of an agent into one engine, and puts them into
// the database first, so that a run can be replayed from that alone.
type moduleLoader struct {
	store  eventlog.ModuleStore // nil records nothing
	engine *runEngine
	policy *policy.Run // nil: each module goes by its own hosts

	stored map[chain.Hash]int64 // what was put into the database, with its size; nil for nobody to know
}

func newModuleLoader(ctx context.Context, store eventlog.ModuleStore, isolation string) (*moduleLoader, error) {
	engine, err := newRunEngine(ctx, isolation, worker.Config{Compiler: inForeground})
	if err != nil {
		return nil, err
	}
	return &moduleLoader{store: store, engine: engine}, nil
}

func (l *moduleLoader) close() { l.engine.close(context.Background()) }

// LoadModule implements [agentfile.Loader].
func (l *moduleLoader) LoadModule(ctx context.Context, m agentfile.Module) ([]tool.Tool, func() error, error) {
	source, err := registry.Open(ctx, m.Path)
	if err != nil {
		return nil, nil, err
	}
	if l.store != nil {
		digest, err := l.store.PutModule(ctx, source.Wasm)
		if err != nil {
			return nil, nil, err
		}
		if l.stored != nil {
			l.stored[digest] = int64(len(source.Wasm))
		}
	}
	door, err := openEgress(m.AllowHosts, m.AllowPrivate)
	if err != nil {
		return nil, nil, fmt.Errorf("allow_hosts: %w", err)
	}
	module, err := guest.Load(ctx, l.engine, source.Wasm, guest.Options{
		Name: source.Name, Limits: narrowed(l.policy, m.Limits), Egress: door, Allow: m.AllowHosts,
	})
	if err != nil {
		return nil, nil, err
	}
	var tools []tool.Tool
	for _, t := range module.Tools() {
		if l.policy != nil {
			t = t.Under(l.policy)
		}
		tools = append(tools, t)
	}
	return tools, func() error { return module.Close(context.Background()) }, nil
}
