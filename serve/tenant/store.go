package tenant

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/store"
)

// Store is the tenants of one database. Its methods may be called from any
// goroutine, and any number of processes may have a Store over the same database.
// It reads the database each time; nothing is cached. Use [Open].
type Store struct {
	db      eventlog.Database
	masters atomic.Pointer[[]MasterKey]
	now     func() time.Time
}

// Options configure a Store.
type Options struct {
	// Masters open the data keys. There is more than one only while the master key is being
	// changed. Without any, operations that need a data key return [ErrNoMasterKey]; all others
	// work.
	Masters []MasterKey
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Existing makes no tables: a database without them is [ErrNoTables]. Older tables are brought up to date.
	Existing bool
	// AsIs takes the tables as another version made them, which is enough to open runs.
	AsIs bool
}

// Open creates the tables where they are missing, if it may. If it is given master keys, and a
// data key of the database is under another one, that is [ErrWrongMasterKey].
func Open(ctx context.Context, db eventlog.Database, o Options) (*Store, error) {
	s := &Store{db: db, now: o.Now}
	s.masters.Store(&o.Masters)
	if s.now == nil {
		s.now = time.Now
	}
	if o.Existing {
		switch taken, err := db.TableSteps(ctx, tables); {
		case err != nil && !(o.AsIs && errors.Is(err, eventlog.ErrSchemaTooNew)):
			return nil, fmt.Errorf("tenant: look for the tables: %w", err)
		case taken == 0:
			return nil, ErrNoTables
		}
	}
	for _, set := range Tables() {
		if o.AsIs {
			break
		}
		// A log that is only read keeps older tables. What a command reads there is in all of them.
		if err := db.CreateTables(ctx, set); err != nil && !(o.Existing && errors.Is(err, eventlog.ErrReadOnly)) {
			return nil, fmt.Errorf("tenant: create tables: %w", err)
		}
	}
	if len(o.Masters) == 0 {
		return s, nil
	}
	return s, s.CheckMaster(ctx)
}

// Create stores a new tenant and makes its data key. The id of a tenant is never
// used again, also not after it was erased.
func (s *Store) Create(ctx context.Context, t Tenant) (Tenant, error) {
	t.Created, t.Suspended, t.Erased = s.now().UTC(), false, time.Time{}
	t.Weight = cmp.Or(t.Weight, 1)
	if err := errors.Join(ValidID(t.ID), validText("the name", t.Name, 200), validWeight(t.Weight)); err != nil {
		return Tenant{}, err
	}
	limits, _ := json.Marshal(t.Limits) // numbers cannot fail
	err := s.db.Transact(ctx, func(tx eventlog.Tx) error {
		_, err := tx.Exec(`INSERT INTO tenant (id, name, created, suspended, erased, weight, limits) VALUES ($1, $2, $3, 0, 0, $4, $5)`,
			t.ID, t.Name, t.Created.UnixNano(), int64(t.Weight), string(limits))
		if err != nil {
			return exists(err, "tenant", t.ID)
		}
		return s.newDataKey(tx, t.ID)
	})
	return t, err
}

const tenantColumns = "id, name, created, suspended, erased, weight, limits, revision"

// Tenant returns one tenant, even if it is suspended or erased.
func (s *Store) Tenant(ctx context.Context, id string) (Tenant, error) {
	return eventlog.View(ctx, s.db, func(q eventlog.Querier) (Tenant, error) { return readTenant(q, id) })
}

func readTenant(q eventlog.Querier, id string) (Tenant, error) {
	list, err := eventlog.QueryAll(q, "SELECT "+tenantColumns+" FROM tenant WHERE id = $1", []any{id}, justTenant)
	if err == nil && len(list) == 0 {
		err = notFound("tenant", id)
	}
	if err != nil {
		return Tenant{}, err
	}
	return list[0], nil
}

// Tenants returns all tenants by their ids, including suspended and erased
// ones.
func (s *Store) Tenants(ctx context.Context) ([]Tenant, error) {
	return eventlog.ViewAll(ctx, s.db, "SELECT "+tenantColumns+" FROM tenant ORDER BY id", nil, justTenant)
}

func justTenant(r eventlog.Row) (Tenant, error) { return scanTenant(r) }

// scanTenant reads tenantColumns and the further columns of the query.
func scanTenant(r eventlog.Row, more ...any) (t Tenant, err error) {
	var limits string
	if err := r.Scan(append([]any{&t.ID, &t.Name, &t.Created, &t.Suspended, &t.Erased, &t.Weight, &limits, &t.Revision}, more...)...); err != nil {
		return t, err
	}
	if err := json.Unmarshal([]byte(limits), &t.Limits); err != nil {
		return t, fmt.Errorf("tenant: limits of %q: %w", t.ID, err)
	}
	return t, nil
}

// Suspend makes hosts refuse the keys of a tenant until [Store.Resume]. They give back the runs
// that they execute for it, and begin none.
func (s *Store) Suspend(ctx context.Context, id string) error {
	return s.suspended(ctx, id, s.now().UnixNano())
}

// Resume undoes Suspend.
func (s *Store) Resume(ctx context.Context, id string) error { return s.suspended(ctx, id, 0) }

// suspended stores the time since which a tenant is suspended, or zero.
func (s *Store) suspended(ctx context.Context, id string, since int64) error {
	return s.transactFor(ctx, id, func(tx eventlog.Tx) error {
		_, err := tx.Exec("UPDATE tenant SET suspended = $2 WHERE id = $1", id, since)
		return err
	})
}

// Change applies change to the limits and the weight of a tenant. change receives the current
// tenant, possibly several times. Concurrent changes are not lost.
func (s *Store) Change(ctx context.Context, id string, change func(*Tenant)) error {
	return s.transactFor(ctx, id, func(tx eventlog.Tx) error {
		t, err := readTenant(tx, id)
		if err != nil {
			return err
		}
		change(&t)
		if err := validWeight(t.Weight); err != nil {
			return err
		}
		limits, _ := json.Marshal(t.Limits) // numbers cannot fail
		_, err = tx.Exec("UPDATE tenant SET limits = $2, weight = $3 WHERE id = $1", t.ID, string(limits), int64(t.Weight))
		return err
	})
}

// needTenant returns why nothing may be stored for a tenant: it does not exist, or
// was erased.
func needTenant(q eventlog.Querier, id string) error {
	t, err := readTenant(q, id)
	if err == nil && !t.Erased.IsZero() {
		err = fmt.Errorf("%w: %q", ErrErased, id)
	}
	return err
}

// transactFor runs fn in a transaction if the tenant can have something stored.
func (s *Store) transactFor(ctx context.Context, id string, fn func(eventlog.Tx) error) error {
	return s.db.Transact(ctx, func(tx eventlog.Tx) error {
		if err := needTenant(tx, id); err != nil {
			return err
		}
		return fn(tx)
	})
}

func exists(err error, what, name string) error {
	if errors.Is(err, eventlog.ErrConflict) {
		return fmt.Errorf("%w: %s %.64q", ErrExists, what, name)
	}
	return err
}

func notFound(what, name string) error { return &NotFoundError{what, name} }

func validText(what, s string, most int) error {
	switch {
	case len(s) > most:
		return fmt.Errorf("%w: %s has %d bytes; at most %d are allowed", ErrInvalid, what, len(s), most)
	case !utf8.ValidString(s):
		return fmt.Errorf("%w: %s is not UTF-8", ErrInvalid, what)
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return fmt.Errorf("%w: %s holds the control character %U", ErrInvalid, what, r)
		}
	}
	return nil
}

// Holdings are the data that a host needs to work for a tenant. Every change of them
// raises the tenant's revision in the same transaction, so holdings read at the
// revision of a [Tenant] are current.
type Holdings struct {
	Revision int64         // the tenant's revision at the time
	Key      store.DataKey // that its runs are encrypted with; see [Store.DataKey]
	Policy   Policy        // the last version, or the zero Policy if there never was one
	Modules  []Module      // by name
}

// Holdings returns a tenant's holdings. For an erased tenant it returns [ErrErased].
func (s *Store) Holdings(ctx context.Context, tenant string) (Holdings, error) {
	return eventlog.View(ctx, s.db, func(q eventlog.Querier) (h Holdings, err error) {
		if _, err = eventlog.QueryOne(q, "SELECT revision FROM tenant WHERE id = $1", []any{tenant}, &h.Revision); err != nil {
			return h, err
		}
		if h.Key, err = s.dataKey(q, tenant); err != nil { // or the tenant does not exist
			return h, err
		}
		if h.Policy, err = lastPolicy(q, tenant); err != nil {
			return h, err
		}
		h.Modules, err = modules(q, tenant)
		return h, err
	})
}

// statements executes statements in a transaction until one fails.
type statements struct {
	tx  eventlog.Tx
	err error // of the one that failed
}

// exec returns how many rows a statement changed.
func (s *statements) exec(sql string, args ...any) (n int64) {
	if s.err == nil {
		n, s.err = s.tx.Exec(sql, args...)
	}
	return n
}

// raise notes that a tenant's holdings change in the transaction.
func (s *statements) raise(tenant string) error {
	s.exec("UPDATE tenant SET revision = revision + 1 WHERE id = $1", tenant)
	return s.err
}

// ErrKeyReused means that an idempotency key came with another request before.
var ErrKeyReused = errors.New("tenant: the idempotency key belongs to another request")

const (
	purposeAnswer  = "answer"
	maxAnswerBytes = 1 << 20
	maxAnswerKey   = 255
)

// Once stores the encrypted answer to a request with an idempotency key, in the transaction that
// performs the request. So the key is stored if and only if the request has had its effect. If the
// key exists already, earlier is its stored answer, and tx must be rolled back. request is the
// digest of everything that defines the request; a key used with another request results in
// [ErrKeyReused]. The key can be used again when the answer expires.
func (s *Store) Once(tx eventlog.Tx, tenant, key string, request canon.Hash, answer []byte, lives time.Duration) (earlier []byte, err error) {
	if len(answer) > maxAnswerBytes {
		return nil, fmt.Errorf("%w: the answer has %d bytes; at most %d are kept", ErrInvalid, len(answer), maxAnswerBytes)
	}
	if earlier, found, err := s.answered(tx, tenant, key, request); found || err != nil {
		return earlier, err
	}
	sub, err := s.subkey(tx, tenant, purposeAnswer) // or the reason why nothing may be stored for the tenant
	if err != nil {
		return nil, err
	}
	// An expired answer to the key may still be there. [Collect] deletes those that nobody asks for again.
	// If a request with the key was carried out since it was looked for, its answer stays.
	n, err := tx.Exec(`INSERT INTO tenant_answer (tenant, key, request, encrypted, expires) VALUES ($1, $2, $3, $4, $5)
	ON CONFLICT (tenant, key) DO UPDATE SET request = excluded.request, encrypted = excluded.encrypted, expires = excluded.expires
	WHERE tenant_answer.expires <= $6`,
		tenant, key, request[:], encrypt(sub, answer, tenant, key, string(request[:])), s.now().Add(lives).UnixNano(), s.now().UnixNano())
	if err == nil && n == 0 {
		earlier, _, err = s.answered(tx, tenant, key, request)
	}
	return earlier, err
}

// Answered returns the answer to a request with an idempotency key, or false if
// the key does not exist. When it returns an answer, the effect of the request is durable.
// Errors are as for [Store.Once].
func (s *Store) Answered(ctx context.Context, tenant, key string, request canon.Hash) (answer []byte, found bool, err error) {
	err = s.db.View(ctx, func(q eventlog.Querier) (err error) {
		answer, found, err = s.answered(q, tenant, key, request)
		return err
	})
	if found && err == nil {
		err = eventlog.Confirm(ctx, s.db)
	}
	return answer, found, err
}

func (s *Store) answered(q eventlog.Querier, tenant, key string, request canon.Hash) (answer []byte, found bool, err error) {
	if key == "" || validText("the idempotency key", key, maxAnswerKey) != nil {
		return nil, false, fmt.Errorf("%w: an idempotency key has 1 to %d bytes of printable text", ErrInvalid, maxAnswerKey)
	}
	var had, encrypted []byte
	found, err = eventlog.QueryOne(q, "SELECT request, encrypted FROM tenant_answer WHERE tenant = $1 AND key = $2 AND expires > $3",
		[]any{tenant, key, s.now().UnixNano()}, &had, &encrypted)
	switch {
	case err != nil || !found:
		return nil, false, err
	case string(had) != string(request[:]):
		return nil, false, ErrKeyReused
	}
	sub, err := s.subkey(q, tenant, purposeAnswer)
	if err != nil {
		return nil, false, err
	}
	answer, err = decrypt(sub, encrypted, tenant, key, string(request[:]))
	return answer, err == nil, err
}

// Tables returns the tables of a Store, which [Open] makes where they are missing and
// its role may.
func Tables() []eventlog.TableSet {
	return []eventlog.TableSet{tables, descriptions}
}

// DataKeyTable is the table with the wrapped data keys, a row for each tenant that is not
// erased.
const DataKeyTable = "tenant_data_key"

// tableNames are the tables of a Store: that of the tenants, and those with rows of a tenant.
var tableNames = []string{"tenant", DataKeyTable, "tenant_api_key", "tenant_secret", "tenant_policy", "tenant_module", "tenant_answer"}

// tables are the tables of a Store. Points in time are nanoseconds since 1970,
// with zero for never.
var tables = eventlog.TableSet{Name: "tenant", Tables: tableNames, Steps: []string{`
CREATE TABLE tenant (
	id        TEXT    PRIMARY KEY NOT NULL,
	name      TEXT    NOT NULL,
	created   INTEGER NOT NULL,
	suspended INTEGER NOT NULL,
	erased    INTEGER NOT NULL,
	weight    INTEGER NOT NULL,
	limits    TEXT    NOT NULL,
	revision  INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE tenant_data_key (
	tenant  TEXT    PRIMARY KEY NOT NULL,
	id      TEXT    NOT NULL,
	master  TEXT    NOT NULL,
	wrapped BLOB    NOT NULL,
	created INTEGER NOT NULL
);
CREATE TABLE tenant_api_key (
	id      TEXT    PRIMARY KEY NOT NULL,
	tenant  TEXT    NOT NULL,
	label   TEXT    NOT NULL,
	hash    BLOB    NOT NULL,
	created INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	revoked INTEGER NOT NULL
);
CREATE INDEX tenant_api_key_by_tenant ON tenant_api_key (tenant);
CREATE TABLE tenant_secret (
	tenant   TEXT    NOT NULL,
	name     TEXT    NOT NULL,
	audience TEXT    NOT NULL,
	place    TEXT    NOT NULL,
	sealed   BLOB    NOT NULL,
	updated  INTEGER NOT NULL,
	PRIMARY KEY (tenant, name)
);
CREATE TABLE tenant_policy (
	tenant  TEXT    NOT NULL,
	version INTEGER NOT NULL,
	digest  BLOB    NOT NULL,
	text    TEXT    NOT NULL,
	created INTEGER NOT NULL,
	held    INTEGER NOT NULL,
	PRIMARY KEY (tenant, version)
);
CREATE TABLE tenant_module (
	tenant   TEXT    NOT NULL,
	name     TEXT    NOT NULL,
	digest   BLOB    NOT NULL,
	size     INTEGER NOT NULL,
	trusted  INTEGER NOT NULL,
	uploaded INTEGER NOT NULL,
	PRIMARY KEY (tenant, name)
);
CREATE INDEX tenant_module_by_digest ON tenant_module (digest);
CREATE TABLE tenant_answer (
	tenant  TEXT    NOT NULL,
	key     TEXT    NOT NULL,
	request BLOB    NOT NULL,
	sealed  BLOB    NOT NULL,
	expires INTEGER NOT NULL,
	PRIMARY KEY (tenant, key)
);
CREATE INDEX tenant_answer_by_expiry ON tenant_answer (expires)`, `
ALTER TABLE tenant_secret RENAME COLUMN sealed TO encrypted;
ALTER TABLE tenant_answer RENAME COLUMN sealed TO encrypted`}, Retention: map[string]string{"tenant_module": "SELECT", "tenant_answer": "SELECT, DELETE"}}

// descriptions has the descriptions of modules, which are functions of their bytes and, for a WASI
// command, of the name. With them a host lists tools without loading modules.
var descriptions = eventlog.TableSet{Name: "daemon", Tables: []string{"daemon_description"}, Steps: []string{`
CREATE TABLE daemon_description (
	digest BLOB NOT NULL,
	name   TEXT NOT NULL,
	tools  TEXT NOT NULL,
	PRIMARY KEY (digest, name)
)`}, Retention: map[string]string{"daemon_description": "SELECT, DELETE"}}

// Erasure is the result of an erasure.
type Erasure struct {
	Keys    int `json:"keys"`
	Secrets int `json:"secrets"`
	Modules int `json:"modules"`
	Runs    int `json:"runs"` // that were removed

	eventlog.ModuleCount // modules that nothing uses any more
}

// Erase destroys a tenant's data key and all its data in the store except its id. Its runs become
// unreadable; their chains still validate. The host that claims its waiting runs ends them. With a
// pruner all runs are removed as well. Modules that are not used elsewhere are removed in any case.
// A host must drop a data key that it holds in memory.
//
// Erasing again finishes an erasure that was interrupted while it pruned.
func (s *Store) Erase(ctx context.Context, tenant string, pruner eventlog.Store) (e Erasure, err error) {
	err = s.db.Transact(ctx, func(tx eventlog.Tx) error {
		e, err = s.erase(tx, tenant)
		return err
	})
	if err != nil {
		return e, err
	}
	if pruner != nil {
		pruned, err := eventlog.PruneInSteps(ctx, pruner, eventlog.PruneOptions{Namespace: tenant, IncludeOpen: true, Why: "the tenant was erased"})
		e.Runs = pruned.Runs
		if err != nil {
			return e, fmt.Errorf("tenant: %q is erased, but its runs are not removed: %w", tenant, err)
		}
	}
	if e.ModuleCount, err = Collect(ctx, s.db, s.now()); err != nil {
		return e, fmt.Errorf("tenant: %q is erased, but its modules are not removed: %w", tenant, err)
	}
	return e, nil
}

func (s *Store) erase(tx eventlog.Tx, tenant string) (e Erasure, err error) {
	if err := ValidID(tenant); err != nil {
		return e, err
	}
	all := statements{tx: tx}
	// Overwriting before deleting leaves nothing in a free page.
	all.exec("UPDATE tenant_data_key SET wrapped = $2 WHERE tenant = $1", tenant, make([]byte, 60))
	// Its runs cannot be read, so they cannot be replayed.
	all.exec("DELETE FROM module_use WHERE used_by >= $1 AND used_by < $2", tenant+"/", tenant+"0")
	removed := map[string]int{}
	for _, table := range tableNames[1:] {
		removed[table] = int(all.exec("DELETE FROM "+table+" WHERE tenant = $1", tenant))
	}
	e.Keys, e.Secrets, e.Modules = removed["tenant_api_key"], removed["tenant_secret"], removed["tenant_module"]
	n := all.exec("UPDATE tenant SET name = '', limits = '{}', erased = $2, revision = revision + 1 WHERE id = $1 AND erased = 0", tenant, s.now().UnixNano())
	if all.err != nil || n > 0 {
		return e, all.err
	}
	if err := needTenant(tx, tenant); !errors.Is(err, ErrErased) {
		return e, err
	}
	return e, nil // it was erased before
}
