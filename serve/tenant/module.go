package tenant

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/serve/internal/table"
)

// Module is a tenant's entry for a module. The bytes are in the log's
// [eventlog.ModuleStore], once for all tenants; a module outside a tenant's
// list does not exist for it.
type Module struct {
	Name     string     // a lower-case letter, then letters, digits and hyphens, at most 40
	Digest   canon.Hash // BLAKE3 of the module
	Size     int64      // bytes
	Trusted  bool       // the operator vouches for it, so that it may run without a process of its own
	Used     bool       // a run of the tenant has named it: see [Store.UseModule]
	Uploaded time.Time
}

var modulePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// ModuleNameRule describes the names that [ValidModuleName] accepts.
const ModuleNameRule = "a name has 1 to 40 of a-z, 0-9 and hyphens and begins with a letter"

// ValidModuleName returns an error if no module can have the name.
func ValidModuleName(name string) error {
	if !modulePattern.MatchString(name) {
		return fmt.Errorf("%w: module name %.64q: %s", ErrInvalid, name, ModuleNameRule)
	}
	return nil
}

// NoRoomError means that a tenant's modules would take more than they may.
type NoRoomError struct {
	Held, Most int64 // bytes that the tenant's modules take, and may take
	Removed    int64 // the part of those held for modules that the tenant has removed
}

// Error reports the limit and the room.
func (e *NoRoomError) Error() string {
	return fmt.Sprintf("tenant: no room for the module: they take %d bytes, of %d of them for removed modules; at most %d are allowed", e.Held, e.Removed, e.Most)
}

// HoldModule holds a module for a tenant that is about to store it. Its bytes count from
// now on, up to the bound most; less than zero means no bound. [Store.AddModule] follows:
// if it does not within [eventlog.ModuleGrace], or with [Store.DropModule], the hold ends.
func (s *Store) HoldModule(ctx context.Context, tenant string, digest canon.Hash, bytes, most int64) error {
	return s.transactFor(ctx, tenant, func(tx eventlog.Tx) error {
		full := &NoRoomError{Most: most}
		_, err := table.One(tx, `SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT), CAST(coalesce(sum(CASE WHEN until > 0 THEN bytes ELSE 0 END), 0) AS BIGINT)
FROM module_hold WHERE holder = $1 AND digest <> $2`, []any{tenant, digest[:]}, &full.Held, &full.Removed)
		if err != nil {
			return err
		}
		if most >= 0 && full.Held+bytes > most {
			return full
		}
		_, err = tx.Exec(`INSERT INTO module_hold (holder, digest, bytes, since, until) VALUES ($1, $2, $3, 0, $4)
ON CONFLICT (digest, holder) DO UPDATE SET until = CASE WHEN module_hold.until = 0 THEN 0 ELSE excluded.until END`,
			tenant, digest[:], bytes, s.now().UnixNano())
		if err != nil {
			return err
		}
		return eventlog.MeetRemoval(tx, digest)
	})
}

// HeldBytes returns how many modules a tenant holds, and their bytes. Without a tenant it
// counts the modules of all tenants, each once.
func (s *Store) HeldBytes(ctx context.Context, tenant string) (modules, bytes int64, err error) {
	return HeldBytes(ctx, s.db, tenant)
}

// HeldBytes is [Store].HeldBytes of a database that may have no tables of tenants.
func HeldBytes(ctx context.Context, db eventlog.Transactor, tenant string) (modules, bytes int64, err error) {
	err = db.View(ctx, func(q eventlog.Querier) error {
		_, err := table.One(q, "SELECT count(*), CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM (SELECT DISTINCT digest, bytes FROM module_hold WHERE $1 = '' OR holder = $1) AS held", []any{tenant}, &modules, &bytes)
		return err
	})
	return modules, bytes, err
}

// AddModule adds a module to a tenant's list, which must have none of that name. The
// module is already held and stored, and describes is its own description. beside are the
// modules among which the caller has found room. If the tenant's modules have changed, or
// the module was removed meanwhile, the error is [ErrChanged], and the caller has to
// hold, store and look again. The module is not trusted: [Store.TrustModule] is the
// operator's business.
func (s *Store) AddModule(ctx context.Context, tenant string, m Module, describes string, beside []Module) (Module, error) {
	if err := ValidModuleName(m.Name); err != nil {
		return Module{}, err
	}
	m.Trusted, m.Used, m.Uploaded = false, false, s.now().UTC()
	err := s.transactFor(ctx, tenant, func(tx eventlog.Tx) error {
		have, err := modules(tx, tenant)
		if err != nil {
			return err
		}
		if !slices.EqualFunc(have, beside, sameBytes) {
			return fmt.Errorf("%w: tenant %q has %d, not the %d that were looked at", ErrChanged, tenant, len(have), len(beside))
		}
		held, err := tx.Exec("UPDATE module_hold SET until = 0 WHERE digest = $1 AND holder = $2", m.Digest[:], tenant)
		if err != nil {
			return err
		}
		stored := int64(0)
		if _, err := table.One(tx, "SELECT count(*) FROM module WHERE digest = $1", []any{m.Digest[:]}, &stored); err != nil {
			return err
		}
		if held == 0 || stored == 0 {
			return fmt.Errorf("%w: module %v was removed meanwhile", ErrChanged, m.Digest)
		}
		_, err = tx.Exec("INSERT INTO daemon_description (digest, name, tools) VALUES ($1, $2, $3) ON CONFLICT (digest, name) DO NOTHING", m.Digest[:], m.Name, describes)
		if err != nil {
			return err
		}
		_, err = tx.Exec("INSERT INTO tenant_module (tenant, name, digest, size, trusted, uploaded) VALUES ($1, $2, $3, $4, 0, $5)",
			tenant, m.Name, m.Digest[:], m.Size, m.Uploaded.UnixNano())
		if err != nil {
			return exists(err, "module", m.Name)
		}
		return raise(tx, tenant)
	})
	return m, err
}

// Description returns a module's own description, as passed to AddModule.
func (s *Store) Description(ctx context.Context, digest canon.Hash, name string) (string, error) {
	return table.View(ctx, s.db, func(q eventlog.Querier) (describes string, err error) {
		_, err = table.One(q, "SELECT tools FROM daemon_description WHERE digest = $1 AND name = $2", []any{digest[:], name}, &describes)
		return describes, err
	})
}

// UseModule records that a run of the tenant names its module, in the transaction that
// accepts the run. Call it for modules that are not [Module].Used. From then on the
// module is kept while there are runs that may name it, even if the tenant removes it.
// A module that is no longer in the list is [ErrNotFound].
func (s *Store) UseModule(tx eventlog.Tx, tenant string, m Module) error {
	n, err := tx.Exec(`INSERT INTO module_hold (holder, digest, bytes, since, until)
SELECT tenant, digest, size, CAST($4 AS BIGINT), 0 FROM tenant_module WHERE tenant = $1 AND name = $2 AND digest = $3
ON CONFLICT (digest, holder) DO UPDATE SET since = CASE WHEN module_hold.since = 0 THEN excluded.since ELSE module_hold.since END`,
		tenant, m.Name, m.Digest[:], s.now().UnixNano())
	if err != nil {
		return err
	}
	if n == 0 {
		return notFound("module", m.Name)
	}
	return raise(tx, tenant)
}

// sameBytes reports whether two modules have the same tools: one name and one digest.
func sameBytes(a, b Module) bool { return a.Name == b.Name && a.Digest == b.Digest }

// Modules returns the modules of a tenant, by name.
func (s *Store) Modules(ctx context.Context, tenant string) ([]Module, error) {
	return table.View(ctx, s.db, func(q eventlog.Querier) ([]Module, error) { return modules(q, tenant) })
}

func modules(q eventlog.Querier, tenant string) ([]Module, error) {
	const query = `SELECT m.name, m.digest, m.size, m.trusted, coalesce(h.since, 0) > 0, m.uploaded
FROM tenant_module AS m LEFT JOIN module_hold AS h ON h.digest = m.digest AND h.holder = m.tenant WHERE m.tenant = $1 ORDER BY m.name`
	return table.All(q, query, []any{tenant}, func(r eventlog.Row) (m Module, err error) {
		var digest []byte
		if err = r.Scan(&m.Name, &digest, &m.Size, &m.Trusted, &m.Used, &m.Uploaded); err == nil {
			m.Digest, err = asHash(digest)
		}
		return m, err
	})
}

// TrustModule sets whether the operator vouches for a tenant's module. The digest
// must be the module's, so that the inspected bytes are the trusted ones.
func (s *Store) TrustModule(ctx context.Context, tenant, name string, digest canon.Hash, trusted bool) error {
	var flag int64
	if trusted {
		flag = 1
	}
	return s.db.Transact(ctx, func(tx eventlog.Tx) error {
		n, err := tx.Exec("UPDATE tenant_module SET trusted = $4 WHERE tenant = $1 AND name = $2 AND digest = $3", tenant, name, digest[:], flag)
		if err != nil {
			return err
		}
		if n == 0 {
			return notFound("module", name)
		}
		return raise(tx, tenant)
	})
}

// RemoveModule takes a module from a tenant. Its bytes are removed as well if no run of
// the tenant has named it, no other tenant holds it, and the role of the log may. Otherwise
// they stay until [Collect] finds that no run needs them any more.
func (s *Store) RemoveModule(ctx context.Context, tenant, name string) error {
	return s.db.Transact(ctx, func(tx eventlog.Tx) error {
		var text []byte
		found, err := table.One(tx, "SELECT digest FROM tenant_module WHERE tenant = $1 AND name = $2", []any{tenant, name}, &text)
		if err != nil {
			return err
		}
		if !found {
			return notFound("module", name)
		}
		digest, err := asHash(text)
		if err != nil {
			return err
		}
		if _, err := tx.Exec("DELETE FROM tenant_module WHERE tenant = $1 AND name = $2", tenant, name); err != nil {
			return err
		}
		if _, err := tx.Exec("DELETE FROM daemon_description WHERE digest = $1 AND name = $2 AND "+undescribed, digest[:], name); err != nil {
			return err
		}
		if err := s.dropHold(tx, tenant, digest); err != nil {
			return err
		}
		return raise(tx, tenant)
	})
}

// DropModule ends the hold of a module that was not added after all.
func (s *Store) DropModule(ctx context.Context, tenant string, digest canon.Hash) error {
	return s.db.Transact(ctx, func(tx eventlog.Tx) error { return s.dropHold(tx, tenant, digest) })
}

// dropHold ends the tenant's hold of a module unless the tenant has it under any name: at
// once if no run has named the module, from now on otherwise.
func (s *Store) dropHold(tx eventlog.Tx, tenant string, digest canon.Hash) error {
	now := s.now().UnixNano()
	n, err := tx.Exec(`UPDATE module_hold SET until = $3 WHERE digest = $1 AND holder = $2
AND NOT `+listed, digest[:], tenant, now)
	if err != nil || n == 0 {
		return err
	}
	since := int64(0)
	if _, err := table.One(tx, "SELECT since FROM module_hold WHERE digest = $1 AND holder = $2", []any{digest[:], tenant}, &since); err != nil || since > 0 || s.keeps {
		return err
	}
	_, err = eventlog.EndHold(tx, tenant, digest, now)
	return err
}

// Collected counts what [Collect] has removed.
type Collected struct {
	Modules int
	Bytes   int64 // of the modules
}

// Collect removes unneeded data from a database, whether a host has used it or not: modules
// that no tenant has, that no run names and that were not stored within
// [eventlog.ModuleGrace], their descriptions, and expired answers to idempotency keys. It
// works in short transactions, beside hosts that serve. If it fails, what it has removed
// stays removed. A role without the right to remove modules leaves them to another role.
//
// Collect reads in the run whether it names a module. Runs of tenants are encrypted. An
// encrypted run, or a run that a newer program wrote, may name the module if it began while
// its tenant used it.
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
	log, ok := db.(eventlog.Database)
	if !ok {
		return false, nil
	}
	return log.MayRemoveModules(ctx)
}

// hold is a row of [eventlog.ModuleTables].
type hold struct {
	holder              string
	digest              canon.Hash
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

// endedHolds brings the holds in line with the tenants' modules, and returns the holds
// that are not needed any more.
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
			{"UPDATE module_hold SET until = 0 WHERE until > 0 AND " + listed, nil},
			{"UPDATE module_hold SET until = $1 WHERE until = 0 AND NOT " + listed, at},
		}
	}
	// A module that was stored without a hold is a program's.
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
	return table.View(ctx, db, func(q eventlog.Querier) ([]hold, error) { return unneeded(q, now.Add(-eventlog.ModuleGrace)) })
}

// unneeded returns the holds that ended before the given time and because of which no
// run names a module.
func unneeded(q eventlog.Querier, before time.Time) (ended []hold, err error) {
	var all []hold
	programs := map[canon.Hash]hold{} // holds of programs
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
			named, err = table.One(q, "SELECT seq FROM eventlog_events WHERE run_id >= $1 AND run_id < $2 LIMIT 1", []any{h.holder + "/" + from, h.holder + "/" + to}, &began)
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

// dropNamed takes the holds of programs out of the map if runs may name their modules.
// It looks at the first event of each run, which it finds by the index of the events:
// a run that the table of runs lacks needs its modules as well.
func dropNamed(q eventlog.Querier, holds map[canon.Hash]hold) error {
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
			if ref.Sandbox != nil && len(ref.Sandbox.Module) == len(canon.Hash{}) {
				delete(holds, canon.Hash(ref.Sandbox.Module))
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
