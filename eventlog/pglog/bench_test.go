package pglog

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/pglog/pgtest"
)

// eachRun calls do with n events, spread over so many runs at once.
func eachRun(n, runs, size int, do func(event.Event)) time.Duration {
	var taken atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for i := range runs {
		all.Go(func() {
			c := logtest.Chain{RunID: fmt.Sprintf("01JABCDEFGHJKMNPQRSTV%05d", i), Clock: began.UnixNano()}
			do(c.Start("bench"))
			for taken.Add(1) <= int64(n) {
				do(c.Effect(size))
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

// BenchmarkDurable is the price of a barrier after each event. The ratios are those of
// the log's rate to two others, measured in the same run: to-unnest is the limit, one
// connection that writes batches of 256 events, each of another run, and checks nothing; to-lock is the
// way of the seed runtime, a transaction for each event with a lock on its run.
func BenchmarkDurable(b *testing.B) {
	for _, size := range []int{180, 2000} {
		for _, runs := range []int{1, 8, 64, 256} {
			b.Run(fmt.Sprintf("%d runs of %d B", runs, size), func(b *testing.B) {
				unnest := rateOfUnnest(b, size)
				lock := rateOfLock(b, runs, size)
				l, _ := open(b)
				storeAll(b, l, logtest.Finished("warm", 1000)...)
				b.ResetTimer()
				took := eachRun(b.N, runs, size, func(e event.Event) { appendSync(b, l, e) })
				rate := float64(b.N) / took.Seconds()
				b.ReportMetric(rate, "events/s")
				b.ReportMetric(rate/unnest, "to-unnest")
				b.ReportMetric(rate/lock, "to-lock")
			})
		}
	}
}

func appendSync(b *testing.B, l *Log, e event.Event) {
	if err := l.Append(b.Context(), e.RunID, e); err != nil {
		b.Error(err)
	}
	if err := l.Sync(b.Context(), e.RunID); err != nil {
		b.Error(err)
	}
}

// newTable returns connections to a database with an empty table of events.
func newTable(b *testing.B, connections int) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(pgtest.Database(b))
	if err != nil {
		b.Fatal(err)
	}
	config.MaxConns = int32(connections)
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if _, err := pool.Exec(b.Context(), eventsTable); err != nil {
		b.Fatal(err)
	}
	return pool
}

// rateOfUnnest returns how many events a second one connection writes, 256 at a time.
func rateOfUnnest(b *testing.B, size int) float64 {
	const batches, each = 100, 256
	pool := newTable(b, 1)
	var all [batches]columns
	for n := range each {
		c := logtest.Chain{RunID: fmt.Sprintf("01JABCDEFGHJKMNPQRSTV%05d", n)}
		for i := range all {
			all[i].addEvent(0, c.Effect(size))
		}
	}
	const insert = `INSERT INTO eventlog_events SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bigint[], $5::smallint[], $6::bytea[])`
	began := time.Now()
	for _, c := range all {
		if _, err := pool.Exec(b.Context(), insert, c.eventID, c.seq, c.prev, c.ts, c.kind, c.payload); err != nil {
			b.Fatal(err)
		}
	}
	return batches * each / time.Since(began).Seconds()
}

// rateOfLock returns how many events a second are written by so many runs, each event in
// a transaction that locks the run and reads its last event first.
func rateOfLock(b *testing.B, runs, size int) float64 {
	const events = 4000
	pool := newTable(b, min(runs, 64))
	took := eachRun(events, runs, size, func(e event.Event) {
		if err := appendLocked(b.Context(), pool, e); err != nil {
			b.Error(err)
		}
	})
	return events / took.Seconds()
}

func appendLocked(ctx context.Context, pool *pgxpool.Pool, e event.Event) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", e.RunID); err != nil {
			return err
		}
		last := event.Event{RunID: e.RunID}
		err := tx.QueryRow(ctx, "SELECT seq, prev_hash, ts, kind, payload FROM eventlog_events WHERE run_id = $1 ORDER BY seq DESC LIMIT 1", e.RunID).
			Scan(&last.Seq, &last.PrevHash, &last.Timestamp, &last.Kind, &last.Payload)
		if err != nil && err != pgx.ErrNoRows {
			return err
		}
		if hash := last.Hash(); e.Seq > 1 && string(hash[:]) != string(e.PrevHash) {
			return fmt.Errorf("event %d does not continue event %d", e.Seq, last.Seq)
		}
		_, err = tx.Exec(ctx, "INSERT INTO eventlog_events VALUES ($1, $2, $3, $4, $5, $6)",
			e.RunID, e.Seq, e.PrevHash, e.Timestamp, e.Kind, []byte(e.Payload))
		return err
	})
}
