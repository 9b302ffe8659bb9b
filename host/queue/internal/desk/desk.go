package desk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/queue/internal/book"
)

// Hooks are what a queue does whose workers are woken from outside. The zero value
// is a queue that wakes its own.
type Hooks struct {
	// Opened is called in a transaction after which that many more workers are to be
	// woken, to call Turn.
	Opened func(tx eventlog.Tx, turns int) error

	// Cancel is called in the transaction that cancels a job that is running, with
	// the number of the turn for which it was handed out.
	Cancel func(tx eventlog.Tx, turn int64) error

	// Start begins to call Turn, and returns what ends that and waits for the turns,
	// though not longer than until ctx ends. Nil means that the desk hands out jobs
	// to goroutines of its own.
	Start func(ctx context.Context) (stop func(), err error)
}

// Desk is a queue on a database. It implements queue.Queue.
type Desk struct {
	log   eventlog.Transactor
	cfg   queue.Config
	hooks Hooks

	// mu guards everything below. It is never held during a transaction.
	mu       sync.Mutex
	ops      []*op
	turns    []*turn // asked for from outside
	parked   []*turn // of these, the ones that were kept and found only jobs that they are not for
	flushing bool    // a goroutine makes transactions
	quiet    bool    // no job waited when the last transaction was made
	lingers  bool    // a timer runs for what may be done later
	drain    drain
	shift    *shift // nil while Work does not run
}

// New makes a desk. The configuration is resolved. The tables are there when it
// returns.
func New(ctx context.Context, log eventlog.Transactor, cfg queue.Config, h Hooks) (*Desk, error) {
	if err := log.CreateTables(ctx, book.Tables); err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	return &Desk{log: log, cfg: cfg, hooks: h}, nil
}

var _ queue.Queue = (*Desk)(nil)

// Enqueue implements [queue.Queue].
func (d *Desk) Enqueue(ctx context.Context, j queue.Job, first ...event.Event) error {
	return d.EnqueueWith(ctx, j, func(tx eventlog.Tx) error {
		for _, ev := range first {
			if err := tx.Append(j.RunID, ev); err != nil {
				return err
			}
		}
		return nil
	})
}

// EnqueueWith implements [queue.Queue].
func (d *Desk) EnqueueWith(ctx context.Context, j queue.Job, also func(eventlog.Tx) error) error {
	if err := j.Check(); err != nil {
		return err
	}
	var waiting int64
	err := d.do(ctx, &j.Tenant, func(b *book.Tx) (refusal, err error) {
		refusal, err = b.Enqueue(j)
		if err == nil && refusal == nil {
			return nil, also(b.SQL())
		}
		if err == nil {
			waiting, err = b.Waiting(j.Tenant, refusal)
		}
		return refusal, err
	})
	if errors.Is(err, queue.ErrFull) || errors.Is(err, queue.ErrTenantFull) {
		return &queue.FullError{Reason: err, After: d.patience(waiting)}
	}
	return err
}

// Cancel implements [queue.Queue].
func (d *Desk) Cancel(ctx context.Context, runID string) error {
	var found book.Cancelled
	err := d.do(ctx, nil, func(b *book.Tx) (refusal, err error) {
		found, refusal, err = b.Cancel(runID)
		if err == nil && refusal == nil && found.Running && d.hooks.Cancel != nil {
			err = d.hooks.Cancel(b.SQL(), found.Turn)
		}
		return refusal, err
	})
	if err == nil && found.Running {
		d.end(runID, found.Epoch, queue.ErrCancelled)
	}
	return err
}

// Find implements [queue.Queue].
func (d *Desk) Find(ctx context.Context, runID string) (s queue.Status, err error) {
	err = d.log.View(ctx, func(q eventlog.Querier) error {
		s, err = book.Find(q, runID)
		return err
	})
	return s, err
}

// Stats implements [queue.Queue].
func (d *Desk) Stats(ctx context.Context) (queue.Stats, error) { return d.count(ctx, nil) }

// TenantStats implements [queue.Queue].
func (d *Desk) TenantStats(ctx context.Context, tenant string) (queue.Stats, error) {
	return d.count(ctx, &tenant)
}

func (d *Desk) count(ctx context.Context, tenant *string) (s queue.Stats, err error) {
	err = d.log.View(ctx, func(q eventlog.Querier) error {
		s, err = book.Count(q, tenant)
		return err
	})
	return s, err
}

// patience is how long to wait for room in a line of that many jobs: until a tenth
// of them are done, at the pace of the last jobs of this process.
func (d *Desk) patience(waiting int64) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	after := min(d.drain.interval, time.Minute) * time.Duration(min(waiting, 1e6)/10)
	return min(max(after.Round(time.Second), time.Second), 5*time.Minute)
}

// drain is the pace at which jobs are done.
type drain struct {
	last     time.Time
	interval time.Duration // a moving average of the time between two
}

func (r *drain) note(now time.Time) {
	if !r.last.IsZero() {
		r.interval += (now.Sub(r.last) - r.interval) / 16
	}
	r.last = now
}
