package guest

import (
	"context"
	"slices"
	"sync"
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
