package main

import (
	"cmp"
	"context"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/serve"
)

const serveHelp = `Serve tenants over HTTP: the API that spec/openapi.yaml describes, a web view of
runs, a server of the Model Context Protocol, and metrics for Prometheus.

FILE, a host.yaml, sets the address, the database and the limits of tenants;
spec/host.schema.json describes it. The database may be a file. With postgres://...
any number of hosts share one database and its queue, and if a host dies, another
continues its runs.

Spans go to an OpenTelemetry collector if FILE has traces, or if the variable
OTEL_EXPORTER_OTLP_ENDPOINT is set.

--dev needs no file: the database and its master key are starling.db and starling.key,
which only its owner may read, and there is one tenant, "dev". Its key is derived from
the master key, so it stays the same. It is printed with a command that connects an
assistant.

On SIGTERM the host accepts no more work, finishes its runs or returns them to the
queue, and exits. A second SIGTERM ends it at once. On SIGHUP it reloads the master
keys, the operator's policy and the certificate.`

const serveExample = `  starling-host serve --dev
  starling-host serve --dev --agent examples/agent/agent.yaml --listen 127.0.0.1:9000
  starling-host serve --config host.yaml`

const readyHelp = `Check whether the host of FILE on this machine accepts runs, as a health check for
containers and supervisors. The exit code is 0 if it does, and 1 if it does not or if
no host answers.`

func (a *app) readyCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:     "ready",
		Short:   "check whether a host accepts runs",
		Long:    readyHelp,
		Example: "  starling-host ready --config host.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := serve.LoadFile(path)
			if err != nil {
				return explainFile(err)
			}
			if err := file.Ready(cmd.Context()); err != nil {
				return &failure{code: exitFailed, message: starling.PlainError(err), hint: display.Command("starling-host doctor --config", path)}
			}
			a.stdout.Printf("ready\n")
			return nil
		},
	}
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
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "serve tenants over HTTP",
		Long:    serveHelp,
		Example: serveExample,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags().Changed); err != nil {
				return err
			}
			file, err := f.file()
			if err != nil {
				return err
			}
			outliveReaders()
			return a.serve(cmd.Context(), file, f.dev)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "`FILE` with the host's configuration")
	flags.BoolVar(&f.dev, "dev", false, "serve one tenant on this machine, without a file")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8300", "listen on this `ADDRESS`, HOST:PORT or unix:PATH; requires --dev")
	flags.StringVar(&f.database, "db", defaultDatabase, "use this `DB`; requires --dev")
	flags.StringVar(&f.policy, "policy", "", "`FILE` with the policy of the operator and the tenant; without it tools reach no network, and the tenant keeps the policy that it has; requires --dev")
	flags.StringArrayVar(&f.agents, "agent", nil, "offer the agent in `FILE`; may be repeated; requires --dev")
	return cmd
}

// check refuses flags that exclude each other, instead of ignoring one of them.
func (f *serveFlags) check(given func(flag string) bool) error {
	if f.dev == (f.config != "") {
		return usagef("starling-host serve --dev", "serve: give --config FILE or --dev, and not both")
	}
	if f.dev {
		return nil
	}
	for _, name := range []string{"listen", "db", "policy", "agent"} {
		if given(name) {
			return usagef("set it in "+f.config, "serve: --%s requires --dev", name)
		}
	}
	return nil
}

// file returns the description of the host in the flags.
func (f *serveFlags) file() (*serve.File, error) {
	if !f.dev {
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

func (a *app) serve(ctx context.Context, file *serve.File, dev bool) error {
	logger := slog.New(slog.NewTextHandler(a.stderr.Lines(), nil))
	h, err := serve.Open(ctx, file, serve.Options{Development: dev, Version: agent.Version(), Logger: logger})
	if err != nil {
		return err
	}
	defer h.Close()
	a.announce(h, file)
	return h.Serve(ctx)
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
