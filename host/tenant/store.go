package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog"
)

// Store is the tenants of one database. Its methods may be called from any
// goroutine, and any number of processes may have a Store over the same database.
// What it returns is read anew each time; nothing is cached. Use [Open].
type Store struct {
	db      eventlog.Transactor
	masters atomic.Pointer[[]MasterKey]
	now     func() time.Time
	keeps   bool // the role of the log may not remove modules
}

// Options are what a Store needs beside its database.
type Options struct {
	// Masters open the data keys. More than one is for the time in which the master key is
	// changed. Without any, whatever needs a data key is [ErrNoMasterKey], and everything
	// else works.
	Masters []MasterKey
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Existing makes no tables: a database without them is [ErrNoTables].
	Existing bool
	// AsIs leaves the tables as an earlier version made them, which is enough to open runs.
	AsIs bool
}

// Open creates the tables where they are missing, if it may. If it is given master keys, and a
// data key of the database is under another one, that is [ErrWrongMasterKey].
func Open(ctx context.Context, db eventlog.Transactor, o Options) (*Store, error) {
	s := &Store{db: db, now: o.Now}
	s.masters.Store(&o.Masters)
	if s.now == nil {
		s.now = time.Now
	}
	if o.Existing {
		switch taken, err := db.TableSteps(ctx, tables); {
		case err != nil:
			return nil, fmt.Errorf("tenant: look for the tables: %w", err)
		case taken == 0:
			return nil, ErrNoTables
		}
	}
	for _, set := range Tables() {
		if o.AsIs {
			break
		}
		if err := db.CreateTables(ctx, set); err != nil {
			return nil, fmt.Errorf("tenant: create tables: %w", err)
		}
	}
	may, err := mayRemove(ctx, db)
	if s.keeps = !may; err != nil {
		return nil, err
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
	or(&t.Weight, 1)
	if err := t.valid(); err != nil {
		return Tenant{}, err
	}
	limits, err := json.Marshal(t.Limits)
	if err != nil {
		return Tenant{}, fmt.Errorf("tenant: encode limits: %w", err)
	}
	err = s.db.Transact(ctx, func(tx eventlog.Tx) error {
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

// Tenant returns one tenant, also one that is suspended or erased.
func (s *Store) Tenant(ctx context.Context, id string) (t Tenant, err error) {
	list, err := s.tenants(ctx, "SELECT "+tenantColumns+" FROM tenant WHERE id = $1", id)
	if err == nil && len(list) == 0 {
		err = notFound("tenant", id)
	}
	if err != nil {
		return Tenant{}, err
	}
	return list[0], nil
}

// Tenants returns all tenants by their ids, also those that are suspended or
// erased.
func (s *Store) Tenants(ctx context.Context) ([]Tenant, error) {
	return s.tenants(ctx, "SELECT "+tenantColumns+" FROM tenant ORDER BY id")
}

func (s *Store) tenants(ctx context.Context, query string, args ...any) (list []Tenant, err error) {
	err = s.db.View(ctx, func(q eventlog.Querier) (err error) {
		list, err = tenants(q, query, args...)
		return err
	})
	return list, err
}

func tenants(q eventlog.Querier, query string, args ...any) (list []Tenant, err error) {
	err = q.Query(query, args, func(r eventlog.Row) error {
		t, err := scanTenant(r)
		list = append(list, t)
		return err
	})
	return list, err
}

func scanTenant(r eventlog.Row) (Tenant, error) {
	var t Tenant
	var created, suspended, erased, weight int64
	var limits string
	if err := r.Scan(&t.ID, &t.Name, &created, &suspended, &erased, &weight, &limits, &t.Revision); err != nil {
		return t, err
	}
	t.Created, t.Suspended, t.Erased, t.Weight = instant(created), suspended != 0, instant(erased), int(weight)
	if err := json.Unmarshal([]byte(limits), &t.Limits); err != nil {
		return t, fmt.Errorf("tenant: limits of %q: %w", t.ID, err)
	}
	return t, nil
}

// Suspend has the keys of a tenant refused until [Store.Resume]. Hosts give back the runs
// that they are making for it, and begin none.
func (s *Store) Suspend(ctx context.Context, id string) error {
	return s.change(ctx, id, "UPDATE tenant SET suspended = $2 WHERE id = $1 AND erased = 0", s.now().UnixNano())
}

// Resume undoes Suspend.
func (s *Store) Resume(ctx context.Context, id string) error {
	return s.change(ctx, id, "UPDATE tenant SET suspended = $2 WHERE id = $1 AND erased = 0", int64(0))
}

// Change has change set the limits and the weight of a tenant, which it is given as it
// is, maybe several times. What others change at the same time is not lost.
func (s *Store) Change(ctx context.Context, id string, change func(*Tenant)) error {
	return s.db.Transact(ctx, func(tx eventlog.Tx) error {
		if err := needTenant(tx, id); err != nil {
			return err
		}
		list, err := tenants(tx, "SELECT "+tenantColumns+" FROM tenant WHERE id = $1", id)
		if err != nil {
			return err
		}
		change(&list[0])
		return list[0].update(tx)
	})
}

// update stores the limits and the weight of a tenant.
func (t Tenant) update(tx eventlog.Tx) error {
	if err := validWeight(t.Weight); err != nil {
		return err
	}
	limits, err := json.Marshal(t.Limits)
	if err != nil {
		return fmt.Errorf("tenant: encode limits: %w", err)
	}
	_, err = tx.Exec("UPDATE tenant SET limits = $2, weight = $3 WHERE id = $1", t.ID, string(limits), int64(t.Weight))
	return err
}

// change runs an update of one tenant's row.
func (s *Store) change(ctx context.Context, id, update string, arg any) error {
	return s.db.Transact(ctx, func(tx eventlog.Tx) error {
		n, err := tx.Exec(update, id, arg)
		if err == nil && n == 0 {
			err = needTenant(tx, id)
		}
		return err
	})
}

// needTenant returns why nothing may be stored for a tenant: it does not exist, or
// was erased.
func needTenant(q eventlog.Querier, id string) error {
	var erased int64
	found, err := one(q, "SELECT erased FROM tenant WHERE id = $1", []any{id}, &erased)
	switch {
	case err != nil:
		return err
	case !found:
		return notFound("tenant", id)
	case erased != 0:
		return fmt.Errorf("%w: %q", ErrErased, id)
	}
	return nil
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

// one scans the only row of a result.
func one(q eventlog.Querier, sql string, args []any, to ...any) (found bool, err error) {
	err = q.Query(sql, args, func(r eventlog.Row) error {
		found = true
		return r.Scan(to...)
	})
	return found, err
}

func exists(err error, what, name string) error {
	if errors.Is(err, eventlog.ErrConflict) {
		return fmt.Errorf("%w: %s %.64q", ErrExists, what, name)
	}
	return err
}

func notFound(what, name string) error { return &NotFoundError{what, name} }

// instant is the inverse of UnixNano, with zero for never.
func instant(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

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
