package inspect

import "sync"

// slots bound how much is done at once: in all, and for one namespace, so that one
// tenant cannot keep the others waiting.
type slots struct {
	all, each int

	mu   sync.Mutex // guards what follows
	used int
	of   map[string]int // by namespace; those with none are not in it
}

// newSlots returns so many slots. A namespace gets at most the given part of them.
func newSlots(all, part int) *slots {
	return &slots{all: all, each: max(1, all/part), of: map[string]int{}}
}

// enter takes a slot, to be given back with leave, and reports whether there was
// one. The view without a namespace shows everything, to somebody who may have
// everything.
func (s *slots) enter(namespace string) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.all || namespace != "" && s.of[namespace] >= s.each {
		return nil, false
	}
	s.used++
	s.of[namespace]++
	return func() { s.leave(namespace) }, true
}

func (s *slots) leave(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if s.of[namespace]--; s.of[namespace] == 0 {
		delete(s.of, namespace)
	}
}
