package tenant_test

import (
	"errors"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/serve/tenant"
)

func (f fixture) holdings(t *testing.T, id string) tenant.Holdings {
	t.Helper()
	h, err := f.Holdings(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// The holdings of a revision are exactly the tenant's at that revision: every
// change of them raises it, for that tenant alone.
func testHoldings(t *testing.T, open opener) {
	f := open(t)
	f.another(t, "zeta")
	ctx := t.Context()
	second := func(_ any, err error) error { return err }
	for _, step := range []struct {
		what    string
		do      func() error
		changed bool
	}{
		{"policy", func() error { return second(f.SetPolicy(ctx, "acme", "one", false)) }, true},
		{"the same policy", func() error { return second(f.SetPolicy(ctx, "acme", "one", false)) }, false},
		{"the tenant's own policy", func() error { return second(f.ChangePolicy(ctx, "acme", "two", canon.Sum([]byte("one")))) }, true},
		{"module", func() error { return second(f.add(t, "acme", "echo", "echo", nil)) }, true},
		{"trust", func() error { return f.TrustModule(ctx, "acme", "echo", canon.Sum([]byte("echo")), true) }, true},
		{"no such module", func() error {
			if err := f.RemoveModule(ctx, "acme", "other"); !errors.Is(err, tenant.ErrNotFound) {
				return errors.New("it was removed")
			}
			return nil
		}, false},
		{"removal", func() error { return f.RemoveModule(ctx, "acme", "echo") }, true},
		{"limits", func() error { return f.Change(ctx, "acme", func(t *tenant.Tenant) { t.Limits.Running = 1 }) }, false},
		{"rewrap", func() error {
			next := tenant.NewMasterKey()
			if err := f.UseMasters(ctx, f.master, next); err != nil {
				return err
			}
			return second(f.Rewrap(ctx, next))
		}, true},
	} {
		before, other := f.holdings(t, "acme"), f.holdings(t, "zeta")
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		row, err := f.Tenant(ctx, "acme")
		after := f.holdings(t, "acme")
		if err != nil || after.Revision != row.Revision || (after.Revision > before.Revision) != step.changed {
			t.Errorf("%s: from revision %d to %d, in its row %d (%v)", step.what, before.Revision, after.Revision, row.Revision, err)
		}
		if got := f.holdings(t, "zeta").Revision; got != other.Revision && step.what != "rewrap" {
			t.Errorf("%s: zeta has revision %d, it had %d", step.what, got, other.Revision)
		}
	}
	if h := f.holdings(t, "acme"); h.Policy.Text != "two" || h.Policy.Version != 2 || len(h.Modules) != 0 || !h.Key.Valid() {
		t.Errorf("%+v", h)
	}
	_, err := f.Holdings(ctx, "nobody")
	want(t, "nobody", err, tenant.ErrNotFound)
}
