package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/tenant"
)

const tenantHelp = `Commands for the operator of a host: who may use it, with which keys, and how much.

A tenant presents an API key, which is shown once and kept as a hash. What it has
(runs, secrets) is encrypted with a data key of its own, and that with the master
key, which is in a file (--key-file) or in the variable STARLING_MASTER_KEY and
never in the database.`

func (a *app) tenantCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "tenant",
		Short:   "who may use a host, and how much",
		Long:    tenantHelp,
		GroupID: groupHost,
		Args:    knownSubcommand,
		RunE:    showHelp,

		SuggestionsMinimumDistance: typos,
	}
	cmd.AddCommand(a.tenantCreateCommand(), a.tenantListCommand(), a.rotateKeyCommand(), a.revokeKeyCommand(),
		a.suspendCommand(), a.resumeTenantCommand(), a.limitsCommand(), a.tenantPolicyCommand(),
		a.tenantUsageCommand(), a.tenantModulesCommand(), a.trustCommand(), a.eraseCommand(), a.keygenCommand(), a.rewrapCommand())
	return cmd
}

// keyDocument is what "tenant create" and "tenant rotate-key" print with -o json.
type keyDocument struct {
	Tenant string `json:"tenant"`
	KeyID  string `json:"key_id"`
	Key    string `json:"key"`
}

// printKey prints an API key, the only time that anybody sees it.
func (a *app) printKey(k tenant.APIKey, key tenant.Value, output string) error {
	if output == outputJSON {
		return a.writeValue(keyDocument{Tenant: k.Tenant, KeyID: k.ID, Key: key.Reveal()})
	}
	a.stderr.printf("API key %s of tenant %s. It is not shown again:\n", k.ID, k.Tenant)
	err := a.stdout.printf("%s\n", key.Reveal())
	return err
}

const tenantCreateHelp = `Create a tenant and its first API key, which is printed on standard output and
cannot be asked for again. The id is part of the ids of its runs, and is never
used for another tenant, also not after this one was erased.`

func (a *app) tenantCreateCommand() *cobra.Command {
	var f hostFlags
	var name string
	var l limitFlags
	cmd := &cobra.Command{
		Use:     "create ID",
		Short:   "create a tenant and its first key",
		Long:    tenantCreateHelp,
		Example: "  starling-host tenant create beta --name 'Beta Ltd.' --key-file host.key",
		Args:    arguments(1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			one := tenant.Tenant{ID: args[0], Name: name, Weight: 1}
			l.apply(cmd, &one)
			return a.createTenant(cmd.Context(), f, one)
		},
	}
	f.addDatabase(cmd)
	f.addKey(cmd)
	outputFlag(cmd, &f.output)
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the tenant, for people")
	l.add(cmd)
	return cmd
}

func (a *app) createTenant(ctx context.Context, f hostFlags, one tenant.Tenant) error {
	if err := tenant.ValidID(one.ID); err != nil { // before there is a database of nobody
		return err
	}
	made := isNew(f.database)
	t, err := f.openTenants(ctx, toCreate)
	if err != nil {
		return err
	}
	defer t.log.Close()
	if made {
		a.stderr.printf("a new database: %s\n", f.database)
	}
	if one, err = t.Create(ctx, one); err != nil {
		return err
	}
	k, key, err := t.CreateKey(ctx, one.ID, "first")
	if err != nil {
		return err
	}
	return a.printKey(k, key, f.output)
}

const rotateKeyHelp = `Make a new API key for a tenant and print it on standard output. The keys before
it stay valid for a while (--grace), so that clients can change over.`

func (a *app) rotateKeyCommand() *cobra.Command {
	var f hostFlags
	var label string
	grace := 24 * time.Hour
	cmd := &cobra.Command{
		Use:     "rotate-key ID",
		Short:   "make a new key and let the old ones expire",
		Long:    rotateKeyHelp,
		Example: "  starling-host tenant rotate-key acme --grace 1h",
		Args:    arguments(1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if grace < 0 {
				return usagef("", "--grace must not be negative")
			}
			return f.withTenants(cmd.Context(), toChange, func(t tenants) error {
				k, key, err := t.RotateKey(cmd.Context(), args[0], label, grace)
				if err != nil {
					return err
				}
				return a.printKey(k, key, f.output)
			})
		},
	}
	f.addDatabase(cmd)
	outputFlag(cmd, &f.output)
	cmd.Flags().DurationVar(&grace, "grace", grace, "how long the keys before it stay valid")
	cmd.Flags().StringVar(&label, "label", "", "`TEXT` that tells the key from others")
	return cmd
}

const revokeKeyHelp = `Have one API key of a tenant refused from now on. The list of a tenant's keys is
in "tenant list -o json"; a key's id is the part between "sth_" and the next "_".`

func (a *app) revokeKeyCommand() *cobra.Command {
	var f hostFlags
	cmd := &cobra.Command{
		Use:     "revoke-key ID KEY-ID",
		Short:   "have a key refused",
		Long:    revokeKeyHelp,
		Example: "  starling-host tenant revoke-key acme \"$(cut -d _ -f 2 old-key.txt)\"",
		Args:    arguments(2, "ID", "KEY-ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.withTenants(cmd.Context(), toChange, func(t tenants) error {
				return t.RevokeKey(cmd.Context(), args[0], args[1])
			})
		},
	}
	f.addDatabase(cmd)
	outputFlag(cmd, &f.output)
	return cmd
}

func (a *app) suspendCommand() *cobra.Command {
	return a.simpleTenantCommand(&cobra.Command{
		Use:   "suspend ID",
		Short: "refuse a tenant's keys and stop its runs for the time being",
		Long: `Refuse the keys of a tenant and stop its runs until it is resumed. Its keys are
refused at once. Hosts see it within seconds: they stop the runs that they are making,
which go on from what is recorded when the tenant is resumed, and begin none that wait.
Its secrets and modules stay. To end its runs, cancel them.`,
		Example: "  starling-host tenant suspend acme",
	}, (*tenant.Store).Suspend)
}

func (a *app) resumeTenantCommand() *cobra.Command {
	return a.simpleTenantCommand(&cobra.Command{
		Use:     "resume ID",
		Short:   "take a suspended tenant's keys again",
		Long:    "Take the keys of a tenant again that was suspended.",
		Example: "  starling-host tenant resume acme",
	}, (*tenant.Store).Resume)
}

func (a *app) simpleTenantCommand(cmd *cobra.Command, do func(*tenant.Store, context.Context, string) error) *cobra.Command {
	var f hostFlags
	cmd.Args = arguments(1, "ID")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return f.withTenants(cmd.Context(), toChange, func(t tenants) error { return do(t.Store, cmd.Context(), args[0]) })
	}
	f.addDatabase(cmd)
	return cmd
}

const eraseHelp = `Erase a tenant: destroy its data key, its API keys, secrets, policy and list of
modules. Its runs become unreadable for everybody; their chains still validate.
With --prune those are removed as well. Modules that nobody else needs are removed
in any case. This cannot be undone.

Runs that were waiting end as cancelled, within seconds where a host serves, else
when one does. Nobody can read why. A run that is being made comes to its end.

Copies of the database that were made before still have the wrapped data key. To
make them unreadable, change the master key ("tenant rewrap") and destroy the old
one. A host that is running lets go of a data key with the tenant's last call.

So has a PostgreSQL server, in its WAL, in that of its standbys and in archives of
it, until these are gone, and in the file of the table tenant_data_key until that
is written anew: by this command, if its role owns the table, or else by VACUUM FULL.`

func (a *app) eraseCommand() *cobra.Command {
	var f hostFlags
	var yes, prune bool
	cmd := &cobra.Command{
		Use:     "erase ID",
		Short:   "destroy a tenant's keys and secrets for good",
		Long:    eraseHelp,
		Example: "  starling-host tenant erase gone --yes",
		Args:    arguments(1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return usagef("if that is meant: --yes", "erasing tenant %q cannot be undone", args[0])
			}
			if prune {
				setAside, err := a.giveUpSpare(f.database)
				if err != nil {
					return err
				}
				defer setAside()
			}
			return f.withTenants(cmd.Context(), toChange, func(t tenants) error { return a.erase(cmd.Context(), t, args[0], prune, f.output) })
		},
	}
	f.addDatabase(cmd)
	outputFlag(cmd, &f.output)
	cmd.Flags().BoolVar(&yes, "yes", false, "it is meant")
	cmd.Flags().BoolVar(&prune, "prune", false, "remove the tenant's runs as well")
	return cmd
}

// erasureDocument is what "tenant erase -o json" prints.
type erasureDocument struct {
	Tenant  string `json:"tenant"`
	Keys    int    `json:"keys"`
	Secrets int    `json:"secrets"`
	Modules int    `json:"modules"`
	Runs    int    `json:"runs"`

	CollectedModules int   `json:"collected_modules,omitempty"`
	CollectedBytes   int64 `json:"collected_bytes,omitempty"`

	Wiped *bool `json:"wiped,omitempty"` // see wipe
}

func (a *app) erase(ctx context.Context, t tenants, id string, prune bool, output string) error {
	var pruner eventlog.RunPruner
	if prune {
		pruner = t.log
	}
	e, err := t.Erase(ctx, id, pruner)
	if err != nil {
		return err
	}
	doc := erasureDocument{Tenant: id, Keys: e.Keys, Secrets: e.Secrets, Modules: e.Modules, Runs: e.Pruned.Runs,
		CollectedModules: e.Collected.Modules, CollectedBytes: e.Collected.Bytes, Wiped: a.wipe(ctx, t.log)}
	if output == outputJSON {
		return a.writeValue(doc)
	}
	a.stdout.printf("erased %s: its data key, %s, %s, %s; removed %s\n", id,
		plural(e.Keys, "API key"), plural(e.Secrets, "secret"), plural(e.Modules, "module"), plural(e.Pruned.Runs, "run"))
	a.printCollected(e.Collected)
	return nil
}

// whereToLook says how what was not found is listed.
func whereToLook(err error) string {
	command := "tenant list"
	if missing, ok := errors.AsType[*tenant.NotFoundError](err); ok {
		switch missing.What {
		case "secret":
			command = "secret list TENANT"
		case "API key":
			command = "tenant list -o json"
		case "module":
			command = "tenant modules TENANT"
		}
	}
	return "list what there is with: starling-host " + command
}

// explainTenant turns an error of package tenant into what is printed, or returns
// nil for another.
func explainTenant(err error) *failure {
	for _, e := range []struct {
		err  error
		hint string
	}{
		{tenant.ErrNoMasterKey, "name its file with --key-file, or make one with: starling-host tenant keygen FILE"},
		{tenant.ErrWrongMasterKey, "name the key that those of the tenants are under: --key-file, or key_file in host.yaml"},
		{tenant.ErrNoTables, "make its first tenant with: starling-host tenant create --help"},
		{tenant.ErrErased, ""},
		{tenant.ErrExists, ""},
		{tenant.ErrNotFound, whereToLook(err)},
		{tenant.ErrInvalid, ""},
	} {
		if errors.Is(err, e.err) {
			// The name of the package may stand behind what it is about.
			return &failure{code: exitUsage, message: strings.Replace(err.Error(), "tenant: ", "", 1), hint: e.hint}
		}
	}
	return nil
}
