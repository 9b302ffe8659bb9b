// Package recorded finds the tools that runs were recorded with, so that they can
// be executed again: modules by the digests that the log has, and tools that are no
// modules by what the log says of them.
package recorded

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/shelf"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/runtime/tool/builtin"
	"github.com/starling-host/starling/runtime/tool/mcptool"
)

// Error says why a tool that was recorded cannot be executed.
type Error struct {
	Reason string
	Hint   string // or empty
}

// Error returns the reason.
func (e *Error) Error() string { return "recorded: " + e.Reason }

// Modules loads the modules that replays need. A module is loaded once for each
// set of limits, which are part of its code, and shared. It is safe for concurrent
// use. Use [New].
type Modules struct {
	engine guest.Engine
	store  eventlog.ModuleStore
	other  []byte // what takes the place of every recorded module; nil for none
	loaded *shelf.Shelf[key]
}

type key struct {
	digest chain.Hash
	limits event.SandboxLimits
	name   string // the tool's; a WASI command has no other than it is given
}

// New returns the modules of a store, executed by an engine. If other is not nil it
// takes the place of every one of them.
func New(engine guest.Engine, store eventlog.ModuleStore, other []byte) *Modules {
	// One takes tens of megabytes, and a database can hold any number of versions.
	idle := shelf.Limits{Modules: 8, Bytes: 64 << 20}
	return &Modules{engine: engine, store: store, other: other, loaded: shelf.New[key](idle)}
}

// Close releases everything but the engine. No lease may be in use.
func (m *Modules) Close() { m.loaded.Close() }

// Lease holds the modules of one replay. It is for one goroutine.
type Lease struct {
	modules *Modules
	held    []func()
}

// Lease returns a lease that holds nothing yet. It must be released.
func (m *Modules) Lease() *Lease { return &Lease{modules: m} }

// Release ends the use of everything that was resolved.
func (l *Lease) Release() {
	for _, release := range l.held {
		release()
	}
	l.held = nil
}

// Resolve finds the tool that a run recorded. It is a replay.Resolver. Errors are an
// [*Error], or what the store or the loading of the module has to say.
func (l *Lease) Resolve(ctx context.Context, ref event.ToolSchemaRef) (tool.Tool, error) {
	if ref.Sandbox == nil {
		return offline(ref)
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
		return nil, &Error{Reason: fmt.Sprintf("the module has no tool %q", ref.Name)}
	case name != ref.Name:
		return tool.Rename(found, name), nil
	}
	return found, nil
}

func (l *Lease) take(ctx context.Context, ref event.ToolSchemaRef) (*guest.Module, error) {
	digest := ref.Sandbox.Module
	if len(digest) != len(chain.Hash{}) {
		return nil, fmt.Errorf("the digest of tool %q has %d bytes, not %d", ref.Name, len(digest), len(chain.Hash{}))
	}
	k := key{chain.Hash(digest), ref.Sandbox.Limits, ref.Name}
	module, release, err := l.modules.loaded.Take(ctx, k, func(ctx context.Context) (*guest.Module, error) { return l.modules.load(ctx, k) })
	if err != nil {
		return nil, err
	}
	l.held = append(l.held, release)
	return module, nil
}

func (m *Modules) load(ctx context.Context, k key) (*guest.Module, error) {
	wasm := m.other
	if wasm == nil {
		var err error
		if wasm, err = m.store.Module(ctx, k.digest); err != nil {
			return nil, err
		}
	}
	return guest.Load(ctx, m.engine, wasm, guest.Options{Limits: k.limits, Name: k.name})
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
		return nil, &Error{Reason: fmt.Sprintf("tool %q is not a module", ref.Name),
			Hint: "what ran in the sandbox can be executed again, and what came from an MCP server; check the run with: starling-host validate"}
	}
	client, err := mcptool.Offline([]mcptool.Definition{{Name: remote, Description: ref.Description, Schema: json.RawMessage(ref.Schema)}},
		mcptool.WithToolNamePrefix(strings.TrimSuffix(ref.Name, remote)))
	if err != nil {
		return nil, &Error{Reason: err.Error()}
	}
	tools, err := client.Tools(context.Background())
	if err != nil || len(tools) != 1 {
		return nil, &Error{Reason: fmt.Sprintf("tool %q is not as it was recorded", ref.Name)}
	}
	return tools[0], nil
}
