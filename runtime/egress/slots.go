package egress

import (
	"context"
	"slices"
	"sync"
)

// Slots bound the connections that are open at once: clients that share them share the
// bound. A nil *Slots bounds nothing. They are safe for concurrent use.
type Slots struct {
	mu      sync.Mutex
	most    int             // negative means any number; guarded by mu, like the fields below
	taken   int             // more than most, if that was lowered meanwhile
	waiting []chan struct{} // in the order of arrival; closed when it has its slot
}

// NewSlots returns slots for most requests at once. A negative number sets no limit.
func NewSlots(most int) *Slots { return &Slots{most: most} }

// Allow sets the number of slots from now on; a negative number means any. Connections
// that are open stay open, also if they are more: the next one opens when there is room.
func (s *Slots) Allow(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = most
	s.admit()
}

// admit gives free slots to the waiting callers. The caller holds mu.
func (s *Slots) admit() {
	for len(s.waiting) > 0 && (s.most < 0 || s.taken < s.most) {
		s.taken++
		close(s.waiting[0])
		s.waiting = slices.Delete(s.waiting, 0, 1)
	}
}

// enter waits for a slot, which leave gives back.
func (s *Slots) enter(ctx context.Context) error {
	if s == nil {
		return nil
	}
	slot := make(chan struct{})
	s.mu.Lock()
	s.waiting = append(s.waiting, slot)
	s.admit()
	s.mu.Unlock()
	select {
	case <-slot:
		return nil
	case <-ctx.Done():
		s.giveUp(slot)
		return ctx.Err()
	}
}

// giveUp ends a wait. Its slot may have come at the same moment, and is for the next one.
func (s *Slots) giveUp(slot chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, slot); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return
	}
	s.taken--
	s.admit()
}

func (s *Slots) leave() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	s.admit()
}
