package riverqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/pglog"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/queue/internal/desk"
)

// Open opens the queue in the database of the log, and makes its tables and River's.
// The pool is one on the same database, and the caller's; Work needs two
// connections of it for itself.
//
// Without a clock in the configuration the time is that of the server.
func Open(ctx context.Context, log *pglog.Log, pool *pgxpool.Pool, cfg queue.Config) (queue.Queue, error) {
	r := &rousing{}
	if cfg.Clock == nil {
		r.clock = &serverClock{pool: pool}
		cfg.Clock = r.clock
		if err := r.clock.ask(ctx); err != nil {
			return nil, err
		}
	}
	cfg, err := cfg.Resolve()
	if err != nil {
		return nil, err
	}
	driver := riverpgxv5.New(pool)
	if err := migrate(ctx, driver, pool); err != nil {
		return nil, err
	}
	// A client that inserts tells the workers no more often than this, and what it does
	// not tell them they find by polling. It is the least that River takes.
	client, err := river.NewClient(driver, &river.Config{Logger: cfg.Logger, FetchCooldown: time.Millisecond})
	if err != nil {
		return nil, fmt.Errorf("riverqueue: %w", err)
	}
	r.driver, r.client, r.cfg = driver, client, cfg
	d, err := desk.New(ctx, log, cfg, desk.Hooks{Opened: r.opened, Cancel: r.cancel, Start: r.start})
	if err != nil {
		return nil, err
	}
	r.desk = d
	return d, nil
}

// queueName is the queue in River that the turns are in.
const queueName = "starling"

// turn is the job of River's.
type turn struct{}

func (turn) Kind() string { return "starling_turn" }

// rousing has workers woken by River.
type rousing struct {
	driver *riverpgxv5.Driver
	client *river.Client[pgx.Tx] // inserts and cancels
	desk   *desk.Desk
	cfg    queue.Config
	clock  *serverClock // nil if the configuration has another one
}

// pgxTx returns the transaction below the log's.
func pgxTx(tx eventlog.Tx) (pgx.Tx, error) {
	if p, ok := tx.(*pglog.Tx); ok {
		return p.PGX(), nil
	}
	return nil, fmt.Errorf("riverqueue: the log's transactions are %T, want those of package pglog", tx)
}

// opened inserts turns.
func (r *rousing) opened(tx eventlog.Tx, turns int) error {
	p, err := pgxTx(tx)
	if err != nil {
		return err
	}
	params := make([]river.InsertManyParams, turns)
	for i := range params {
		params[i] = river.InsertManyParams{Args: turn{}, InsertOpts: &river.InsertOpts{Queue: queueName}}
	}
	_, err = r.client.InsertManyFastTx(context.Background(), p, params)
	return err
}

// cancel cancels a turn, which then takes no more jobs, and inserts another one in its
// place. One that is not there any more has ended.
func (r *rousing) cancel(tx eventlog.Tx, turn int64) error {
	p, err := pgxTx(tx)
	if err != nil {
		return err
	}
	if _, err = r.client.JobCancelTx(context.Background(), p, turn); errors.Is(err, river.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.opened(tx, 1)
}

// start begins to take turns.
func (r *rousing) start(ctx context.Context) (stop func(), err error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{desk: r.desk})
	client, err := river.NewClient(r.driver, &river.Config{
		Logger:            r.cfg.Logger,
		Queues:            map[string]river.QueueConfig{queueName: {MaxWorkers: r.cfg.Workers}},
		Workers:           workers,
		FetchCooldown:     cooldown,
		FetchPollInterval: max(r.cfg.Poll, cooldown),
		JobTimeout:        -1, // the handler has its own deadline
		// What is rescued is a turn, and the one that has it goes on with its job.
		RescueStuckJobsAfter: time.Hour,
		// A turn that is done tells nobody anything.
		CompletedJobRetentionPeriod: time.Minute,
	})
	if err == nil {
		err = client.Start(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("riverqueue: %w", err)
	}
	timed, enough := context.WithCancel(ctx)
	if r.clock != nil {
		go r.clock.keep(timed, min(r.cfg.Lease/3, time.Minute))
	}
	return func() { enough(); client.Stop(ctx) }, nil
}

// cooldown is the least time between two looks for turns.
const cooldown = 2 * time.Millisecond

// worker takes turns.
type worker struct {
	river.WorkerDefaults[turn]
	desk *desk.Desk
}

// again is when a turn that could not be taken is tried once more.
const again = time.Second

// longest is how long a turn goes on to take jobs. River takes one for stuck after an
// hour.
const longest = 10 * time.Minute

// Work works jobs until there are none. Which of them is meant by a cancellation, which
// may have been on its way for a while, is for the desk to find out.
func (w *worker) Work(ctx context.Context, j *river.Job[turn]) error {
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), rivertype.ErrJobCancelledRemotely) {
			w.desk.Heed(context.WithoutCancel(ctx))
		}
	})()
	some, enough := context.WithTimeout(ctx, longest)
	defer enough()
	switch err := w.desk.Turn(some, j.ID); {
	case err != nil:
		return river.JobSnooze(again)
	case some.Err() != nil && ctx.Err() == nil:
		return river.JobSnooze(0)
	}
	return nil
}
