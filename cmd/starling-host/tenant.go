package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/serve"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

func (a *app) tenantCommand() *cobra.Command {
	return parent("tenant", "who may use a host, and how much",
		a.tenantCreateCommand(), a.tenantListCommand(), a.rotateKeyCommand(),
		tenantsCommand("revoke-key ID KEY-ID", "revoke a key", toChange, func(ctx context.Context, t tenants, args []string) error { return t.RevokeKey(ctx, args[0], args[1]) }, a.outputFlag),
		tenantsCommand("suspend ID", "refuse a tenant's keys and pause its runs", toChange, func(ctx context.Context, t tenants, args []string) error { return t.Suspend(ctx, args[0]) }),
		tenantsCommand("resume ID", "accept a suspended tenant's keys again", toChange, func(ctx context.Context, t tenants, args []string) error { return t.Resume(ctx, args[0]) }),
		a.limitsCommand(), a.tenantPolicyCommand(),
		a.tenantUsageCommand(), a.tenantModulesCommand(), a.trustCommand(), a.eraseCommand(), a.keygenCommand(), a.rewrapCommand())
}

// keyDocument is the output of "tenant create" and "tenant rotate-key" with -o json.
type keyDocument struct {
	Tenant string `json:"tenant"`
	KeyID  string `json:"key_id"`
	Key    string `json:"key"`
}

// printKey prints an API key, which is never shown again.
func (a *app) printKey(k tenant.APIKey, key tenant.Value) error {
	return a.emit(keyDocument{Tenant: k.Tenant, KeyID: k.ID, Key: key.Reveal()}, func() {
		a.stderr.Printf("API key %s of tenant %s. It is not shown again:\n", k.ID, k.Tenant)
		a.stdout.Printf("%s\n", key.Reveal())
	})
}

func (a *app) tenantCreateCommand() *cobra.Command {
	var f hostFlags
	var name string
	var l limitFlags
	cmd := subcommand("create ID", "create a tenant and its first key", func(cmd *cobra.Command, args []string) error {
		one := tenant.Tenant{ID: args[0], Name: name, Weight: 1}
		l.apply(cmd, &one)
		ctx := cmd.Context()
		if err := tenant.ValidID(one.ID); err != nil { // before a database is created
			return err
		}
		made := isNew(f.database)
		return f.withTenants(ctx, toCreate, func(t tenants) error {
			if made {
				a.stderr.Printf("a new database: %s\n", f.database)
			}
			if _, err := t.Create(ctx, one); err != nil {
				return err
			}
			k, key, err := t.CreateKey(ctx, one.ID, "first")
			if err != nil {
				return err
			}
			return a.printKey(k, key)
		})
	}, f.addDatabase, f.addKey, a.outputFlag, l.add)
	cmd.Flags().StringVar(&name, "name", "", "display `NAME` of the tenant")
	return cmd
}

func (a *app) rotateKeyCommand() *cobra.Command {
	var label string
	grace := 24 * time.Hour
	cmd := tenantsCommand("rotate-key ID", "create a new key and let the old ones expire", toChange, func(ctx context.Context, t tenants, args []string) error {
		k, key, err := t.RotateKey(ctx, args[0], label, grace)
		if err != nil {
			return err
		}
		return a.printKey(k, key)
	}, a.outputFlag)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if grace < 0 {
			return usagef("", "--grace must not be negative")
		}
		return nil
	}
	cmd.Flags().DurationVar(&grace, "grace", grace, "keep the old keys valid for this long")
	cmd.Flags().StringVar(&label, "label", "", "`TEXT` that identifies the key")
	return cmd
}

func (a *app) eraseCommand() *cobra.Command {
	var f hostFlags
	var yes, prune bool
	cmd := subcommand("erase ID", "destroy a tenant's keys and secrets for good", func(cmd *cobra.Command, args []string) error {
		if !yes {
			return needsFlag("--yes", "erasing tenant %q cannot be undone", args[0])
		}
		if prune {
			setAside, err := a.giveUpSpare(f.database)
			if err != nil {
				return err
			}
			defer setAside()
		}
		return f.withTenants(cmd.Context(), toChange, func(t tenants) error { return a.erase(cmd.Context(), t, args[0], prune) })
	}, f.addDatabase, a.outputFlag)
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm the erasure")
	cmd.Flags().BoolVar(&prune, "prune", false, "remove the tenant's runs as well")
	return cmd
}

// erasureDocument is the output of "tenant erase -o json".
type erasureDocument struct {
	Tenant string `json:"tenant"`
	tenant.Erasure
	Wiped *bool `json:"wiped,omitempty"` // see wipe
}

func (a *app) erase(ctx context.Context, t tenants, id string, prune bool) error {
	var pruner eventlog.Store
	if prune {
		pruner = t.log
	}
	e, err := t.Erase(ctx, id, pruner)
	if err != nil {
		return err
	}
	return a.emit(erasureDocument{id, e, a.wipe(ctx, t.log)}, func() {
		a.stdout.Printf("erased %s: its data key, %s, %s, %s; removed %s\n", id,
			display.Plural(e.Keys, "API key"), display.Plural(e.Secrets, "secret"), display.Plural(e.Modules, "module"), display.Plural(e.Runs, "run"))
		a.printCollected(e.ModuleCount)
	})
}

// wipe has a server write the table of data keys anew, since the wrapped key of a tenant
// that was erased is still in its pages. It reports whether that was done; nil for a file,
// in which the key was overwritten.
//
// While a server is in use, a transaction is open at any moment that began before the key
// was removed. It ends soon, so the table is written anew a few times.
func (a *app) wipe(ctx context.Context, log database) *bool {
	server, ok := log.(*store.Server)
	if !ok {
		return nil
	}
	const tries, pause = 5, 200 * time.Millisecond
	kept, err := server.Rewrite(ctx, tenant.DataKeyTable)
	for i := 1; i < tries && err == nil && kept > 0; i++ {
		await.Pause(ctx, pause)
		kept, err = server.Rewrite(ctx, tenant.DataKeyTable)
	}
	done := err == nil && kept == 0
	if !done {
		why := "a transaction is open that might read it"
		if err != nil {
			why = starling.PlainError(err)
		}
		a.warn("the wrapped data key is still in the file of its table: " + why)
		a.hint("erase again later, or run as the owner of the table: VACUUM FULL " + tenant.DataKeyTable)
	}
	return &done
}

func (a *app) tenantListCommand() *cobra.Command {
	var f hostFlags
	return subcommand("list", "list the tenants", func(cmd *cobra.Command, _ []string) error {
		err := f.withTenants(cmd.Context(), toRead, func(t tenants) error { return a.listTenants(cmd.Context(), t) })
		if errors.Is(err, tenant.ErrNoTables) {
			return a.emit(tenantsDocument{Tenants: []tenantDocument{}}, func() {
				a.stderr.Printf("%s has no tenants: no host has used it\n", named(f.database))
			})
		}
		return err
	}, f.addDatabase, a.outputFlag)
}

// tenantsDocument is the output of "tenant list -o json".
type tenantsDocument struct {
	Tenants []tenantDocument `json:"tenants"`
}

type tenantDocument struct {
	tenant.Tenant
	State string              `json:"state"`
	Keys  []tenantKeyDocument `json:"keys"`
}

type tenantKeyDocument struct {
	tenant.APIKey
	Valid bool `json:"valid"`
}

func tenantState(t tenant.Tenant) string {
	switch {
	case !t.Erased.IsZero():
		return "erased"
	case t.Suspended:
		return "suspended"
	}
	return "active"
}

func (a *app) listTenants(ctx context.Context, t tenants) error {
	list, err := t.Tenants(ctx)
	if err != nil {
		return err
	}
	doc, now := tenantsDocument{Tenants: []tenantDocument{}}, time.Now()
	for _, one := range list {
		keys, err := t.Keys(ctx, one.ID)
		if err != nil {
			return err
		}
		one.Limits = one.Limits.Or(tenant.DefaultLimits())
		shown := lists.Map(keys, func(k tenant.APIKey) tenantKeyDocument { return tenantKeyDocument{k, k.Valid(now)} })
		doc.Tenants = append(doc.Tenants, tenantDocument{one, tenantState(one), shown})
	}
	return a.emit(doc, func() {
		var rows [][]string
		for _, t := range doc.Tenants {
			expired := slices.DeleteFunc(slices.Clone(t.Keys), func(k tenantKeyDocument) bool { return k.Valid })
			rows = append(rows, []string{t.ID, t.State, strconv.Itoa(t.Weight), strconv.Itoa(len(t.Keys) - len(expired)), display.Time(t.Created), t.Name})
		}
		a.table(rows, "TENANT", "STATE", ">WEIGHT", ">KEYS", "CREATED", "NAME")
	})
}

func (a *app) tenantUsageCommand() *cobra.Command {
	filter := tenant.UsageFilter{}
	cmd := tenantsCommand("usage [ID]", "show the usage of tenants by day", toRead, func(ctx context.Context, t tenants, _ []string) error {
		q, err := queue.Open(ctx, t.log, queue.Config{Existing: true})
		if errors.Is(err, queue.ErrNoTables) {
			a.stderr.Printf("no usage is recorded: no host of this version has used the database\n")
		} else if err != nil {
			return err
		}
		doc, err := serve.UsageOf(ctx, t.log, t.Store, q, tenant.DefaultLimits(), filter)
		if err != nil {
			return err
		}
		return a.emit(doc, func() {
			const columns = "%-32s  %-10s  %10s  %16s  %10s  %11s  %11s\n"
			a.stdout.Printf(columns, "TENANT", "DAY", "RUNS", "FUEL", "EFFECTS", "EGRESS", "RECORDED")
			for _, one := range doc.Items {
				for _, d := range one.Days {
					a.stdout.Printf(columns, one.Tenant, d.Day, display.Digits(uint64(d.Runs)), display.Digits(uint64(d.Fuel)), display.Digits(uint64(d.Effects)), display.Size(uint64(d.EgressBytes)), display.Size(uint64(d.RecordedBytes)))
				}
				a.stdout.Printf("%-32s  has %s, %s", one.Tenant, display.Plural(int(one.Modules), "module"), display.SizeOf(one.ModuleBytes, one.Limits.Modules))
				if r := one.Recorded; r != nil {
					a.stdout.Printf("; recorded since midnight %s, in all %s", display.SizeOf(r.Today, one.Limits.RecordedPerDay), display.SizeOf(r.Bytes, one.Limits.Recorded))
					if r.Held > 0 {
						a.stdout.Printf("; in runs that have not ended %s", display.Size(uint64(r.Held)))
					}
				}
				a.stdout.Printf("\n")
			}
			if doc.Next != "" {
				a.stderr.Printf("there are more; for the next page: --after %s\n", doc.Next)
			}
		})
	}, a.outputFlag)
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		if filter.Days < 1 || filter.Days > queue.UsageDays || filter.Limit < 1 {
			return usagef("", "--days must be 1 to %d and --limit at least 1", queue.UsageDays)
		}
		if len(args) == 1 {
			filter.Tenant = args[0]
		}
		return nil
	}
	cmd.Flags().IntVar(&filter.Days, "days", tenant.DefaultUsageDays, "show the last `N` days, including today")
	cmd.Flags().IntVar(&filter.Limit, "limit", tenant.DefaultUsageTenants, "show at most `N` tenants")
	cmd.Flags().StringVar(&filter.After, "after", "", "show the tenants after `ID`, the last of the previous page")
	return cmd
}

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

// withTenants calls fn with the tenants of a database. Only toCreate takes one that no host has used.
func (f *hostFlags) withTenants(ctx context.Context, do access, fn func(tenants) error) (err error) {
	var keys []tenant.MasterKey
	if f.keyed {
		if keys, err = tenant.MasterKeys(f.keyFile); err != nil {
			return err
		}
		if len(keys) > 0 {
			keys = append(keys, f.more...)
		}
	}
	if do == toCreate && len(keys) == 0 {
		return tenant.ErrNoMasterKey // before a database without tenants is created
	}
	log, err := do.open(ctx, f.database)
	if err != nil {
		return err
	}
	defer log.Close()
	all, err := tenant.Open(ctx, log, tenant.Options{Masters: keys, Existing: do != toCreate})
	if err != nil {
		return err
	}
	return fn(tenants{all, log})
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
