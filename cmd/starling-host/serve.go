package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/serve"
	"github.com/starling-host/starling/serve/gateway"
)

func (a *app) readyCommand() *cobra.Command {
	var path string
	cmd := subcommand("ready", "check whether a host accepts runs", func(cmd *cobra.Command, _ []string) error {
		file, err := serve.LoadFile(path)
		if err != nil {
			return explainFile(err)
		}
		if err := file.Ready(cmd.Context()); err != nil {
			return &failure{code: exitFailed, message: starling.PlainError(err), hint: display.Command("starling-host doctor --config", path)}
		}
		return a.stdout.Printf("ready\n")
	})
	cmd.Flags().StringVar(&path, "config", "", "`FILE` that the host serves")
	_ = cmd.MarkFlagRequired("config")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

type serveFlags struct {
	config   string
	dev      bool
	listen   string
	database string
	policy   string
	agents   []string
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := subcommand("serve", "serve tenants over HTTP", func(cmd *cobra.Command, _ []string) error {
		file, err := f.file(cmd.Flags().Changed)
		if err != nil {
			return err
		}
		outliveReaders()
		logger := slog.New(slog.NewTextHandler(a.stderr.Lines(), nil))
		h, err := serve.Open(cmd.Context(), file, serve.Options{Development: f.dev, Version: agent.Version(), Logger: logger})
		if err != nil {
			return err
		}
		defer h.Close()
		a.announce(h, file)
		return h.Serve(cmd.Context())
	})
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "`FILE` with the host's configuration")
	flags.BoolVar(&f.dev, "dev", false, "serve one tenant on this machine, without a file")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8300", "listen on this `ADDRESS`, HOST:PORT or unix:PATH; requires --dev")
	flags.StringVar(&f.database, "db", defaultDatabase, "use this `DB`; requires --dev")
	flags.StringVar(&f.policy, "policy", "", "`FILE` with the policy of the operator and the tenant; without it tools reach no network, and the tenant keeps the policy that it has; requires --dev")
	flags.StringArrayVar(&f.agents, "agent", nil, "offer the agent in `FILE`; may be repeated; requires --dev")
	return cmd
}

// file returns the description of the host in the flags.
func (f *serveFlags) file(given func(flag string) bool) (*serve.File, error) {
	if f.dev == (f.config != "") {
		return nil, usagef("starling-host serve --dev", "serve: give --config FILE or --dev, and not both")
	}
	if !f.dev {
		for _, name := range []string{"listen", "db", "policy", "agent"} {
			if given(name) {
				return nil, usagef("set it in "+f.config, "serve: --%s requires --dev", name)
			}
		}
		file, err := serve.LoadFile(f.config)
		if err != nil {
			return nil, explainFile(err)
		}
		return file, nil
	}
	at, err := serve.ParseAddress(f.listen)
	if err != nil {
		return nil, usagef("", "--listen: %v", err)
	}
	if !at.Local() {
		return nil, usagef("starling-host serve --config host.yaml", "--listen %s: --dev listens on this machine only", f.listen)
	}
	return serve.DevelopmentFile(at, f.database, f.policy, f.agents...), nil
}

// announce prints the addresses of the host, and the required keys.
func (a *app) announce(h *serve.Host, file *serve.File) {
	a.stdout.Printf("API        %s/api/v1\n", h.Origin)
	if !file.Inspector.Off {
		a.stdout.Printf("inspector  %s/inspect/\n", h.Origin)
	}
	if !file.Metrics.Off {
		a.stdout.Printf("metrics    %s/metrics%s\n", h.Origin, metricsReaders(file))
	}
	if name := file.Operator.KeyEnv; name != "" && !file.Inspector.Off {
		a.stdout.Printf("operator   %s/inspect/queue  with the key in %s\n", h.Origin, name)
	}
	a.stdout.Printf("MCP        %s/mcp\n", h.Origin)
	if h.Key != "" {
		if strings.HasPrefix(h.Origin, "http") {
			a.stdout.Printf("Claude     claude mcp add --transport http starling %s/mcp --header %s\n", h.Origin, display.ShellWord("Authorization: Bearer "+h.Key))
		}
		a.stdout.Printf("key        %s\n", h.Key)
	}
}

// metricsReaders describes who may read /metrics, unless everyone may.
func metricsReaders(f *serve.File) string {
	name := cmp.Or(f.Metrics.KeyEnv, f.Operator.KeyEnv)
	switch {
	case f.Metrics.Open:
		return ""
	case name == "":
		return "  to no client: name the variable with a key, as in metrics: {key_env: STARLING_METRICS_KEY}"
	}
	return "  with the key in " + name
}

// inspectToken names the environment variable with the token of "inspect".
const inspectToken = "STARLING_INSPECT_TOKEN"

func (a *app) inspectCommand() *cobra.Command {
	addr := "127.0.0.1:0"
	cmd := readCommand("inspect [DB]", "show the runs of a database in a browser", func(ctx context.Context, log database, args []string) error {
		listener, token, err := listenToInspect(addr, os.Getenv(inspectToken))
		if err != nil {
			return err
		}
		shown, err := databaseOf(ctx, args[0], log)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		view, err := gateway.NewWebView(ctx, *shown, gateway.WebOptions{Token: token, Origins: gateway.OriginsOf(listener.Addr()), Warn: a.warn})
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		defer view.Close()
		a.stdout.Printf("http://%s/sign-in#%s\n", listener.Addr(), url.PathEscape(token))
		a.stderr.Printf("showing %s, read-only; stop with Ctrl-C\n", named(args[0]))
		return view.Serve(ctx, listener)
	})
	cmd.Flags().StringVar(&addr, "addr", addr, "listen on this `HOST:PORT`; port 0 picks a free port")
	return cmd
}

// databaseOf returns an open database for a reader, with its queue if this program can read one.
func databaseOf(ctx context.Context, path string, log database) (*gateway.Database, error) {
	shown := &gateway.Database{Log: log, Name: named(path)}
	q, err := serve.JobsIn(ctx, log)
	if q != nil {
		shown.Queue = q.Queue
	}
	return shown, err
}

// listenToInspect listens, and returns the token that opens the view. To listen beyond this
// machine, the operator must have chosen one.
func listenToInspect(addr, token string) (net.Listener, string, error) {
	at, err := serve.ParseAddress(addr)
	if err != nil || at.Network != "tcp" {
		return nil, "", usagef("", "--addr: %q is not an address such as 127.0.0.1:8300", addr)
	}
	if token == "" && !at.Local() {
		return nil, "", usagef("set "+inspectToken+", or omit --addr", "--addr: %s can be reached from other machines, and no token is set", addr)
	}
	listener, err := at.Listen()
	if err != nil {
		return nil, "", usagef("", "--addr: %v", err)
	}
	return listener, cmp.Or(token, rand.Text()), nil
}
