// Riverlite measures River's own jobs on SQLite: jobs that do nothing, worked off as
// fast as they can be. It prints how many that were in a second. It is a module of its
// own because the driver for SQLite goes with an older River than bench has.
//
//	riverlite -file FILE -workers N -backlog JOBS
//	riverlite -file FILE -workers N -callers N -for TIME
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	_ "modernc.org/sqlite"
)

// settings are what the command line says.
type settings struct {
	file     string
	workers  int
	backlog  int // jobs that lie there already; zero: callers insert them
	callers  int
	duration time.Duration // for which callers insert
}

func main() {
	var s settings
	flag.StringVar(&s.file, "file", "", "SQLite file to make")
	flag.IntVar(&s.workers, "workers", 64, "jobs that run at once")
	flag.IntVar(&s.backlog, "backlog", 0, "jobs that are inserted before the workers start")
	flag.IntVar(&s.callers, "callers", 64, "callers that insert jobs one by one, without -backlog")
	flag.DurationVar(&s.duration, "for", time.Second, "how long they do")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	rate, err := s.measure(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "riverlite:", err)
		os.Exit(1)
	}
	fmt.Println(rate)
}

// noop is a job that does nothing.
type noop struct {
	RunID string `json:"run_id"`
}

func (noop) Kind() string { return "noop" }

// rivers works jobs.
type rivers struct {
	db     *sql.DB
	client *river.Client[*sql.Tx]
	open   sync.WaitGroup // jobs that are inserted and not worked
}

func (s settings) measure(ctx context.Context) (perSecond float64, err error) {
	db, err := open(ctx, s.file)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	r := &rivers{db: db}
	if err := r.connect(s.workers); err != nil {
		return 0, err
	}
	if s.backlog > 0 {
		return r.workOff(ctx, s.backlog)
	}
	return r.inserting(ctx, s.callers, s.duration)
}

// open makes a file and River's tables. The one connection is what River's documentation
// asks for, and NORMAL, which loses acknowledged jobs in a power cut, what it is fastest
// with. Larger pages, a larger cache, rarer checkpoints and another interval of polling
// made no difference.
func open(ctx context.Context, file string) (*sql.DB, error) {
	query := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(NORMAL)", "busy_timeout(30000)"}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: file, RawQuery: query.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	m, err := rivermigrate.New(riversqlite.New(db), nil)
	if err == nil {
		_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// connect makes the client that works.
func (r *rivers) connect(workers int) (err error) {
	set := river.NewWorkers()
	river.AddWorker(set, river.WorkFunc(func(context.Context, *river.Job[noop]) error {
		r.open.Done()
		return nil
	}))
	r.client, err = river.NewClient(riversqlite.New(r.db), &river.Config{
		Logger: slog.New(slog.DiscardHandler), Workers: set, FetchCooldown: time.Millisecond,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
	})
	return err
}

// workOff inserts jobs, and measures from the start of the workers until all are
// worked and the workers have stopped, so that what became of each is written down.
func (r *rivers) workOff(ctx context.Context, jobs int) (perSecond float64, err error) {
	// A client that has workers and was not started panics when it inserts many.
	inserter, err := river.NewClient(riversqlite.New(r.db), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return 0, err
	}
	const bulk = 1000
	for from := 0; from < jobs; from += bulk {
		if err := r.insert(ctx, inserter, from, min(bulk, jobs-from)); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	if err := r.client.Start(ctx); err != nil {
		return 0, err
	}
	r.open.Wait()
	err = r.client.Stop(ctx)
	return float64(jobs) / time.Since(began).Seconds(), err
}

// inserting lets callers insert jobs one by one, and measures until all are worked. One
// job comes before and is not counted.
func (r *rivers) inserting(ctx context.Context, callers int, d time.Duration) (perSecond float64, err error) {
	if err := r.client.Start(ctx); err != nil {
		return 0, err
	}
	defer r.client.Stop(context.WithoutCancel(ctx))
	if err := r.insert(ctx, r.client, 0, 1); err != nil {
		return 0, err
	}
	r.open.Wait()
	var inserted atomic.Int64
	var inserting sync.WaitGroup
	errs := make([]error, callers)
	began := time.Now()
	for i := range callers {
		inserting.Go(func() {
			for errs[i] == nil && time.Since(began) < d {
				errs[i] = r.insert(ctx, r.client, int(inserted.Add(1)), 1)
			}
		})
	}
	inserting.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	r.open.Wait()
	return float64(inserted.Load()) / time.Since(began).Seconds(), nil
}

func (r *rivers) insert(ctx context.Context, client *river.Client[*sql.Tx], from, n int) error {
	r.open.Add(n)
	if n == 1 {
		_, err := client.Insert(ctx, noop{RunID: fmt.Sprint(from)}, nil)
		return err
	}
	params := make([]river.InsertManyParams, n)
	for i := range params {
		params[i].Args = noop{RunID: fmt.Sprint(from + i)}
	}
	_, err := client.InsertManyFast(ctx, params)
	return err
}
