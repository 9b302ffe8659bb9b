package main

import (
	"context"
	"encoding/hex"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/serve/tenant"
)

func (a *app) tenantPolicyCommand() *cobra.Command {
	var f hostFlags
	var open, history bool
	var version int
	cmd := subcommand("policy ID [FILE]", "show or set the policy of a tenant", func(cmd *cobra.Command, args []string) error {
		set, do := open || len(args) == 2, toRead
		if set {
			do = toChange
		}
		if set && (history || version != 0) || history && version != 0 {
			return usagef(cmd.CommandPath()+" --help", "tenant policy: set it, list its --history or print a --version, one at a time")
		}
		return f.withTenants(cmd.Context(), do, func(t tenants) error {
			switch {
			case set:
				return a.setTenantPolicy(cmd.Context(), t, args[0], args[1:], open)
			case history:
				return a.listTenantPolicies(cmd.Context(), t, args[0])
			}
			return a.showTenantPolicy(cmd.Context(), t, args[0], version)
		})
	}, f.addDatabase)
	cmd.Flags().BoolVar(&open, "open", false, "let the tenant change its policy")
	cmd.Flags().BoolVar(&history, "history", false, "list the kept versions")
	cmd.Flags().IntVar(&version, "version", 0, "print version `N` instead of the last")
	return cmd
}

// tenantPolicies returns the versions of a tenant's policy that are kept, the last one
// first. There must be a policy.
func tenantPolicies(ctx context.Context, t tenants, id string) ([]tenant.Policy, error) {
	if _, err := t.Tenant(ctx, id); err != nil {
		return nil, err
	}
	list, err := t.Policies(ctx, id)
	if err == nil && len(list) == 0 {
		err = noTenantPolicy(id)
	}
	return list, err
}

func noTenantPolicy(id string) error {
	return usagef(display.Command("starling-host tenant policy", id, "FILE"), "tenant %s has no policy, and its tools reach no network", id)
}

// policyOwner describes who may change a policy.
func policyOwner(p tenant.Policy) string {
	if p.Held {
		return "held by the operator"
	}
	return "open to the tenant"
}

// listTenantPolicies prints the stored versions, with the digests that runs refer to.
func (a *app) listTenantPolicies(ctx context.Context, t tenants, id string) error {
	list, err := tenantPolicies(ctx, t, id)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, p := range list {
		digest := "(no policy)"
		if p.Text != "" {
			digest = "(cannot be read by this version of the program)"
			if parsed, err := policy.Parse("", []byte(p.Text)); err == nil {
				digest = parsed.Digest().String()
			}
		}
		rows = append(rows, []string{strconv.Itoa(p.Version), display.Time(p.Created), policyOwner(p), digest})
	}
	a.table(rows, "VERSION", "SINCE", "STATE", "DIGEST")
	return nil
}

// showTenantPolicy prints one version of a tenant's policy; zero is the last.
func (a *app) showTenantPolicy(ctx context.Context, t tenants, id string, version int) error {
	list, err := tenantPolicies(ctx, t, id)
	if err != nil {
		return err
	}
	i := 0
	if version != 0 {
		i = slices.IndexFunc(list, func(p tenant.Policy) bool { return p.Version == version })
	}
	if i < 0 {
		return usagef(display.Command("starling-host tenant policy --history", id), "tenant %s: version %d of the policy is not kept", id, version)
	}
	p := list[i]
	if version == 0 && p.Text == "" {
		return noTenantPolicy(id)
	}
	a.stderr.Printf("version %d, %s, %s\n", p.Version, display.Time(p.Created), policyOwner(p))
	_, err = io.WriteString(a.stdout.Exact(), p.Text)
	return err
}

// setTenantPolicy sets the policy of a tenant to the content of a file. Without a file it lets the
// tenant change its policy.
func (a *app) setTenantPolicy(ctx context.Context, t tenants, id string, file []string, open bool) error {
	var text []byte
	if len(file) == 0 {
		list, err := tenantPolicies(ctx, t, id)
		if err != nil {
			return err
		}
		if list[0].Text == "" {
			return noTenantPolicy(id)
		}
		text = []byte(list[0].Text)
	} else {
		name, input := file[0], "@"+file[0]
		if name == "-" {
			name, input = "standard input", "-"
		}
		var err error
		if text, err = a.readInput(ctx, input, tenant.MaxPolicyBytes); err != nil {
			return err
		}
		if _, err := policy.Parse(name, text); err != nil {
			return explainFile(err)
		}
	}
	p, err := t.SetPolicy(ctx, id, string(text), !open)
	if err != nil {
		return err
	}
	return a.stderr.Printf("tenant %s: policy version %d, %s\n", id, p.Version, policyOwner(p))
}

func (a *app) tenantModulesCommand() *cobra.Command {
	return tenantsCommand("modules ID", "list the modules of a tenant", toRead, func(ctx context.Context, t tenants, args []string) error {
		if _, err := t.Tenant(ctx, args[0]); err != nil {
			return err
		}
		list, err := t.Modules(ctx, args[0])
		if err != nil {
			return err
		}
		a.table(lists.Map(list, func(m tenant.Module) []string {
			return []string{m.Name, strconv.FormatBool(m.Trusted), display.Size(uint64(m.Size)), display.Time(m.Uploaded), m.Digest.String()}
		}), "NAME", "TRUSTED", ">SIZE", "UPLOADED", "DIGEST")
		return nil
	})
}

func (a *app) trustCommand() *cobra.Command {
	var revoke bool
	cmd := tenantsCommand("trust ID MODULE FILE|DIGEST", "let a module run in the host's own process", toChange, func(ctx context.Context, t tenants, args []string) error {
		var digest canon.Hash
		if b, err := hex.DecodeString(args[2]); err == nil && len(b) == len(digest) {
			digest = canon.Hash(b)
		} else {
			module, err := artifact.Finder{}.Find(ctx, args[2])
			if err != nil {
				return err
			}
			digest = canon.Sum(module.Wasm)
		}
		return t.TrustModule(ctx, args[0], args[1], digest, !revoke)
	})
	cmd.Flags().BoolVar(&revoke, "revoke", false, "end the trust")
	return cmd
}
