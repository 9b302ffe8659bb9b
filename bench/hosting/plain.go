package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	"github.com/starling-host/starling/eventlog/event"
	_ "modernc.org/sqlite" // the driver of sqlitelog
)

// plain is a log as it is written when nothing is known of the load, and as the Starling
// runtime writes it: a pool of connections, and for each append a transaction that
// reads the last event of the run, checks that the new one continues it, and inserts.
type plain struct{ *sql.DB }

// openPlain opens a log in which every connection has the pragmas.
func openPlain(ctx context.Context, path string, pragmas ...string) (*plain, error) {
	query := url.Values{"_txlock": {"immediate"}, "_pragma": append(pragmas, "busy_timeout(30000)")}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(8)
	_, err = db.ExecContext(ctx, `PRAGMA journal_mode=WAL; CREATE TABLE eventlog_events (
	run_id TEXT NOT NULL, seq INTEGER NOT NULL, prev_hash BLOB, ts INTEGER NOT NULL, kind INTEGER NOT NULL, payload BLOB NOT NULL,
	PRIMARY KEY (run_id, seq))`)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &plain{db}, nil
}

// openSeed opens a log as the Starling runtime does: it asks for synchronous=NORMAL once, on
// the connection that it has by then. The others of the pool stay at SQLite's FULL.
func openSeed(ctx context.Context, path string) (*plain, error) {
	p, err := openPlain(ctx, path)
	if err != nil {
		return nil, err
	}
	if _, err := p.ExecContext(ctx, "PRAGMA synchronous=NORMAL"); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *plain) append(ctx context.Context, e event.Event) error {
	tx, err := p.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	last := event.Event{RunID: e.RunID}
	err = tx.QueryRowContext(ctx, "SELECT seq, prev_hash, ts, kind, payload FROM eventlog_events WHERE run_id = ? ORDER BY seq DESC LIMIT 1", e.RunID).
		Scan(&last.Seq, &last.PrevHash, &last.Timestamp, &last.Kind, (*[]byte)(&last.Payload))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err := continues(e, last); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO eventlog_events VALUES (?, ?, ?, ?, ?, ?)", e.RunID, int64(e.Seq), e.PrevHash, e.Timestamp, int64(e.Kind), []byte(e.Payload))
	if err != nil {
		return err
	}
	return tx.Commit()
}

// continues checks the link between two events.
func continues(e, last event.Event) error {
	hash := last.Hash()
	if e.Seq != last.Seq+1 || e.Seq > 1 && string(hash[:]) != string(e.PrevHash) {
		return fmt.Errorf("event %d does not continue event %d", e.Seq, last.Seq)
	}
	return nil
}
