package tenant

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
)

// Module says that a tenant has a module. The bytes are in the log's
// [eventlog.ModuleStore], once for all tenants; what is not in a tenant's list
// does not exist for it.
type Module struct {
	Name     string     // a lower-case letter, then letters, digits and hyphens, at most 40
	Digest   chain.Hash // BLAKE3 of the module
	Size     int64      // bytes
	Trusted  bool       // the operator vouches for it, so that it may run without a process of its own
	Uploaded time.Time
}

var modulePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// ModuleNameRule says what [ValidModuleName] asks of a name.
const ModuleNameRule = "a name has 1 to 40 of a-z, 0-9 and hyphens and begins with a letter"

// ValidModuleName returns an error if no module can have the name.
func ValidModuleName(name string) error {
	if !modulePattern.MatchString(name) {
		return fmt.Errorf("%w: module name %.64q: %s", ErrInvalid, name, ModuleNameRule)
	}
	return nil
}

// AddModule adds a module to a tenant's, which must have none of that name. beside are
// the modules that the caller has looked at and found room among; if the tenant has
// others by now, the error is [ErrChanged], and there is to look again. The module is not
// trusted: [Store.TrustModule] is the operator's business.
func (s *Store) AddModule(ctx context.Context, tenant string, m Module, beside []Module) (Module, error) {
	if err := ValidModuleName(m.Name); err != nil {
		return Module{}, err
	}
	m.Trusted, m.Uploaded = false, s.now().UTC()
	err := s.transactFor(ctx, tenant, func(tx eventlog.Tx) error {
		have, err := readModules(tx, ofTenant, tenant)
		if err != nil {
			return err
		}
		if !slices.EqualFunc(have, beside, sameBytes) {
			return fmt.Errorf("%w: tenant %q has %d, not the %d that were looked at", ErrChanged, tenant, len(have), len(beside))
		}
		_, err = tx.Exec("INSERT INTO tenant_module (tenant, name, digest, size, trusted, uploaded) VALUES ($1, $2, $3, $4, 0, $5)",
			tenant, m.Name, m.Digest[:], m.Size, m.Uploaded.UnixNano())
		return exists(err, "module", m.Name)
	})
	return m, err
}

// sameBytes reports whether two modules have the same tools: one name and one digest.
func sameBytes(a, b Module) bool { return a.Name == b.Name && a.Digest == b.Digest }

const ofTenant = "WHERE tenant = $1 ORDER BY name"

// Modules returns the modules of a tenant, by name.
func (s *Store) Modules(ctx context.Context, tenant string) ([]Module, error) {
	return s.modules(ctx, ofTenant, tenant)
}

// Module returns the module of that name of a tenant.
func (s *Store) Module(ctx context.Context, tenant, name string) (Module, error) {
	list, err := s.modules(ctx, "WHERE tenant = $1 AND name = $2", tenant, name)
	if err == nil && len(list) == 0 {
		err = notFound("module", name)
	}
	if err != nil {
		return Module{}, err
	}
	return list[0], nil
}

// OwnsModule reports whether a tenant has a module with that digest under any
// name.
func (s *Store) OwnsModule(ctx context.Context, tenant string, digest chain.Hash) (bool, error) {
	list, err := s.modules(ctx, "WHERE tenant = $1 AND digest = $2 ORDER BY name", tenant, digest[:])
	return len(list) > 0, err
}

func (s *Store) modules(ctx context.Context, where string, args ...any) (list []Module, err error) {
	err = s.db.View(ctx, func(q eventlog.Querier) error {
		list, err = readModules(q, where, args...)
		return err
	})
	return list, err
}

func readModules(q eventlog.Querier, where string, args ...any) (list []Module, err error) {
	err = q.Query("SELECT name, digest, size, trusted, uploaded FROM tenant_module "+where, args, func(r eventlog.Row) error {
		m, err := scanModule(r)
		list = append(list, m)
		return err
	})
	return list, err
}

func scanModule(r eventlog.Row) (m Module, err error) {
	var digest []byte
	var trusted, uploaded int64
	if err := r.Scan(&m.Name, &digest, &m.Size, &trusted, &uploaded); err != nil {
		return m, err
	}
	m.Trusted, m.Uploaded = trusted != 0, instant(uploaded)
	m.Digest, err = asHash(digest)
	return m, err
}

// TrustModule says whether the operator vouches for a tenant's module. The digest
// must be that of the module, so that what was looked at is what is trusted.
func (s *Store) TrustModule(ctx context.Context, tenant, name string, digest chain.Hash, trusted bool) error {
	var flag int64
	if trusted {
		flag = 1
	}
	return s.changeModule(ctx, name, "UPDATE tenant_module SET trusted = $4 WHERE tenant = $1 AND name = $2 AND digest = $3",
		tenant, name, digest[:], flag)
}

// RemoveModule takes a module from a tenant. Its bytes stay in the log, where runs
// need them for their replay.
func (s *Store) RemoveModule(ctx context.Context, tenant, name string) error {
	return s.changeModule(ctx, name, "DELETE FROM tenant_module WHERE tenant = $1 AND name = $2", tenant, name)
}

func (s *Store) changeModule(ctx context.Context, name, sql string, args ...any) error {
	return s.db.Transact(ctx, func(tx eventlog.Tx) error {
		n, err := tx.Exec(sql, args...)
		if err == nil && n == 0 {
			err = notFound("module", name)
		}
		return err
	})
}
