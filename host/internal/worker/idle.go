package worker

import (
	"slices"
	"time"
)

// idleProcess is a process without a call.
type idleProcess struct {
	*process
	module *Module
	since  time.Time
}

// linger is how long a surplus process is kept. A frequent caller calls again at once,
// and starting a process takes a hundred times as long as a short call.
const linger = time.Second

// take returns the most recently used idle process of a module, or nil. Dead
// processes are dropped.
func (e *Engine) take(m *Module) *process {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, p := range slices.Backward(e.idle) {
		if p.module != m {
			continue
		}
		e.idle = slices.Delete(e.idle, i, i+1)
		if p.alive() {
			return p.process
		}
		p.hangUp()
	}
	return nil
}

// put keeps a process for later.
func (e *Engine) put(m *Module, p *process) {
	e.mu.Lock()
	e.idle = append(e.idle, &idleProcess{p, m, time.Now()})
	e.mu.Unlock()
	e.tidy()
}

// tidy ends surplus idle processes, and runs again for lingering ones.
func (e *Engine) tidy() {
	var surplus []*idleProcess
	e.mu.Lock()
	for len(e.idle) > e.config.MaxIdle {
		i := e.surplus()
		rest := e.linger - time.Since(e.idle[i].since)
		if rest > 0 && len(e.idle) <= e.config.MaxCalls {
			e.tidying.Reset(rest)
			break
		}
		surplus = append(surplus, e.idle[i])
		e.idle = slices.Delete(e.idle, i, i+1)
	}
	e.mu.Unlock()
	for _, p := range surplus {
		p.end()
	}
}

// surplus returns the place of the least needed idle process: of the module with
// the most of them, the one idle for longest. So a flood of calls cannot take the
// warm process of a module that is called now and then. The caller holds mu.
func (e *Engine) surplus() (place int) {
	have := map[*Module]int{}
	for _, p := range e.idle {
		have[p.module]++
	}
	for i, p := range e.idle {
		if have[p.module] > have[e.idle[place].module] {
			place = i
		}
	}
	return place
}

// drop ends the idle processes that which selects.
func (e *Engine) drop(which func(*idleProcess) bool) {
	var dropped []*idleProcess
	e.mu.Lock()
	e.idle = slices.DeleteFunc(e.idle, func(p *idleProcess) bool {
		if which(p) {
			dropped = append(dropped, p)
			return true
		}
		return false
	})
	e.mu.Unlock()
	for _, p := range dropped {
		p.end()
	}
}
