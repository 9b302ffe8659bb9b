package guest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/tool"
)

// Cache keeps modules by key. It is safe for concurrent use. Use [NewCache].
type Cache[K comparable] struct {
	most CacheLimits
	load func(context.Context, K) (*Module, error)

	mu      sync.Mutex // guards the fields below
	entries map[K]*entry[K]
	idle    []*entry[K] // those without users, longest idle first
}

// CacheLimits bound the modules that a cache keeps without users.
type CacheLimits struct {
	Modules int
	// Bytes bounds their total size, see [Module.Size], so that large uploads cannot fill
	// the memory of a host.
	Bytes int
}

// entry is a loaded module, or one being loaded. The fields below ready may be read once it
// is closed; Cache.mu guards users.
type entry[K comparable] struct {
	key    K
	users  int
	gone   bool // removed from the cache: its last user closes it
	ready  chan struct{}
	module *Module
	err    error
	left   bool // its load was cancelled by the loader's context
}

// NewCache returns an empty cache. load makes the module of a key that it does not have.
func NewCache[K comparable](most CacheLimits, load func(context.Context, K) (*Module, error)) *Cache[K] {
	return &Cache[K]{most: most, load: load, entries: map[K]*entry[K]{}}
}

// Take returns the module under the key, and a function that releases it, which must be
// called once. If the module is missing, it is loaded, while other callers wait. A module
// that does not load is forgotten, and all waiters get the error. But if the load failed
// because its caller's context ended, one of the waiters loads the module.
func (s *Cache[K]) Take(ctx context.Context, key K) (*Module, func(), error) {
	for {
		e, found := s.use(key)
		if !found {
			e.module, e.err = s.load(ctx, key)
			e.left = e.err != nil && ctx.Err() != nil
			if e.err != nil {
				s.forget(e)
			}
			close(e.ready)
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			s.release(e)
			return nil, nil, ctx.Err()
		}
		if e.err == nil {
			return e.module, sync.OnceFunc(func() { s.release(e) }), nil
		}
		s.release(e)
		if !e.left || !found {
			return nil, nil, e.err
		}
	}
}

// forget removes an entry, so that no caller finds it any more.
func (s *Cache[K]) forget(e *entry[K]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[e.key] == e {
		delete(s.entries, e.key)
	}
}

// use counts a user of the entry under key. If the entry is new, the caller must load it
// and close ready.
func (s *Cache[K]) use(key K) (e *entry[K], found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, found = s.entries[key]
	if !found {
		e = &entry[K]{key: key, ready: make(chan struct{})}
		s.entries[key] = e
	}
	e.users++
	s.idle = slices.DeleteFunc(s.idle, func(other *entry[K]) bool { return other == e })
	return e, found
}

// release ends a use. If too many modules are idle, it closes the least recently used.
func (s *Cache[K]) release(e *entry[K]) {
	for _, done := range s.leave(e) {
		done.close()
	}
}

// leave ends a use, and returns the modules to close.
func (s *Cache[K]) leave(e *entry[K]) []*entry[K] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.users--; e.users > 0 {
		return nil
	}
	select {
	case <-e.ready:
	default:
		return nil // the loader is still a user, so this is not the last
	}
	if e.err != nil || e.gone {
		return []*entry[K]{e}
	}
	s.idle = append(s.idle, e)
	return s.surplus()
}

// surplus removes and returns excess modules. The caller holds mu.
func (s *Cache[K]) surplus() []*entry[K] {
	kept, bytes := 0, 0
	for _, e := range slices.Backward(s.idle) {
		if bytes += e.size(); kept == s.most.Modules || bytes > s.most.Bytes {
			break
		}
		kept++
	}
	oldest := slices.Clone(s.idle[:len(s.idle)-kept])
	s.idle = slices.Delete(s.idle, 0, len(oldest))
	for _, e := range oldest {
		delete(s.entries, e.key)
	}
	return oldest
}

// Drop forgets the modules whose keys match. A module in use is closed when its last
// user releases it.
func (s *Cache[K]) Drop(match func(K) bool) {
	for _, done := range s.drop(match) {
		done.close()
	}
}

func (s *Cache[K]) drop(match func(K) bool) (done []*entry[K]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, e := range s.entries {
		if !match(key) {
			continue
		}
		delete(s.entries, key)
		e.gone = true
		if e.users == 0 {
			done = append(done, e)
		}
	}
	s.idle = slices.DeleteFunc(s.idle, func(e *entry[K]) bool { return e.gone })
	return done
}

// Close forgets everything. No module may be in use.
func (s *Cache[K]) Close() { s.Drop(func(K) bool { return true }) }

func (e *entry[K]) size() int {
	if e.module == nil {
		return 0
	}
	return e.module.Size()
}

func (e *entry[K]) close() {
	if e.module != nil {
		e.module.Close(context.Background())
	}
}

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
		return tool.Rename(found.In(l.modules.store), name), nil
	}
	return found.In(l.modules.store), nil
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
