package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/lazy"
)

// Module is a tenant's entry for a module. The bytes are in the log's
// [eventlog.ModuleStore], once for all tenants; a module outside a tenant's
// list does not exist for it.
type Module struct {
	Name     string     // a lower-case letter, then letters, digits and hyphens, at most 40
	Digest   canon.Hash // BLAKE3 of the module
	Size     int64      // bytes
	Trusted  bool       // the operator vouches for it, so that it may run without a process of its own
	Uploaded time.Time
}

var modulePattern = lazy.Regexp(`^[a-z][a-z0-9-]{0,39}$`)

// ModuleNameRule describes the names that [ValidModuleName] accepts.
const ModuleNameRule = "a name has 1 to 40 of a-z, 0-9 and hyphens and begins with a letter"

// ValidModuleName returns an error if no module can have the name.
func ValidModuleName(name string) error {
	if !modulePattern().MatchString(name) {
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

// moduleUser is the user of a tenant's module in the log, see [eventlog.UseModules]. It is not
// the id of a run, which has no space.
func moduleUser(tenant, name string) string { return tenant + "/module " + name }

// ModuleRoom returns a [*NoRoomError] if a tenant's modules would take more than most bytes
// with this one; less than zero means no bound. A module that the tenant has removed counts
// until its runs that use it are removed.
func (s *Store) ModuleRoom(ctx context.Context, tenant string, digest canon.Hash, bytes, most int64) error {
	return s.db.View(ctx, func(q eventlog.Querier) error { return moduleRoom(q, tenant, digest, bytes, most) })
}

func moduleRoom(q eventlog.Querier, tenant string, digest canon.Hash, bytes, most int64) error {
	full := &NoRoomError{Most: most}
	_, err := eventlog.QueryOne(q, `SELECT CAST(coalesce(sum(size), 0) AS BIGINT), CAST(coalesce(sum(CASE WHEN EXISTS
	(SELECT 1 FROM tenant_module AS t WHERE t.digest = module.digest AND t.tenant = $1) THEN 0 ELSE size END), 0) AS BIGINT)
FROM module WHERE digest <> $2 AND EXISTS (SELECT 1 FROM module_use AS u WHERE u.digest = module.digest AND u.used_by >= $3 AND u.used_by < $4)`,
		[]any{tenant, digest[:], tenant + "/", tenant + "0"}, &full.Held, &full.Removed)
	if err == nil && most >= 0 && full.Held+bytes > most {
		err = full
	}
	return err
}

// AddModule stores a module and adds it to a tenant's list, which must have none of that
// name. Describes is the module's own description. beside are the modules among which the
// caller has found room; if the tenant's modules have changed, the error is [ErrChanged], and
// the caller has to look again. For most see [Store.ModuleRoom]. The module is not trusted:
// [Store.TrustModule] is the operator's business.
//
// The list keeps the module from the transaction on that adds it. If the process dies before,
// nothing uses the stored module, and [Collect] removes it.
func (s *Store) AddModule(ctx context.Context, tenant, name string, wasm []byte, describes string, beside []Module, most int64) (Module, error) {
	if err := ValidModuleName(name); err != nil {
		return Module{}, err
	}
	m := Module{Name: name, Digest: canon.Sum(wasm), Size: int64(len(wasm)), Uploaded: s.now().UTC()}
	if err := s.ModuleRoom(ctx, tenant, m.Digest, m.Size, most); err != nil {
		return Module{}, err
	}
	if _, err := s.db.PutModule(ctx, wasm); err != nil {
		return Module{}, err
	}
	err := s.transactFor(ctx, tenant, func(tx eventlog.Tx) error {
		have, err := modules(tx, tenant)
		if err != nil {
			return err
		}
		if !slices.EqualFunc(have, beside, func(a, b Module) bool { return a.Name == b.Name && a.Digest == b.Digest }) {
			return fmt.Errorf("%w: tenant %q has %d, not the %d that were looked at", ErrChanged, tenant, len(have), len(beside))
		}
		if err := moduleRoom(tx, tenant, m.Digest, m.Size, most); err != nil {
			return err
		}
		err = eventlog.UseModules(tx, moduleUser(tenant, m.Name), m.Digest)
		if errors.Is(err, eventlog.ErrModuleNotFound) {
			return fmt.Errorf("%w: module %v was removed meanwhile", ErrChanged, m.Digest)
		}
		if err != nil {
			return err
		}
		s := statements{tx: tx}
		s.exec("INSERT INTO daemon_description (digest, name, tools) VALUES ($1, $2, $3) ON CONFLICT (digest, name) DO NOTHING", m.Digest[:], m.Name, describes)
		s.exec("INSERT INTO tenant_module (tenant, name, digest, size, trusted, uploaded) VALUES ($1, $2, $3, $4, 0, $5)",
			tenant, m.Name, m.Digest[:], m.Size, m.Uploaded.UnixNano())
		return exists(s.raise(tenant), "module", m.Name)
	})
	if err != nil {
		_, removeErr := s.db.RemoveUnusedModules(context.WithoutCancel(ctx), m.Digest)
		err = errors.Join(err, removeErr)
	}
	return m, err
}

// Description returns a module's own description, as passed to AddModule.
func (s *Store) Description(ctx context.Context, digest canon.Hash, name string) (string, error) {
	return eventlog.View(ctx, s.db, func(q eventlog.Querier) (describes string, err error) {
		_, err = eventlog.QueryOne(q, "SELECT tools FROM daemon_description WHERE digest = $1 AND name = $2", []any{digest[:], name}, &describes)
		return describes, err
	})
}

// Modules returns the modules of a tenant, by name.
func (s *Store) Modules(ctx context.Context, tenant string) ([]Module, error) {
	return eventlog.View(ctx, s.db, func(q eventlog.Querier) ([]Module, error) { return modules(q, tenant) })
}

func modules(q eventlog.Querier, tenant string) ([]Module, error) {
	const query = "SELECT name, digest, size, trusted, uploaded FROM tenant_module WHERE tenant = $1 ORDER BY name"
	return eventlog.QueryAll(q, query, []any{tenant}, eventlog.Columns(func(m *Module) []any {
		return []any{&m.Name, &m.Digest, &m.Size, &m.Trusted, &m.Uploaded}
	}))
}

// TrustModule sets whether the operator vouches for a tenant's module. The digest
// must be the module's, so that the inspected bytes are the trusted ones.
func (s *Store) TrustModule(ctx context.Context, tenant, name string, digest canon.Hash, trusted bool) error {
	return s.db.Transact(ctx, func(tx eventlog.Tx) error {
		n, err := tx.Exec("UPDATE tenant_module SET trusted = $4 WHERE tenant = $1 AND name = $2 AND digest = $3", tenant, name, digest[:], eventlog.Flag(trusted))
		if err != nil {
			return err
		}
		if n == 0 {
			return notFound("module", name)
		}
		return (&statements{tx: tx}).raise(tenant)
	})
}

// RemoveModule takes a module from a tenant. Its bytes are removed as well if no run and no
// tenant uses it, and the role of the log may. Otherwise they stay until [Collect] finds them
// unused.
func (s *Store) RemoveModule(ctx context.Context, tenant, name string) error {
	var digest canon.Hash
	err := s.db.Transact(ctx, func(tx eventlog.Tx) error {
		found, err := eventlog.QueryOne(tx, "SELECT digest FROM tenant_module WHERE tenant = $1 AND name = $2", []any{tenant, name}, &digest)
		if err != nil {
			return err
		}
		if !found {
			return notFound("module", name)
		}
		s := statements{tx: tx}
		s.exec("DELETE FROM tenant_module WHERE tenant = $1 AND name = $2", tenant, name)
		s.exec("DELETE FROM daemon_description WHERE digest = $1 AND name = $2 AND "+undescribed, digest[:], name)
		s.exec("DELETE FROM module_use WHERE digest = $1 AND used_by = $2", digest[:], moduleUser(tenant, name))
		return s.raise(tenant)
	})
	if err == nil {
		_, err = s.db.RemoveUnusedModules(ctx, digest)
	}
	return err
}

// undescribed is the condition on daemon_description that no tenant has the module.
const undescribed = "NOT EXISTS (SELECT 1 FROM tenant_module AS m WHERE m.digest = daemon_description.digest AND m.name = daemon_description.name)"

// Collect removes unneeded data from a database, whether a host has used it or not: modules
// that no run and no tenant uses, descriptions of such modules, and expired answers to
// idempotency keys. It works in short transactions, beside hosts that serve. If it fails, what
// it has removed stays removed. A role without the right to remove modules leaves them to
// another role.
func Collect(ctx context.Context, db eventlog.Database, now time.Time) (eventlog.ModuleCount, error) {
	ofHost, err := db.TableSteps(ctx, descriptions) // the last of a host's that are made
	if err == nil && ofHost > 0 {
		err = db.Transact(ctx, func(tx eventlog.Tx) error {
			s := statements{tx: tx}
			s.exec("DELETE FROM tenant_answer WHERE expires <= $1", now.UnixNano())
			s.exec("DELETE FROM daemon_description WHERE " + undescribed)
			return s.err
		})
	}
	if err != nil {
		return eventlog.ModuleCount{}, fmt.Errorf("tenant: collect: %w", err)
	}
	return db.RemoveUnusedModules(ctx)
}
