package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/runtime/tool/builtin"
	"github.com/starling-host/starling/runtime/tool/mcptool"
)

// maxIdleModules bounds the loaded modules that no replay uses at the moment.
// One takes tens of megabytes, and a database can hold any number of versions.
const maxIdleModules = 8

// modules loads the modules that replays need. A module is loaded once for each
// set of limits, which are part of its code, and shared.
type modules struct {
	engine *sandbox.Engine
	store  eventlog.ModuleStore
	other  []byte // what takes the place of every recorded module; nil for none

	mu     sync.Mutex
	loaded map[moduleKey]*sharedModule
	idle   []*sharedModule // those without users, longest idle first
}

type moduleKey struct {
	digest chain.Hash
	limits event.SandboxLimits
	name   string // the tool's; a WASI command has no other than it is given
}

// sharedModule is a module that is loaded, or is being loaded. The fields below
// ready may be read once it is closed; users belongs to modules.mu.
type sharedModule struct {
	key    moduleKey
	users  int
	ready  chan struct{}
	module *guest.Module
	err    error
}

func newModules(engine *sandbox.Engine, store eventlog.ModuleStore, other []byte) *modules {
	return &modules{engine: engine, store: store, other: other, loaded: map[moduleKey]*sharedModule{}}
}

// close releases everything. No lease may be in use.
func (m *modules) close(ctx context.Context) {
	for _, shared := range m.loaded {
		shared.close(ctx)
	}
	m.engine.Close(ctx)
}

func (s *sharedModule) close(ctx context.Context) {
	if s.module != nil {
		s.module.Close(ctx)
	}
}

// acquire returns the module of a tool reference, which must be released.
func (m *modules) acquire(ctx context.Context, ref event.ToolSchemaRef) (*sharedModule, error) {
	digest := ref.Sandbox.Module
	if len(digest) != len(chain.Hash{}) {
		return nil, fmt.Errorf("the digest of tool %q has %d bytes, not %d", ref.Name, len(digest), len(chain.Hash{}))
	}
	key := moduleKey{chain.Hash(digest), ref.Sandbox.Limits, ref.Name}
	shared, found := m.use(key)
	if !found {
		shared.module, shared.err = m.load(ctx, key)
		close(shared.ready)
	}
	<-shared.ready
	if shared.err != nil {
		m.release(ctx, shared)
		return nil, shared.err
	}
	return shared, nil
}

// use counts a user of the module under key. If it was not found, the caller
// must load it and close ready.
func (m *modules) use(key moduleKey) (shared *sharedModule, found bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	shared, found = m.loaded[key]
	if !found {
		shared = &sharedModule{key: key, ready: make(chan struct{})}
		m.loaded[key] = shared
	}
	shared.users++
	m.idle = slices.DeleteFunc(m.idle, func(s *sharedModule) bool { return s == shared })
	return shared, found
}

// release ends a use. What failed to load is forgotten, and of what is idle the
// module that was used longest ago makes room.
func (m *modules) release(ctx context.Context, shared *sharedModule) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if shared.users--; shared.users > 0 {
		return
	}
	if shared.err != nil {
		delete(m.loaded, shared.key)
		return
	}
	m.idle = append(m.idle, shared)
	if len(m.idle) > maxIdleModules {
		oldest := m.idle[0]
		m.idle = slices.Delete(m.idle, 0, 1)
		delete(m.loaded, oldest.key)
		oldest.close(ctx)
	}
}

func (m *modules) load(ctx context.Context, key moduleKey) (*guest.Module, error) {
	wasm := m.other
	if wasm == nil {
		var err error
		if wasm, err = m.store.Module(ctx, key.digest); err != nil {
			return nil, err
		}
	}
	return guest.Load(ctx, guest.Inline(m.engine), wasm, guest.Options{Limits: key.limits, Name: key.name})
}

// lease holds the modules of one replay.
type lease struct {
	modules *modules
	held    []*sharedModule
}

func (m *modules) lease() *lease { return &lease{modules: m} }

// resolve finds the tool that a run recorded. It is a replay.Resolver.
func (l *lease) resolve(ctx context.Context, ref event.ToolSchemaRef) (tool.Tool, error) {
	if ref.Sandbox == nil {
		return offline(ref)
	}
	name := ref.Name
	if original, ok := strings.CutPrefix(ref.Source, tool.SourceExport); ok {
		ref.Name = original
	}
	shared, err := l.modules.acquire(ctx, ref)
	if err != nil {
		return nil, err
	}
	l.held = append(l.held, shared)
	found, ok := shared.module.Tool(ref.Name)
	switch {
	case !ok:
		return nil, &failure{code: exitRefused, message: fmt.Sprintf("the module has no tool %q", ref.Name)}
	case name != ref.Name:
		return tool.Rename(found, name), nil
	}
	return found, nil
}

// offline finds a tool that is no module: one of ours, or one of an MCP server,
// whose answers are all in the log.
func offline(ref event.ToolSchemaRef) (tool.Tool, error) {
	if own, ok := builtin.Offline(ref.Source); ok && own.Name() != ref.Name {
		return tool.Rename(own, ref.Name), nil
	} else if ok {
		return own, nil
	}
	remote, ok := strings.CutPrefix(ref.Source, mcptool.SourcePrefix)
	if !ok {
		return nil, &failure{code: exitRefused, message: fmt.Sprintf("tool %q is not a module", ref.Name),
			hint: "what ran in the sandbox can be executed again, and what came from an MCP server; check the run with: starling-host validate"}
	}
	client, err := mcptool.Offline([]mcptool.Definition{{Name: remote, Description: ref.Description, Schema: json.RawMessage(ref.Schema)}},
		mcptool.WithToolNamePrefix(strings.TrimSuffix(ref.Name, remote)))
	if err != nil {
		return nil, &failure{code: exitRefused, message: err.Error()}
	}
	tools, err := client.Tools(context.Background())
	if err != nil || len(tools) != 1 {
		return nil, &failure{code: exitRefused, message: fmt.Sprintf("tool %q is not as it was recorded", ref.Name)}
	}
	return tools[0], nil
}

// release ends the use of everything that was resolved.
func (l *lease) release(ctx context.Context) {
	for _, shared := range l.held {
		l.modules.release(ctx, shared)
	}
	l.held = nil
}
