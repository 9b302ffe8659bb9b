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
		have, err := modules(tx, tenant)
		if err != nil {
			return err
		}
		if !slices.EqualFunc(have, beside, sameBytes) {
			return fmt.Errorf("%w: tenant %q has %d, not the %d that were looked at", ErrChanged, tenant, len(have), len(beside))
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

// sameBytes reports whether two modules have the same tools: one name and one digest.
func sameBytes(a, b Module) bool { return a.Name == b.Name && a.Digest == b.Digest }

// Modules returns the modules of a tenant, by name.
func (s *Store) Modules(ctx context.Context, tenant string) (list []Module, err error) {
	err = s.db.View(ctx, func(q eventlog.Querier) error {
		list, err = modules(q, tenant)
		return err
	})
	return list, err
}

func modules(q eventlog.Querier, tenant string) (list []Module, err error) {
	const query = "SELECT name, digest, size, trusted, uploaded FROM tenant_module WHERE tenant = $1 ORDER BY name"
	err = q.Query(query, []any{tenant}, func(r eventlog.Row) error {
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
	return s.changeModule(ctx, tenant, name, "UPDATE tenant_module SET trusted = $4 WHERE tenant = $1 AND name = $2 AND digest = $3",
		digest[:], flag)
}

// RemoveModule takes a module from a tenant. Its bytes stay in the log, where runs
// need them for their replay.
func (s *Store) RemoveModule(ctx context.Context, tenant, name string) error {
	return s.changeModule(ctx, tenant, name, "DELETE FROM tenant_module WHERE tenant = $1 AND name = $2")
}

// changeModule runs a statement about one module, whose first arguments are the tenant
// and the module's name.
func (s *Store) changeModule(ctx context.Context, tenant, name, sql string, more ...any) error {
	return s.db.Transact(ctx, func(tx eventlog.Tx) error {
		n, err := tx.Exec(sql, append([]any{tenant, name}, more...)...)
		if err != nil {
			return err
		}
		if n == 0 {
			return notFound("module", name)
		}
		return raise(tx, tenant)
	})
}
