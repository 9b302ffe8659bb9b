package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/host/tenant"
)

const tenantListHelp = `List the tenants of a database. Of their keys the ids are shown, never the keys.`

func (a *app) tenantListCommand() *cobra.Command {
	var f hostFlags
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "list the tenants",
		Long:    tenantListHelp,
		Example: "  starling-host tenant list\n  starling-host tenant list -o json",
		Args:    arguments(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := f.withTenants(cmd.Context(), toRead, func(t tenants) error { return a.listTenants(cmd.Context(), t, f.output) })
			if errors.Is(err, tenant.ErrNoTables) && f.output == outputJSON {
				return a.writeValue(tenantsDocument{Tenants: []tenantDocument{}})
			}
			if errors.Is(err, tenant.ErrNoTables) {
				a.stderr.printf("%s has no tenants: no host has used it\n", named(f.database))
				return nil
			}
			return err
		},
	}
	f.addDatabase(cmd)
	outputFlag(cmd, &f.output)
	return cmd
}

// tenantsDocument is what "tenant list -o json" prints.
type tenantsDocument struct {
	Tenants []tenantDocument `json:"tenants"`
}

type tenantDocument struct {
	ID        string              `json:"id"`
	Name      string              `json:"name"`
	State     string              `json:"state"`
	CreatedAt string              `json:"created_at"`
	Weight    int                 `json:"weight"`
	Limits    limitsDocument      `json:"limits"`
	Keys      []tenantKeyDocument `json:"keys"`
}

type tenantKeyDocument struct {
	ID        string `json:"id"`
	Label     string `json:"label"`
	CreatedAt string `json:"created_at"`
	ExpiresAt string `json:"expires_at,omitempty"`
	Valid     bool   `json:"valid"`
}

// The states of a tenant.
const (
	stateActive    = "active"
	stateSuspended = "suspended"
	stateErased    = "erased"
)

func tenantState(t tenant.Tenant) string {
	switch {
	case !t.Erased.IsZero():
		return stateErased
	case t.Suspended:
		return stateSuspended
	}
	return stateActive
}

func (a *app) listTenants(ctx context.Context, t tenants, output string) error {
	list, err := t.Tenants(ctx)
	if err != nil {
		return err
	}
	doc := tenantsDocument{Tenants: []tenantDocument{}}
	now := time.Now()
	for _, one := range list {
		keys, err := t.Keys(ctx, one.ID)
		if err != nil {
			return err
		}
		doc.Tenants = append(doc.Tenants, newTenantDocument(one, keys, now))
	}
	if output == outputJSON {
		return a.writeValue(doc)
	}
	a.printTenants(doc)
	return nil
}

func newTenantDocument(t tenant.Tenant, keys []tenant.APIKey, now time.Time) tenantDocument {
	doc := tenantDocument{ID: t.ID, Name: t.Name, State: tenantState(t), CreatedAt: formatTime(t.Created.UnixNano()),
		Weight: t.Weight, Limits: limitsDocument(t.Limits.Or(tenant.DefaultLimits())), Keys: []tenantKeyDocument{}}
	for _, k := range keys {
		line := tenantKeyDocument{ID: k.ID, Label: k.Label, CreatedAt: formatTime(k.Created.UnixNano()), Valid: k.Valid(now)}
		if !k.Expires.IsZero() {
			line.ExpiresAt = formatTime(k.Expires.UnixNano())
		}
		doc.Keys = append(doc.Keys, line)
	}
	return doc
}

func (a *app) printTenants(doc tenantsDocument) {
	if len(doc.Tenants) > 0 {
		a.stdout.printf("%-32s  %-9s  %6s  %5s  %-24s  %s\n", "TENANT", "STATE", "WEIGHT", "KEYS", "CREATED", "NAME")
	}
	for _, t := range doc.Tenants {
		valid := 0
		for _, k := range t.Keys {
			if k.Valid {
				valid++
			}
		}
		a.stdout.printf("%-32s  %-9s  %6d  %5d  %-24s  %s\n", t.ID, t.State, t.Weight, valid, t.CreatedAt, t.Name)
	}
}
