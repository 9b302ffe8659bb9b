package worker

import (
	"context"
	"sync"

	"github.com/starling-host/starling/host/turns"
)

// seat is the turn of a call that computes. It lasts until the call ends, waits for an
// exchange, or is looked at (priority.go): a call that takes longer stands back soon
// if it computes, and if it sleeps it keeps a turn from nobody. One whose process
// stands back needs none: it computes when nobody else does.
type seat struct {
	line *turns.Line

	mu      sync.Mutex  // guards what follows
	process *process    // nil before there is one
	turn    *turns.Turn // nil for none
}

// take waits for a turn, if one is needed. The error is that of ctx.
func (s *seat) take(ctx context.Context) error {
	if !s.needed() {
		return nil
	}
	turn, err := s.line.Take(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.turn = turn
	s.mu.Unlock()
	if !s.needed() { // any more, since meanwhile there was nothing that leave could end
		s.leave()
	}
	return nil
}

// needed reports whether the process computes like others.
func (s *seat) needed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process == nil || !s.process.behind.Load()
}

// belongs says which process computes.
func (s *seat) belongs(p *process) {
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	if !s.needed() {
		s.leave()
	}
}

// leave ends the turn, if there is one.
func (s *seat) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn != nil {
		s.turn.End()
		s.turn = nil
	}
}
