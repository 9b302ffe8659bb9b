package tenant_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/serve/tenant"
)

var errOutage = errors.New("the server is gone")

// failing is a database that is gone from its statement of this number on.
type failing struct {
	database
	from, done int
}

func (f *failing) fails() bool { f.done++; return f.done > f.from }

type failingTx struct {
	eventlog.Tx
	of *failing
}

func (f failingTx) Query(sql string, args []any, row func(eventlog.Row) error) error {
	if f.of.fails() {
		return errOutage
	}
	return f.Tx.Query(sql, args, row)
}

func (f failingTx) Exec(sql string, args ...any) (int64, error) {
	if f.of.fails() {
		return 0, errOutage
	}
	return f.Tx.Exec(sql, args...)
}

type failingQuerier struct {
	eventlog.Querier
	of *failing
}

func (f failingQuerier) Query(sql string, args []any, row func(eventlog.Row) error) error {
	if f.of.fails() {
		return errOutage
	}
	return f.Querier.Query(sql, args, row)
}

func (f *failing) View(ctx context.Context, fn func(eventlog.Querier) error) error {
	return f.database.View(ctx, func(q eventlog.Querier) error { return fn(failingQuerier{q, f}) })
}

func (f *failing) Transact(ctx context.Context, fn func(eventlog.Tx) error) error {
	return f.database.Transact(ctx, func(tx eventlog.Tx) error { return fn(failingTx{tx, f}) })
}

// TestAnOutageIsNothingElse ends the database before each statement of each operation. The error is the
// outage, and never a tenant, a key or a secret that does not exist.
func TestAnOutageIsNothingElse(t *testing.T) {
	const policy = "tools: {}\n"
	secret := tenant.Secret{Name: "TOKEN", Audience: []string{"api.example.com"}, Place: tenant.PlaceHeader}
	var (
		ctx    = t.Context()
		key    tenant.APIKey
		value  tenant.Value
		digest canon.Hash
		err    error
	)
	for name, do := range map[string]func(*tenant.Store) error{
		"Tenant":          func(s *tenant.Store) error { _, err := s.Tenant(ctx, "acme"); return err },
		"Tenants":         func(s *tenant.Store) error { _, err := s.Tenants(ctx); return err },
		"Holdings":        func(s *tenant.Store) error { _, err := s.Holdings(ctx, "acme"); return err },
		"Authenticate":    func(s *tenant.Store) error { _, err := s.Authenticate(ctx, value.Reveal()); return err },
		"Keys":            func(s *tenant.Store) error { _, err := s.Keys(ctx, "acme"); return err },
		"DerivedKey":      func(s *tenant.Store) error { _, err := s.DerivedKey(ctx, "acme", "label"); return err },
		"DataKey":         func(s *tenant.Store) error { _, err := s.DataKey(ctx, "acme"); return err },
		"DataKeyIDs":      func(s *tenant.Store) error { _, err := s.DataKeyIDs(ctx); return err },
		"MasterUses":      func(s *tenant.Store) error { _, err := s.MasterUses(ctx); return err },
		"CheckMaster":     func(s *tenant.Store) error { return s.CheckMaster(ctx) },
		"Policy":          func(s *tenant.Store) error { _, err := s.Policy(ctx, "acme"); return err },
		"Policies":        func(s *tenant.Store) error { _, err := s.Policies(ctx, "acme"); return err },
		"MayChangePolicy": func(s *tenant.Store) error { return s.MayChangePolicy(ctx, "acme", policy) },
		"SetPolicy":       func(s *tenant.Store) error { _, err := s.SetPolicy(ctx, "acme", policy+"\n", true); return err },
		"Secret":          func(s *tenant.Store) error { _, _, err := s.Secret(ctx, "acme", "TOKEN"); return err },
		"Secrets":         func(s *tenant.Store) error { _, err := s.Secrets(ctx, "acme"); return err },
		"SetSecret": func(s *tenant.Store) error {
			return s.SetSecret(ctx, "acme", secret, tenant.NewValue("another-value"))
		},
		"Modules":     func(s *tenant.Store) error { _, err := s.Modules(ctx, "acme"); return err },
		"ModuleRoom":  func(s *tenant.Store) error { return s.ModuleRoom(ctx, "acme", canon.Hash{1}, 1, 1<<20) },
		"Description": func(s *tenant.Store) error { _, err := s.Description(ctx, digest, "m"); return err },
		"TrustModule": func(s *tenant.Store) error { return s.TrustModule(ctx, "acme", "m", digest, true) },
		"Answered":    func(s *tenant.Store) error { _, _, err := s.Answered(ctx, "acme", "k", digest); return err },
		"Suspend":     func(s *tenant.Store) error { return s.Suspend(ctx, "acme") },
		"Resume":      func(s *tenant.Store) error { return s.Resume(ctx, "acme") },
		"Change":      func(s *tenant.Store) error { return s.Change(ctx, "acme", func(t *tenant.Tenant) { t.Name += "x" }) },
		"RotateKey":   func(s *tenant.Store) error { _, _, err := s.RotateKey(ctx, "acme", "r", time.Hour); return err },
		"RevokeKey":   func(s *tenant.Store) error { return s.RevokeKey(ctx, "acme", key.ID) },
		"RemoveModule": func(s *tenant.Store) error {
			return s.RemoveModule(ctx, "acme", "m")
		},
		"DeleteSecret": func(s *tenant.Store) error { return s.DeleteSecret(ctx, "acme", "TOKEN") },
	} {
		f := onSQLite(t)
		if key, value, err = f.CreateKey(ctx, "acme", ""); err != nil {
			t.Fatal(err)
		}
		digest = f.added(t, "acme", "m").Digest
		if _, err := f.SetPolicy(ctx, "acme", policy, false); err != nil {
			t.Fatal(err)
		}
		if err := f.SetSecret(ctx, "acme", secret, tenant.NewValue("s3cret-value")); err != nil {
			t.Fatal(err)
		}
		for from := 0; ; from++ {
			db := &failing{database: f.log, from: 1 << 30}
			s, err := tenant.Open(ctx, db, tenant.Options{Masters: []tenant.MasterKey{f.master}, Now: f.clock.now})
			if err != nil {
				t.Fatal(err)
			}
			db.from, db.done = from, 0
			err = do(s)
			if db.done <= from { // all statements ran
				if from == 0 || err != nil {
					t.Errorf("%s runs %d statements: %v", name, from, err)
				}
				break
			}
			if !errors.Is(err, errOutage) {
				t.Errorf("%s without statement %d: %v", name, from+1, err)
			}
			for _, other := range tenant.Errors {
				if errors.Is(err, other) {
					t.Errorf("%s without statement %d: an outage is %v", name, from+1, other)
				}
			}
			if from > 100 {
				t.Fatal(name, "never ends")
			}
		}
	}
}

// TestEveryByteOfASecret asks for secrets with each byte: what is text of ASCII may be stored, the last
// one of it, a tilde, as well as the first.
func TestEveryByteOfASecret(t *testing.T) {
	f := onSQLite(t)
	for c := range 256 {
		err := f.SetSecret(t.Context(), "acme", tenant.Secret{Name: "TOKEN", Audience: []string{"api.example.com"}, Place: tenant.PlaceHeader},
			tenant.NewValue("12345678"+string([]byte{byte(c)})))
		if want := c >= ' ' && c <= '~'; (err == nil) != want || err != nil && !errors.Is(err, tenant.ErrInvalid) {
			t.Errorf("the byte %#x: %v", c, err)
		}
	}
}
