package guest

import (
	"context"
	"fmt"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/tool"
)

// RecordedError is returned for a recorded tool that cannot be executed.
type RecordedError struct {
	Reason string
	Hint   string // or empty
}

// Error returns the reason.
func (e *RecordedError) Error() string { return "recorded: " + e.Reason }

// Advice implements [hint.Hinted].
func (e *RecordedError) Advice() string { return e.Hint }

// RecordedModules loads the modules that replays need. A module is loaded once for each
// set of limits, which are part of its code, and shared. It is safe for concurrent
// use. Use [NewRecorded].
type RecordedModules struct {
	engine Engine
	store  eventlog.ModuleReader
	other  []byte // replaces every recorded module; nil for none
	native Native
	loaded *Cache[recordedKey]
}

// Native finds, for a replay, a recorded tool that is not a module: its answers are all in
// the log. It reports false for unknown tools.
type Native func(ref event.ToolSchemaRef) (found tool.Tool, ok bool, err error)

type recordedKey struct {
	digest canon.Hash
	limits event.SandboxLimits
	name   string // the tool's; it names a WASI command
}

// NewRecorded returns the modules of a store, executed by an engine. If other is not nil it
// replaces all of them. Native supplies tools that are not modules.
func NewRecorded(engine Engine, store eventlog.ModuleReader, other []byte, native Native) *RecordedModules {
	// A module takes tens of megabytes, and a database can hold any number of versions.
	idle := CacheLimits{Modules: 8, Bytes: 64 << 20}
	m := &RecordedModules{engine: engine, store: store, other: other, native: native}
	m.loaded = NewCache(idle, m.load)
	return m
}

// Close releases everything but the engine. No lease may be in use.
func (m *RecordedModules) Close() { m.loaded.Close() }

// Lease holds the modules of one replay. It is for one goroutine.
type Lease struct {
	modules *RecordedModules
	held    []func()
}

// Lease returns an empty lease. It must be released.
func (m *RecordedModules) Lease() *Lease { return &Lease{modules: m} }

// Release releases all resolved modules.
func (l *Lease) Release() {
	for _, release := range l.held {
		release()
	}
	l.held = nil
}

// Resolve finds a recorded tool. It is a replay.Resolver. The error is an [*RecordedError],
// or comes from the store or from loading the module.
func (l *Lease) Resolve(ctx context.Context, ref event.ToolSchemaRef) (tool.Tool, error) {
	if ref.Sandbox == nil {
		return l.modules.offline(ref)
	}
	name := ref.Name
	if original, ok := strings.CutPrefix(ref.Source, tool.SourceExport); ok {
		ref.Name = original
	}
	module, err := l.take(ctx, ref)
	if err != nil {
		return nil, err
	}
	found, ok := module.Tool(ref.Name)
	switch {
	case !ok:
		return nil, &RecordedError{Reason: fmt.Sprintf("the module has no tool %q", ref.Name)}
	case name != ref.Name:
		return tool.Rename(found, name), nil
	}
	return found, nil
}

func (l *Lease) take(ctx context.Context, ref event.ToolSchemaRef) (*Module, error) {
	digest := ref.Sandbox.Module
	if len(digest) != len(canon.Hash{}) {
		return nil, fmt.Errorf("the digest of tool %q has %d bytes, not %d", ref.Name, len(digest), len(canon.Hash{}))
	}
	k := recordedKey{canon.Hash(digest), ref.Sandbox.Limits, ref.Name}
	module, release, err := l.modules.loaded.Take(ctx, k)
	if err != nil {
		return nil, err
	}
	l.held = append(l.held, release)
	return module, nil
}

func (m *RecordedModules) load(ctx context.Context, k recordedKey) (*Module, error) {
	wasm := m.other
	if wasm == nil {
		var err error
		if wasm, err = m.store.Module(ctx, k.digest); err != nil {
			return nil, err
		}
	}
	return Load(ctx, m.engine, wasm, Options{Limits: sandbox.Limits(k.limits), Name: k.name})
}

// offline finds a tool that is not a module.
func (m *RecordedModules) offline(ref event.ToolSchemaRef) (tool.Tool, error) {
	found, ok, err := m.native(ref)
	switch {
	case err != nil:
		return nil, &RecordedError{Reason: err.Error()}
	case !ok:
		return nil, &RecordedError{Reason: fmt.Sprintf("tool %q is not a module: if it is a function of a Go program, that program replays it, see ReplayOptions.Tools", ref.Name),
			Hint: "what ran in the sandbox can be executed again, and what came from an MCP server; check the run with: starling-host validate"}
	}
	return found, nil
}
