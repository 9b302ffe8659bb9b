package serve

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/runtime/egress"
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

	metrics *observe.Seal

	mu sync.Mutex // held while sealer works

	ended atomic.Int64  // runs since the last checkpoint
	due   chan struct{} // capacity 1
}

// runEnded counts an ended run.
func (s *sealing) runEnded() {
	if s.ended.Add(1) == s.runs {
		s.signSoon()
	}
}

// signSoon requests a checkpoint now. Until then, nothing proves why removed runs are gone.
func (s *sealing) signSoon() { await.Offer(s.due, struct{}{}) }

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

// Bounds on what a witness answers.
const (
	witnessTimeout = 10 * time.Second
	witnessBytes   = 2 * seal.MaxCheckpointBytes
)

// Cosign asks a witness, at its URL, to cosign the newest checkpoint of a database, and
// stores the cosignature. It returns the checkpoint with it. The protocol is c2sp.org/tlog-witness.
func Cosign(ctx context.Context, db eventlog.Transactor, witness string) (signed []byte, err error) {
	c, signed, err := seal.Newest(ctx, db)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: egress.Fetch(witness), Timeout: witnessTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	var old int64 // leaves of the checkpoint that the witness has seen
	for range 3 { // the answer shows the state of the witness
		proof, err := seal.Consistency(ctx, db, c, old)
		if err != nil {
			return nil, err
		}
		body := fmt.Appendf(nil, "old %d\n", old)
		for _, h := range proof {
			body = fmt.Appendf(body, "%s\n", h)
		}
		body = append(append(body, '\n'), signed...)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(witness, "/")+"/add-checkpoint", bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("witness %s: %w", witness, err)
		}
		response, err := client.Do(req)
		if err != nil {
			return nil, fmt.Errorf("witness: %w", err)
		}
		answer, err := io.ReadAll(io.LimitReader(response.Body, witnessBytes))
		response.Body.Close()
		switch {
		case err != nil:
			return nil, fmt.Errorf("witness %s: %w", witness, err)
		case response.StatusCode == http.StatusOK:
			return seal.KeepCosignatures(ctx, db, c, answer)
		case response.StatusCode == http.StatusConflict && response.Header.Get("Content-Type") == "text/x.tlog.size":
			seen, err := strconv.ParseInt(strings.TrimSpace(string(answer)), 10, 64)
			if err != nil || seen < 0 || seen == old {
				return nil, fmt.Errorf("witness %s: it has seen another checkpoint of %d runs of this log: the log was rewritten, or there are two", witness, old)
			}
			if seen > c.Leaves {
				return nil, fmt.Errorf("witness %s: it has seen %d runs of this log, which has %d: the database was reset to an older copy", witness, seen, c.Leaves)
			}
			old = seen
		default:
			return nil, fmt.Errorf("witness %s: status %d: %s", witness, response.StatusCode, strings.TrimSpace(string(answer[:min(len(answer), 300)])))
		}
	}
	return nil, fmt.Errorf("witness %s: its answer lacks the size of its log", witness)
}
