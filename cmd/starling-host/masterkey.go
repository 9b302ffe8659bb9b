package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/tenant"
)

// hostFlags are the database of the tenants, and the key that opens their data.
type hostFlags struct {
	database string
	keyed    bool // the command needs a master key
	keyFile  string
	more     []tenant.MasterKey // beside the keys in keyFile
}

func (f *hostFlags) addDatabase(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.database, "db", defaultDatabase, "the database, as `FILE` or postgres://")
}

func (f *hostFlags) addKey(cmd *cobra.Command) {
	f.keyed = true
	cmd.Flags().StringVar(&f.keyFile, "key-file", "", "`FILE` with the master key; without, the variable "+tenant.MasterKeyVariable)
}

// tenants is an open database with its tenants.
type tenants struct {
	*tenant.Store
	log database
}

func (f *hostFlags) openTenants(ctx context.Context, do access) (t tenants, err error) {
	var keys []tenant.MasterKey
	if f.keyed {
		if keys, err = tenant.MasterKeys(f.keyFile); err != nil {
			return t, err
		}
		if len(keys) > 0 {
			keys = append(keys, f.more...)
		}
	}
	if do == toCreate && len(keys) == 0 {
		return t, tenant.ErrNoMasterKey // before a database without tenants is created
	}
	if t.log, err = openFor(ctx, f.database, do); err != nil {
		return t, err
	}
	t.Store, err = tenant.Open(ctx, t.log, tenant.Options{Masters: keys, Existing: do != toCreate})
	if err != nil {
		t.log.Close()
	}
	return t, err
}

// withTenants calls fn with the tenants of a database that a host has used.
func (f *hostFlags) withTenants(ctx context.Context, do access, fn func(tenants) error) error {
	t, err := f.openTenants(ctx, do)
	if err != nil {
		return err
	}
	defer t.log.Close()
	return fn(t)
}

// tenantAction is the action of a command on the tenants of a database.
type tenantAction func(ctx context.Context, t tenants, args []string) error

// tenantsCommand is a command on the tenants of a database, with the flag --db and those that
// add adds.
func tenantsCommand(use, short string, do access, action tenantAction, add ...func(*cobra.Command)) *cobra.Command {
	var f hostFlags
	return subcommand(use, short, func(cmd *cobra.Command, args []string) error {
		return f.withTenants(cmd.Context(), do, func(t tenants) error { return action(cmd.Context(), t, args) })
	}, append(add, f.addDatabase)...)
}

func (a *app) keygenCommand() *cobra.Command {
	return subcommand("keygen FILE", "make a master key", func(cmd *cobra.Command, args []string) error {
		key, err := tenant.CreateMasterKey(args[0])
		if err != nil {
			return err
		}
		return a.stderr.Printf("%s: %s\n", args[0], key)
	})
}

func (a *app) rewrapCommand() *cobra.Command {
	var f hostFlags
	var to string
	cmd := subcommand("rewrap", "change the master key", func(cmd *cobra.Command, args []string) error {
		if to == "" {
			return usagef("make one with: starling-host tenant keygen FILE", "rewrap: --new-key-file is missing")
		}
		keys, err := tenant.ReadMasterKeys(to)
		if err == nil && len(keys) > 1 {
			err = usagef("name a file with only the new key", "rewrap: %s has %d master keys", to, len(keys))
		}
		if err != nil {
			return err
		}
		f.more = keys // data keys already wrapped by it do not change
		return f.withTenants(cmd.Context(), toChange, func(t tenants) error {
			n, err := t.Rewrap(cmd.Context(), keys[0])
			if err == nil {
				a.stderr.Printf("%s under %s\n", display.Plural(n, "data key"), keys[0])
				a.hint("add this key to the key_file of every host and send SIGHUP; GET /api/v1/readyz lists the loaded keys as master_keys")
			}
			return err
		})
	}, f.addDatabase, f.addKey)
	cmd.Flags().StringVar(&to, "new-key-file", "", "`FILE` with the new master key")
	return cmd
}
