package serve

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/runtime/observe"
)

// The defaults for sealing.
const (
	defaultSealEvery = 5 * time.Minute
	defaultSealRuns  = 1000
)

// sealing signs a checkpoint of the runs of a host at intervals, after a number of runs,
// and at shutdown.
type sealing struct {
	h      *Host
	sealer *seal.Sealer
	every  time.Duration
	runs   int64

	metrics *observe.Seal // nil measures nothing

	mu sync.Mutex // held while sealer works

	ended atomic.Int64  // runs since the last checkpoint
	due   chan struct{} // capacity 1
}

// openSealing returns nil if the file of the host names no key.
func (h *Host) openSealing() *sealing {
	f, key := h.file.Seal, h.found.sealKey
	if key == nil {
		return nil
	}
	return &sealing{
		h: h, sealer: seal.NewSealer(h.log, key), due: make(chan struct{}, 1),
		every: cmp.Or(f.Every, defaultSealEvery), runs: int64(cmp.Or(f.Runs, defaultSealRuns)),
	}
}

// runEnded counts an ended run.
func (s *sealing) runEnded() {
	if s.ended.Add(1) == s.runs {
		s.signSoon()
	}
}

// signSoon requests a checkpoint now. Until then, nothing proves why removed runs are gone.
func (s *sealing) signSoon() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// keep signs until ctx ends.
func (s *sealing) keep(ctx context.Context) {
	tick := time.Tick(s.every)
	for {
		select {
		case <-tick:
		case <-s.due:
		case <-ctx.Done():
			return
		}
		s.sign(ctx)
	}
}

// sealTimeout bounds the last checkpoint of a host at shutdown.
const sealTimeout = 10 * time.Second

// sign signs a checkpoint, if anything is new, and asks the witnesses to cosign it.
// Failures are retried the next time.
func (s *sealing) sign(ctx context.Context) {
	s.mu.Lock() // the last checkpoint of a host may coincide with another
	defer s.mu.Unlock()
	s.ended.Store(0)
	sealed, err := s.sealer.Seal(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return
	case err != nil:
		s.h.logger.Error("runs not sealed", "error", err.Error())
		return
	}
	for _, r := range sealed.Refused {
		s.h.logger.Error("run not sealed: it is invalid", "run_id", r.RunID, "error", r.Err.Error())
	}
	if !sealed.New {
		s.metrics.Sealed(0)
		return
	}
	s.metrics.Sealed(uint64(sealed.Checkpoint.Leaves))
	s.h.logger.Info("runs sealed", "log", sealed.Checkpoint.Origin, "runs", sealed.Checkpoint.Leaves, "root", sealed.Checkpoint.Root.String())
	for _, witness := range s.h.file.Seal.Witnesses {
		if _, err := Cosign(ctx, s.h.log, string(witness)); err != nil && ctx.Err() == nil {
			s.h.logger.Error("checkpoint not cosigned", "error", err.Error())
		}
	}
}
