package main

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/registry"
	"github.com/starling-host/starling/host/tenant"
)

const tenantPolicyHelp = `Print a tenant's policy, or set it to what FILE says (- for standard input). The
tools of a tenant may do what the operator's policy and the tenant's both allow; a
tenant without one reaches no network. A run is under the policy that holds when
somebody begins to make it.

A tenant can set its own policy over HTTP, as long as the operator has not set one
here: that is held, and the tenant can only read it. With --open the tenant may
change it from then on; without FILE that is said of the policy as it is.

The last hundred versions are kept. --history lists them, with the digests by which
runs name the policy that held when they were accepted, and each decision the one
that made it ("show" prints them); --version prints one.`

func (a *app) tenantPolicyCommand() *cobra.Command {
	var f hostFlags
	var open, history bool
	var version int
	cmd := &cobra.Command{
		Use:     "policy ID [FILE]",
		Short:   "show or set what a tenant's tools may do",
		Long:    tenantPolicyHelp,
		Example: "  starling-host tenant policy acme policy.yaml",
		Args:    arguments(1, "ID", "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, do := open || len(args) == 2, toRead
			if set {
				do = toChange
			}
			if set && (history || version != 0) || history && version != 0 {
				return usagef(cmd.CommandPath()+" --help", "tenant policy: set it, list its --history or print a --version, one at a time")
			}
			return f.withTenants(cmd.Context(), do, func(t tenants) error {
				switch {
				case len(args) == 2:
					return a.setTenantPolicy(cmd.Context(), t, args[0], args[1], open)
				case open:
					return a.openTenantPolicy(cmd.Context(), t, args[0])
				case history:
					return a.listTenantPolicies(cmd.Context(), t, args[0])
				}
				return a.showTenantPolicy(cmd.Context(), t, args[0], version)
			})
		},
	}
	f.addDatabase(cmd)
	cmd.Flags().BoolVar(&open, "open", false, "let the tenant change it")
	cmd.Flags().BoolVar(&history, "history", false, "list the versions that are kept")
	cmd.Flags().IntVar(&version, "version", 0, "print version `N` and not the last")
	return cmd
}

// tenantPolicy returns the policy of a tenant, which must have one.
func tenantPolicy(ctx context.Context, t tenants, id string) (tenant.Policy, error) {
	if _, err := t.Tenant(ctx, id); err != nil {
		return tenant.Policy{}, err
	}
	p, err := t.Policy(ctx, id)
	if errors.Is(err, tenant.ErrNotFound) {
		return p, usagef(pasteable("starling-host tenant policy", id, "FILE"), "tenant %s has no policy, and its tools reach no network", id)
	}
	return p, err
}

// openTenantPolicy lets the tenant change the policy that it has.
func (a *app) openTenantPolicy(ctx context.Context, t tenants, id string) error {
	p, err := tenantPolicy(ctx, t, id)
	if err == nil {
		p, err = t.SetPolicy(ctx, id, p.Text, false)
	}
	if err != nil {
		return err
	}
	a.stderr.printf("tenant %s: policy version %d, %s\n", id, p.Version, whose(p))
	return nil
}

// whose says who may change a policy.
func whose(p tenant.Policy) string {
	if p.Held {
		return "held by the operator"
	}
	return "open to the tenant"
}

// listTenantPolicies prints the versions that are kept, the last one first.
func (a *app) listTenantPolicies(ctx context.Context, t tenants, id string) error {
	list, err := tenantPolicies(ctx, t, id)
	if err != nil {
		return err
	}
	a.stdout.printf("%-7s  %-24s  %-20s  %s\n", "VERSION", "SINCE", "STATE", "DIGEST")
	for _, p := range list {
		a.stdout.printf("%-7d  %-24s  %-20s  %s\n", p.Version, formatTime(p.Created.UnixNano()), whose(p), nameInLogs(p))
	}
	return nil
}

// tenantPolicies returns the versions of a tenant's policy, of which there must be one.
func tenantPolicies(ctx context.Context, t tenants, id string) ([]tenant.Policy, error) {
	list, err := t.Policies(ctx, id)
	if err == nil && len(list) == 0 {
		_, err = tenantPolicy(ctx, t, id)
	}
	return list, err
}

// nameInLogs is the digest by which runs name a version.
func nameInLogs(p tenant.Policy) string {
	if p.Text == "" {
		return "(no policy)"
	}
	parsed, err := policy.Parse("", []byte(p.Text))
	if err != nil {
		return "(cannot be read by this version of the program)"
	}
	return parsed.Digest().String()
}

// policyVersion returns one version of a tenant's policy; zero is the last.
func policyVersion(ctx context.Context, t tenants, id string, version int) (tenant.Policy, error) {
	if version == 0 {
		return tenantPolicy(ctx, t, id)
	}
	list, err := tenantPolicies(ctx, t, id)
	if err != nil {
		return tenant.Policy{}, err
	}
	i := slices.IndexFunc(list, func(p tenant.Policy) bool { return p.Version == version })
	if i < 0 {
		return tenant.Policy{}, usagef(pasteable("starling-host tenant policy --history", id),
			"tenant %s: version %d of the policy is not kept", id, version)
	}
	return list[i], nil
}

func (a *app) showTenantPolicy(ctx context.Context, t tenants, id string, version int) error {
	p, err := policyVersion(ctx, t, id, version)
	if err != nil {
		return err
	}
	a.stderr.printf("version %d, %s, %s\n", p.Version, formatTime(p.Created.UnixNano()), whose(p))
	_, err = io.WriteString(a.stdout.exact(), p.Text)
	return err
}

func (a *app) setTenantPolicy(ctx context.Context, t tenants, id, path string, open bool) error {
	name, input := path, "@"+path
	if path == "-" {
		name, input = "standard input", path
	}
	text, err := a.readInput(input, tenant.MaxPolicyBytes)
	if err != nil {
		return err
	}
	if _, err := policy.Parse(name, text); err != nil {
		return explainFile(err)
	}
	p, err := t.SetPolicy(ctx, id, string(text), !open)
	if err != nil {
		return err
	}
	a.stderr.printf("tenant %s: policy version %d, %s\n", id, p.Version, whose(p))
	return nil
}

func (a *app) tenantModulesCommand() *cobra.Command {
	var f hostFlags
	cmd := &cobra.Command{
		Use:     "modules ID",
		Short:   "list the modules of a tenant",
		Long:    "List the modules that a tenant has uploaded, with their digests.",
		Example: "  starling-host tenant modules acme",
		Args:    arguments(1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.withTenants(cmd.Context(), toRead, func(t tenants) error { return a.tenantModules(cmd.Context(), t, args[0]) })
		},
	}
	f.addDatabase(cmd)
	return cmd
}

func (a *app) tenantModules(ctx context.Context, t tenants, id string) error {
	if _, err := t.Tenant(ctx, id); err != nil {
		return err
	}
	list, err := t.Modules(ctx, id)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		a.stdout.printf("%-40s  %-7s  %9s  %-24s  %s\n", "NAME", "TRUSTED", "SIZE", "UPLOADED", "DIGEST")
	}
	for _, m := range list {
		a.stdout.printf("%-40s  %-7t  %9s  %-24s  %s\n", m.Name, m.Trusted, formatSize(uint64(m.Size)), formatTime(m.Uploaded.UnixNano()), m.Digest)
	}
	return nil
}

const trustHelp = `Vouch for a module of a tenant, so that it may run in the host's own process, which
saves 20 to 40 microseconds a call and gives up a layer of defence. The bytes that
were looked at are named: by the file that they are in, or by their digest, which
"tenant modules" prints. With --revoke the module is not trusted any more. A host
that serves takes note with the next call.`

func (a *app) trustCommand() *cobra.Command {
	var f hostFlags
	var revoke bool
	cmd := &cobra.Command{
		Use:     "trust ID MODULE FILE|DIGEST",
		Short:   "let a module run in the host's own process",
		Long:    trustHelp,
		Example: "  starling-host tenant trust acme dice dice.wasm",
		Args:    arguments(3, "ID", "MODULE", "FILE|DIGEST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			digest, err := digestOf(cmd.Context(), args[2])
			if err != nil {
				return err
			}
			return f.withTenants(cmd.Context(), toChange, func(t tenants) error {
				return t.TrustModule(cmd.Context(), args[0], args[1], digest, !revoke)
			})
		},
	}
	f.addDatabase(cmd)
	cmd.Flags().BoolVar(&revoke, "revoke", false, "take it back")
	return cmd
}

// digestOf returns the digest that a text is, or that of the module in a file.
func digestOf(ctx context.Context, ref string) (digest chain.Hash, err error) {
	if b, err := hex.DecodeString(ref); err == nil && len(b) == len(digest) {
		return chain.Hash(b), nil
	}
	module, err := registry.Open(ctx, ref)
	return chain.Sum(module.Wasm), err
}
