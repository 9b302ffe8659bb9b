package tenant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/eventlog/event"
)

// Collected is what [Collect] has removed.
type Collected struct {
	Modules int
	Bytes   int64 // of the modules
}

// Collect removes what nobody needs any more from a database, whether a host has used it
// or not: modules that no tenant has, that no run names and that nobody has stored within
// [eventlog.ModuleGrace], what they say of themselves, and answers to idempotency keys
// that have expired. It works in short transactions, beside hosts that serve, and what it
// has removed when it fails stays removed. A role that may not remove modules leaves them
// to one that may.
//
// Whether a run names a module is read from the run. The runs of tenants are encrypted, so
// of those, and of what a newer program wrote, it counts when they began: one that began while its tenant used the module may
// name it.
func Collect(ctx context.Context, db eventlog.Transactor, now time.Time) (c Collected, err error) {
	if err := db.CreateTables(ctx, eventlog.ModuleTables); err != nil {
		return c, fmt.Errorf("tenant: collect modules: %w", err)
	}
	ended, err := endedHolds(ctx, db, now)
	if err != nil {
		return c, fmt.Errorf("tenant: collect modules: %w", err)
	}
	if may, err := mayRemove(ctx, db); err != nil || !may {
		return c, err
	}
	for _, h := range ended {
		removed := false
		err := db.Transact(ctx, func(tx eventlog.Tx) (err error) {
			removed, err = eventlog.EndHold(tx, h.holder, h.digest, h.until)
			return err
		})
		if err != nil {
			return c, fmt.Errorf("tenant: remove module %v: %w", h.digest, err)
		}
		if removed {
			c.Modules++
			c.Bytes += h.bytes
		}
	}
	return c, nil
}

// mayRemove reports whether the role of a log may remove modules.
func mayRemove(ctx context.Context, db eventlog.Transactor) (bool, error) {
	log, ok := db.(eventlog.ModuleKeeper)
	if !ok {
		return false, nil
	}
	return log.MayRemoveModules(ctx)
}

// hold is a row of [eventlog.ModuleTables].
type hold struct {
	holder              string
	digest              chain.Hash
	bytes, since, until int64
}

// mayName reports whether a run that began then, in nanoseconds since 1970, may name the
// module because of the hold. Clocks of hosts differ, and a run is prepared before it
// begins.
func (h hold) mayName(began int64) bool {
	return h.since > 0 && began >= h.since-int64(eventlog.ModuleGrace) && began <= h.until+int64(eventlog.ModuleGrace)
}

const (
	// undescribed is the condition on daemon_description that no tenant has the module.
	undescribed = "NOT EXISTS (SELECT 1 FROM tenant_module AS m WHERE m.digest = daemon_description.digest AND m.name = daemon_description.name)"
	// listed is the condition on module_hold that the holder is a tenant that has the module.
	listed = "EXISTS (SELECT 1 FROM tenant_module AS m WHERE m.digest = module_hold.digest AND m.tenant = module_hold.holder)"
)

// endedHolds brings the holds to what the tenants have, and returns those that nobody
// needs any more.
func endedHolds(ctx context.Context, db eventlog.Transactor, now time.Time) (ended []hold, err error) {
	ofHost, err := db.TableSteps(ctx, descriptions) // the last of a host's that are made
	if err != nil {
		return nil, err
	}
	type statement struct {
		sql  string
		args []any
	}
	at := []any{now.UnixNano()}
	var sync []statement
	if ofHost > 0 {
		sync = []statement{
			{"DELETE FROM tenant_answer WHERE expires <= $1", at},
			{"DELETE FROM daemon_description WHERE " + undescribed, nil},
			// Hosts of an older version add and remove modules, and note no holds.
			{`INSERT INTO module_hold (holder, digest, bytes, since, until) SELECT tenant, digest, max(size), min(uploaded), 0 FROM tenant_module AS m
WHERE NOT EXISTS (SELECT 1 FROM module_hold AS h WHERE h.digest = m.digest AND h.holder = m.tenant) GROUP BY tenant, digest`, nil},
			{"UPDATE module_hold SET until = 0 WHERE until > 0 AND " + listed, nil},
			{"UPDATE module_hold SET until = $1 WHERE until = 0 AND NOT " + listed, at},
		}
	}
	// So do programs of an older version.
	sync = append(sync, statement{`INSERT INTO module_hold (holder, digest, bytes, since, until)
SELECT '', digest, length(wasm), 1, CAST($1 AS BIGINT) FROM module WHERE NOT EXISTS (SELECT 1 FROM module_hold AS h WHERE h.digest = module.digest)`, at})
	err = db.Transact(ctx, func(tx eventlog.Tx) error {
		for _, s := range sync {
			if _, err := tx.Exec(s.sql, s.args...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = db.View(ctx, func(q eventlog.Querier) error {
		ended, err = unneeded(q, now.Add(-eventlog.ModuleGrace))
		return err
	})
	return ended, err
}

// unneeded returns the holds that have ended before, and because of which no run names a
// module.
func unneeded(q eventlog.Querier, before time.Time) (ended []hold, err error) {
	var all []hold
	programs := map[chain.Hash]hold{} // holds of programs
	const query = "SELECT holder, digest, bytes, since, until FROM module_hold WHERE until > 0 AND until <= $1 ORDER BY holder, digest"
	err = q.Query(query, []any{before.UnixNano()}, func(r eventlog.Row) error {
		var h hold
		var digest []byte
		err := r.Scan(&h.holder, &digest, &h.bytes, &h.since, &h.until)
		if err == nil {
			h.digest, err = asHash(digest)
		}
		if h.holder == "" {
			programs[h.digest] = h
		} else {
			all = append(all, h)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, h := range all {
		named := false
		if h.since > 0 { // the ids of tenants' runs sort by time, and say when each began
			from := event.FirstID(time.Unix(0, h.since).Add(-eventlog.ModuleGrace))
			to := event.FirstID(time.Unix(0, h.until).Add(eventlog.ModuleGrace))
			var began int64
			named, err = one(q, "SELECT seq FROM eventlog_events WHERE run_id >= $1 AND run_id < $2 LIMIT 1", []any{h.holder + "/" + from, h.holder + "/" + to}, &began)
			if err != nil {
				return nil, err
			}
		}
		if !named {
			ended = append(ended, h)
		}
	}
	if err := dropNamed(q, programs); err != nil {
		return nil, err
	}
	for _, h := range programs {
		ended = append(ended, h)
	}
	return ended, nil
}

// errNoneLeft ends a look through the runs.
var errNoneLeft = errors.New("tenant: all modules are named")

// dropNamed takes the holds of programs out of the map because of which runs may name
// modules. It looks at the first event of each run, which it finds by the index of the
// events: a run that the table of runs lacks needs its modules as well.
func dropNamed(q eventlog.Querier, holds map[chain.Hash]hold) error {
	if len(holds) == 0 {
		return nil
	}
	const firsts = `WITH RECURSIVE ids (id) AS (
	SELECT min(run_id) FROM eventlog_events
	UNION ALL
	SELECT (SELECT min(e.run_id) FROM eventlog_events AS e WHERE e.run_id > ids.id) FROM ids WHERE ids.id IS NOT NULL
) SELECT f.ts, f.payload FROM ids JOIN eventlog_events AS f ON f.run_id = ids.id AND f.seq = 1`
	err := q.Query(firsts, nil, func(r eventlog.Row) error {
		first := event.Event{Kind: event.KindRunStarted}
		if err := r.Scan(&first.Timestamp, (*[]byte)(&first.Payload)); err != nil {
			return err
		}
		started, err := first.AsRunStarted()
		for _, ref := range started.ToolSchemas {
			if ref.Sandbox != nil && len(ref.Sandbox.Module) == len(chain.Hash{}) {
				delete(holds, chain.Hash(ref.Sandbox.Module))
			}
		}
		if err != nil { // it is encrypted, or of a newer program
			for digest, h := range holds {
				if h.mayName(first.Timestamp) {
					delete(holds, digest)
				}
			}
		}
		if len(holds) == 0 {
			return errNoneLeft
		}
		return nil
	})
	if errors.Is(err, errNoneLeft) {
		return nil
	}
	return err
}
