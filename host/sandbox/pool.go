package sandbox

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// maxIdle bounds the idle instances of all modules of an engine. An instance of a Go tool
// takes some 300 KiB, and each takes two of the 65530 mappings that Linux allows a process.
const maxIdle = 1024

// pool keeps a module's idle instances, all of them at the module's start.
type pool struct {
	total *atomic.Int64 // idle instances of all modules of the engine
	used  atomic.Uint64 // instances that were reset

	mu     sync.Mutex  // guards the fields below
	idle   []*instance // the last one used is the next, since it is in the caches
	closed bool
}

// perModule bounds the idle instances of one module: more calls rarely run at once.
func perModule() int { return max(16, 4*runtime.GOMAXPROCS(0)) }

// take returns an idle instance, or nil.
func (p *pool) take() *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	i := p.idle[n-1]
	p.idle = p.idle[:n-1]
	p.total.Add(-1)
	return i
}

// put keeps an instance, unless there are enough.
func (p *pool) put(i *instance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= perModule() || p.total.Load() >= maxIdle {
		return false
	}
	p.idle = append(p.idle, i)
	p.total.Add(1)
	return true
}

// close discards idle instances and keeps none from now on.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	p.total.Add(-int64(len(idle)))
	for _, i := range idle {
		i.discard()
	}
}

// acquire returns an instance at the module's start.
func (m *Module) acquire() (*instance, error) {
	if i := m.pool.take(); i != nil {
		return i, nil
	}
	i, err := m.newInstance(m.start.image)
	if err != nil {
		return nil, err
	}
	if err := i.begin(m.start); err != nil {
		i.discard()
		return nil, err
	}
	return i, nil
}

// giveBack resets an instance after its call, or closes it. It closes an instance whose
// code was ended from within, because the engine may have left it in any state.
func (m *Module) giveBack(i *instance) error {
	if i.spoiled || i.mapping == nil {
		i.discard()
		return nil
	}
	if i.reset(m.start) != nil {
		i.discard() // the next call gets a new one
		return nil
	}
	if every := m.engine.verify; every > 0 && m.pool.used.Add(1)%every == 0 {
		if err := i.verify(m.start); err != nil {
			i.discard()
			return err
		}
	}
	if !m.pool.put(i) {
		i.discard()
	}
	return nil
}
