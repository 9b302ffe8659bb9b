package tenant_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve/tenant"
)

// A tenant is created, and known by its API key.
func ExampleStore_Authenticate() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	db, err := store.OpenFile(ctx, filepath.Join(dir, "host.db"), store.FileOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	tenants, err := tenant.Open(ctx, db, tenant.Options{Masters: []tenant.MasterKey{tenant.NewMasterKey()}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := tenants.Create(ctx, tenant.Tenant{ID: "acme"}); err != nil {
		fmt.Println(err)
		return
	}
	_, key, err := tenants.CreateKey(ctx, "acme", "laptop")
	if err != nil {
		fmt.Println(err)
		return
	}
	who, err := tenants.Authenticate(ctx, key.Reveal())
	fmt.Println(who.ID, err)
	_, err = tenants.Authenticate(ctx, "another key")
	fmt.Println(errors.Is(err, tenant.ErrUnauthorized))
	// Output:
	// acme <nil>
	// true
}
