package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/serve/tenant"
)

func (a *app) secretCommand() *cobra.Command {
	return parent("secret", "secrets that a tenant's tools send and never see", a.secretSetCommand(), a.secretListCommand(),
		tenantsCommand("delete TENANT NAME", "delete a secret", toChange, func(ctx context.Context, t tenants, args []string) error {
			return t.DeleteSecret(ctx, args[0], args[1])
		}))
}

func (a *app) secretSetCommand() *cobra.Command {
	var f hostFlags
	var sec tenant.Secret
	place := string(tenant.PlaceHeader)
	cmd := subcommand("set TENANT NAME", "store a secret", func(cmd *cobra.Command, args []string) error {
		sec.Name, sec.Place = args[1], tenant.Place(place)
		ctx := cmd.Context()
		if len(sec.Audience) == 0 {
			return usagef("name the hosts that may receive it: --host api.example.com", "secret set: --host is missing")
		}
		return f.withTenants(ctx, toChange, func(t tenants) error {
			if _, err := t.DataKey(ctx, args[0]); err != nil { // before a value is typed in vain
				return err
			}
			value, err := a.readSecret(ctx, sec.Name)
			if err != nil {
				return err
			}
			return t.SetSecret(ctx, args[0], sec, value)
		})
	}, f.addDatabase, f.addKey)
	cmd.Args = noValue
	cmd.Flags().StringSliceVar(&sec.Audience, "host", nil, "`HOST` that it may be sent to, or .SUFFIX; may be repeated")
	cmd.Flags().Var(once(choice(&place, string(tenant.PlaceHeader), string(tenant.PlaceQuery), string(tenant.PlaceBody))), "in", "the part of a request that may contain it")
	return cmd
}

// once is a value that may be given one time. A second one would silently replace the first.
func once(v *flagValue) *flagValue {
	given, set := false, v.set
	v.set = func(s string) error {
		if given {
			return errors.New("--in is given twice; store the secret again under another name for the second place")
		}
		given = true
		return set(s)
	}
	return v
}

// noValue refuses a value on the command line, without repeating it.
func noValue(cmd *cobra.Command, args []string) error {
	if len(args) > 2 || len(args) == 2 && strings.ContainsAny(args[1], "=:") {
		return usagef("omit it to be prompted, or pass it on standard input: starling-host secret set TENANT NAME --host HOST < FILE",
			"secret set: a value on the command line can be read by every user of this machine; change it, it may be known already")
	}
	return arguments(cmd, args)
}

// readSecret asks for a value at a terminal, and reads it from anything else.
func (a *app) readSecret(ctx context.Context, name string) (tenant.Value, error) {
	if f, ok := a.stdin.(*os.File); ok && terminal.Is(f) {
		a.stderr.Printf("value of %s: ", name)
		b, err := terminal.ReadHidden(ctx, f)
		a.stderr.Printf("\n")
		return tenant.NewValue(string(b)), err
	}
	b, err := await.Do(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(a.stdin, tenant.MaxSecretBytes+2+1)) })
	if err != nil {
		return tenant.Value{}, fmt.Errorf("standard input: %w", err)
	}
	b = bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
	switch {
	case len(b) == 0:
		return tenant.Value{}, usagef("", "secret set: standard input is empty")
	case len(b) > tenant.MaxSecretBytes:
		return tenant.Value{}, usagef("", "secret set: the value has more than %d bytes", tenant.MaxSecretBytes)
	}
	return tenant.NewValue(string(b)), nil
}

func (a *app) secretListCommand() *cobra.Command {
	return tenantsCommand("list TENANT", "list the secrets of a tenant, without their values", toRead, func(ctx context.Context, t tenants, args []string) error {
		if _, err := t.Tenant(ctx, args[0]); err != nil {
			return err
		}
		list, err := t.Secrets(ctx, args[0])
		if err != nil {
			return err
		}
		return a.emit(secretsDocument{append([]tenant.Secret{}, list...)}, func() {
			for _, s := range list {
				a.stdout.Printf("%-24s  %-6s  %-24s  %s\n", s.Name, s.Place, display.Time(s.Updated), strings.Join(s.Audience, " "))
			}
		})
	}, a.outputFlag)
}

// secretsDocument is the output of "secret list -o json".
type secretsDocument struct {
	Secrets []tenant.Secret `json:"secrets"`
}
