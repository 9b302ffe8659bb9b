package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

// The ways to append on Postgres.
const (
	pgLog  = "log"
	unnest = "unnest, batches of 256 on 1 connection"
	lock   = "a transaction with a lock for each append"
)

// postgres measures appends of many runs.
func (b *bench) postgres(ctx context.Context) error {
	dsn, err := b.server.NewDatabase()
	if err != nil {
		return err
	}
	log, err := store.OpenServer(ctx, dsn, store.ServerOptions{AutoMigrate: true})
	if err != nil {
		return err
	}
	pool, err := b.newTable(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	for _, s := range sizes {
		for _, runs := range []int{1, 8, 64, 256} {
			if err := b.onPostgres(ctx, log, pool, s, runs); err != nil {
				return err
			}
		}
	}
	return log.Close()
}

func (b *bench) onPostgres(ctx context.Context, log *store.Server, pool *pgxpool.Pool, s size, runs int) error {
	load := logtest.Load{Runs: runs, Size: s.bytes}
	t, err := take(ctx, b.rounds, b.slice,
		under(load, pgLog, logging(log, 1)),
		contender{unnest, func(ctx context.Context, d time.Duration) (float64, error) {
			return insertBatches(ctx, pool, s.bytes, d)
		}},
		under(load, lock, func(ctx context.Context, e event.Event) error { return appendLocked(ctx, pool, e) }))
	if err != nil {
		return err
	}
	name := fmt.Sprintf("Postgres, %s of %s, each durable", count(runs, "run"), s.name)
	b.report.note(name, t, pgLog, unnest, lock)
	least := 3.0
	if runs < 64 {
		least = 1
	}
	b.report.atLeast(least, name, "/ "+lock, t.ratio(pgLog, lock))
	if runs == 256 {
		b.report.atLeast(0.45, name, "/ "+unnest, t.ratio(pgLog, unnest))
	}
	return nil
}

// newTable returns connections to a database with empty tables of the log.
func (b *bench) newTable(ctx context.Context) (*pgxpool.Pool, error) {
	dsn, err := b.server.NewDatabase()
	if err != nil {
		return nil, err
	}
	log, err := store.OpenServer(ctx, dsn, store.ServerOptions{AutoMigrate: true}) // makes the tables
	if err == nil {
		err = log.Close()
	}
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 64
	return pgxpool.NewWithConfig(ctx, config)
}

// insertBatches is the limit: one connection that writes 256 events at a time, each of
// another run, and checks nothing. To make them is not counted.
func insertBatches(ctx context.Context, pool *pgxpool.Pool, size int, d time.Duration) (perSecond float64, err error) {
	const insert = `INSERT INTO eventlog_events SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bigint[], $5::smallint[], $6::bytea[])`
	var chains [256]logtest.Chain
	for i := range chains {
		chains[i].RunID = event.NewID()
	}
	n, spent := 0, time.Duration(0)
	for ; spent < d; n += len(chains) {
		var id []string
		var seq, ts []int64
		var kind []int16
		var prev, payload [][]byte
		for i := range chains {
			e := chains[i].Effect(size)
			id, seq, prev = append(id, e.RunID), append(seq, int64(e.Seq)), append(prev, e.PrevHash)
			ts, kind, payload = append(ts, e.Timestamp), append(kind, int16(e.Kind)), append(payload, e.Payload)
		}
		began := time.Now()
		if _, err := pool.Exec(ctx, insert, id, seq, prev, ts, kind, payload); err != nil {
			return 0, err
		}
		spent += time.Since(began)
	}
	return float64(n) / spent.Seconds(), nil
}

// appendLocked is the way of the Starling runtime: a transaction that locks the run, reads
// its last event and checks that the new one continues it.
func appendLocked(ctx context.Context, pool *pgxpool.Pool, e event.Event) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", e.RunID); err != nil {
			return err
		}
		last := event.Event{RunID: e.RunID}
		err := tx.QueryRow(ctx, "SELECT seq, prev_hash, ts, kind, payload FROM eventlog_events WHERE run_id = $1 ORDER BY seq DESC LIMIT 1", e.RunID).
			Scan(&last.Seq, &last.PrevHash, &last.Timestamp, &last.Kind, &last.Payload)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if err := continues(e, last); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO eventlog_events VALUES ($1, $2, $3, $4, $5, $6)",
			e.RunID, e.Seq, e.PrevHash, e.Timestamp, e.Kind, []byte(e.Payload))
		return err
	})
}
