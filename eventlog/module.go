package eventlog

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
)

// ModuleReader has modules by digest.
type ModuleReader interface {
	// Module returns the module with that digest, or [ErrModuleNotFound]. A log hashes the
	// bytes again: other bytes than those asked for are [ErrLogCorrupt].
	Module(ctx context.Context, digest canon.Hash) ([]byte, error)
}

// ModuleStore keeps the modules that runs name by digest, so that a log alone
// is enough to replay its runs.
type ModuleStore interface {
	ModuleReader

	// PutModule stores wasm and returns its BLAKE3-256 digest, once it is
	// durable. Storing a module again changes nothing. A log in a database holds the
	// module for [ModuleGrace], see [ModuleTables]: until then a run that names it has
	// to begin.
	PutModule(ctx context.Context, wasm []byte) (canon.Hash, error)
	// HasModule reports whether the module is stored, without reading it.
	HasModule(ctx context.Context, digest canon.Hash) (bool, error)
}

// ModuleTables has a row for each hold of a module. A module is removed with its last
// hold, and never while it is held. A holder is a namespace, or empty for programs
// that store modules for themselves. The runs that name a module because of a hold began
// between since and until:
//
//	since  when the holder began to use the module, 0 if it has not
//	until  when it stopped, 0 if it has not; for programs, when one stored it last
//
// Both are nanoseconds since 1970, and bytes is the size of the module.
var ModuleTables = TableSet{
	Name: "module", Tables: []string{"module_hold"},
	Steps:     []TableStep{{SQLite: moduleHolds, Postgres: strings.NewReplacer(" BLOB", " BYTEA", " INTEGER", " BIGINT").Replace(moduleHolds)}},
	Retention: map[string]string{"module_hold": "SELECT, INSERT, UPDATE, DELETE"},
}

const moduleHolds = `CREATE TABLE module_hold (
	holder TEXT    NOT NULL,
	digest BLOB    NOT NULL,
	bytes  INTEGER NOT NULL,
	since  INTEGER NOT NULL,
	until  INTEGER NOT NULL,
	PRIMARY KEY (digest, holder)
);
CREATE INDEX module_hold_by_holder ON module_hold (holder)`

// ModuleGrace is how long a hold counts after it has ended.
const ModuleGrace = time.Hour

// HoldModule records that a program is about to store a module for itself. It writes
// at most twice in [ModuleGrace].
func HoldModule(ctx context.Context, db Transactor, digest canon.Hash, bytes int64) error {
	if bytes > MaxModuleBytes {
		return fmt.Errorf("eventlog: module has %d bytes; at most %d are allowed", bytes, MaxModuleBytes)
	}
	if err := db.CreateTables(ctx, ModuleTables); err != nil {
		return err
	}
	now := time.Now().UnixNano()
	recent := false
	err := db.View(ctx, func(q Querier) error {
		const known = "SELECT until > $2 FROM module_hold WHERE digest = $1 AND holder = ''"
		return q.Query(known, []any{digest[:], now - int64(ModuleGrace)/2}, func(r Row) error { return r.Scan(&recent) })
	})
	if err != nil || recent {
		return err
	}
	return db.Transact(ctx, func(tx Tx) error {
		const hold = `INSERT INTO module_hold (holder, digest, bytes, since, until) VALUES ('', $1, $2, $3, $3)
	ON CONFLICT (digest, holder) DO UPDATE SET until = excluded.until`
		if _, err := tx.Exec(hold, digest[:], bytes, now); err != nil {
			return err
		}
		return MeetRemoval(tx, digest)
	})
}

// MeetRemoval makes a transaction that takes a hold conflict with a transaction that
// removes the module at the same time. Otherwise a server would find an order for both
// in which the module is removed after it was looked up.
func MeetRemoval(tx Tx, digest canon.Hash) error {
	return tx.Query("SELECT count(*) FROM module WHERE digest = $1", []any{digest[:]}, func(Row) error { return nil })
}

// EndHold ends a hold that the caller has seen unchanged, and removes the module if
// that was the last one. It reports whether it was.
func EndHold(tx Tx, holder string, digest canon.Hash, until int64) (removed bool, err error) {
	n, err := tx.Exec("DELETE FROM module_hold WHERE digest = $1 AND holder = $2 AND until = $3", digest[:], holder, until)
	if err != nil || n == 0 {
		return false, err
	}
	holds := int64(0)
	err = tx.Query("SELECT count(*) FROM module_hold WHERE digest = $1", []any{digest[:]}, func(r Row) error { return r.Scan(&holds) })
	if err != nil || holds > 0 {
		return false, err
	}
	return true, tx.RemoveModule(digest)
}
