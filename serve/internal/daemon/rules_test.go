package daemon

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve/tenant"
)

// TestASecretIsTheSameUntilItIsSetAgain or removed, by the time at which it was set last.
func TestASecretIsTheSameUntilItIsSetAgain(t *testing.T) {
	ctx, must := t.Context(), func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	log, err := store.OpenFile(ctx, filepath.Join(t.TempDir(), "host.db"), store.FileOptions{})
	must(err)
	defer log.Close()
	store, err := tenant.Open(ctx, log, tenant.Options{Masters: []tenant.MasterKey{tenant.NewMasterKey()}})
	must(err)
	_, err = store.Create(ctx, tenant.Tenant{ID: "alice"})
	must(err)
	set := func(ctx context.Context) error {
		return store.SetSecret(ctx, "alice", tenant.Secret{Name: "K", Audience: []string{"a.test"}, Place: tenant.PlaceHeader}, tenant.NewValue("0123456789"))
	}
	must(set(ctx))
	then, kept := time.Now(), secrets{store, "alice"}
	for _, step := range []struct {
		what   string
		change func(context.Context) error
		want   bool
	}{
		{"as it was", func(context.Context) error { return nil }, true},
		{"set again", set, false},
		{"removed", func(ctx context.Context) error { return store.DeleteSecret(ctx, "alice", "K") }, false},
	} {
		must(step.change(ctx))
		if same, err := kept.Same(ctx, "K", then); same != step.want || err != nil {
			t.Errorf("%s: %t, %v", step.what, same, err)
		}
	}
}
