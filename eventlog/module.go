package eventlog

import (
	"context"
	"fmt"

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
	// durable. Storing a module again changes nothing. A log in a database removes a module
	// that nothing uses, see [UseModules]; a run that begins too late for its module is
	// refused with [ErrModuleNotFound].
	PutModule(ctx context.Context, wasm []byte) (canon.Hash, error)
	// HasModule reports whether the module is stored, without reading it.
	HasModule(ctx context.Context, digest canon.Hash) (bool, error)
}

// A log in a database has a table module_use with a row for each module and each of its
// users: a run that names it, or an entry of the host, such as one of a tenant's modules.
// Databases keep a module while it has a user, and [Database].RemoveUnusedModules removes the
// others. The row of a run is written in the transaction that begins the run, and removed
// with the run.

// UseModules records in the transaction that the user needs modules: the id of a run, or the
// name of an entry in a namespace, which begins with the namespace and a slash. A module that
// is not stored is [ErrModuleNotFound].
//
// Appending the first event of a run to a log does this already. A transaction that appends it
// with [Tx].Append has to call UseModules, since the log cannot read an encrypted event.
func UseModules(tx interface {
	Exec(sql string, args ...any) (changed int64, err error)
}, user string, digests ...canon.Hash) error {
	for _, digest := range digests {
		n, err := tx.Exec("INSERT INTO module_use (digest, used_by) SELECT digest, $2 FROM module WHERE digest = $1 ON CONFLICT (digest, used_by) DO UPDATE SET used_by = excluded.used_by", digest[:], user)
		if err == nil && n == 0 {
			err = fmt.Errorf("%w: %v", ErrModuleNotFound, digest)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ModuleCount is how many modules there are, and their bytes. As JSON it is a part of what was removed.
type ModuleCount struct {
	Modules int   `json:"collected_modules,omitempty"`
	Bytes   int64 `json:"collected_bytes,omitempty"`
}

// CountModules counts the modules that a namespace uses, or all that are stored.
func CountModules(ctx context.Context, db Transactor, namespace string) (c ModuleCount, err error) {
	err = db.View(ctx, func(q Querier) error {
		const query = `SELECT count(*), CAST(coalesce(sum(size), 0) AS BIGINT) FROM module
WHERE $1 = '' OR EXISTS (SELECT 1 FROM module_use AS u WHERE u.digest = module.digest AND u.used_by >= $2 AND u.used_by < $3)`
		return q.Query(query, []any{namespace, namespace + "/", namespace + "0"}, func(r Row) error { return r.Scan(&c.Modules, &c.Bytes) })
	})
	return c, err
}
