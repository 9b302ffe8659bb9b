package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/host/hostfile"
)

const serveHelp = `Serve tenants over HTTP: the API that spec/openapi.yaml describes, a web view of
runs, a server of the Model Context Protocol, and metrics for Prometheus.

FILE says where to listen, where the database is, and what tenants may use;
spec/host.schema.json describes it. With a file as database nothing else is
needed; with postgres://... any number of hosts share one database and its queue,
and a run goes on elsewhere when its host dies.

Spans go to a collector of OpenTelemetry if FILE has traces, or if the variable
OTEL_EXPORTER_OTLP_ENDPOINT is set.

With --dev no file is needed: the database and its key are starling.db and
starling.key, and there is one tenant, "dev". Its key is printed, and stays the
same for this database.

SIGTERM has the host take no more work, finish what it has or hand it back, and
end; a second one ends it at once.
SIGHUP has it read the master keys, the operator's policy and the certificate
again.`

const serveExample = `  starling-host serve --dev
  starling-host serve --dev --agent examples/agent/agent.yaml --listen 127.0.0.1:9000
  starling-host serve --config host.yaml`

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
		GroupID: groupHost,
		Args:    arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags().Changed); err != nil {
				return err
			}
			file, err := f.file()
			if err != nil {
				return err
			}
			return a.serve(cmd.Context(), file, f.dev)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "`FILE` that says how to serve")
	flags.BoolVar(&f.dev, "dev", false, "serve one tenant on this machine, without a file")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8300", "`ADDRESS` of --dev, HOST:PORT or unix:PATH")
	flags.StringVar(&f.database, "db", defaultDatabase, "`DB` of --dev")
	flags.StringVar(&f.policy, "policy", "", "`FILE` with the policy of --dev, the operator's and the tenant's; without it tools reach no network, and the tenant keeps what policy it has")
	flags.StringArrayVar(&f.agents, "agent", nil, "`FILE` of an agent of --dev; may be repeated")
	return cmd
}

// check refuses flags that do not belong together: one that is ignored is taken to
// hold.
func (f *serveFlags) check(given func(flag string) bool) error {
	if f.dev == (f.config != "") {
		return usagef("starling-host serve --dev", "serve: give --config FILE or --dev, and not both")
	}
	if f.dev {
		return nil
	}
	for _, name := range []string{"listen", "db", "policy", "agent"} {
		if given(name) {
			return usagef("it is the file that says this: "+f.config, "serve: --%s is of --dev", name)
		}
	}
	return nil
}

// file returns what the flags say of the host.
func (f *serveFlags) file() (*hostfile.File, error) {
	if f.dev {
		return f.development()
	}
	file, err := hostfile.Load(f.config)
	if err != nil {
		return nil, explainFile(err)
	}
	return file, nil
}

func (f *serveFlags) development() (*hostfile.File, error) {
	at, err := hostfile.ParseAddress(f.listen)
	if err != nil {
		return nil, usagef("", "--listen: %v", err)
	}
	if !at.Local() {
		return nil, usagef("write a file, with tls", "--listen %s: with --dev nobody else may reach the host", f.listen)
	}
	key := strings.TrimSuffix(f.database, ".db") + ".key"
	if onServer(f.database) {
		key = "starling.key"
	}
	return &hostfile.File{
		Path: "the flags", Listen: at, Database: f.database, KeyFile: key, Policy: f.policy, Agents: f.agents,
		Metrics: hostfile.Metrics{Open: true}, // of the one tenant that there is
	}, nil
}

func (a *app) serve(ctx context.Context, file *hostfile.File, dev bool) error {
	defer relaxCollector()()
	h := &host{app: a, file: file, dev: dev, logger: slog.New(slog.NewTextHandler(a.stderr.lines(), nil))}
	defer h.close()
	if err := h.open(ctx); err != nil {
		return err
	}
	return h.serve(ctx)
}

// announce prints where the host can be reached, and with which key.
func (h *host) announce(key string) {
	h.app.stdout.printf("API        %s/api/v1\n", h.origin)
	if !h.file.Inspector.Off {
		h.app.stdout.printf("inspector  %s/inspect/\n", h.origin)
	}
	if !h.file.Metrics.Off {
		h.app.stdout.printf("metrics    %s/metrics%s\n", h.origin, metricsDoor(h.file))
	}
	if name := h.file.Operator.KeyEnv; name != "" && !h.file.Inspector.Off {
		h.app.stdout.printf("operator   %s/inspect/queue  with the key in %s\n", h.origin, name)
	}
	h.app.stdout.printf("MCP        %s/mcp\n", h.origin)
	if key != "" {
		h.app.stdout.printf("key        %s\n", key)
	}
}

// metricsDoor says who may read /metrics, unless everybody may.
func metricsDoor(f *hostfile.File) string {
	name := cmp.Or(f.Metrics.KeyEnv, f.Operator.KeyEnv)
	switch {
	case f.Metrics.Open:
		return ""
	case name == "":
		return "  to nobody: name the variable with a key, as in metrics: {key_env: STARLING_METRICS_KEY}"
	}
	return "  with the key in " + name
}

// keyIn returns the key in the variable that a part of host.yaml names, if it names one.
func (h *host) keyIn(part, variable string) (string, error) {
	if variable == "" {
		return "", nil
	}
	key := os.Getenv(variable)
	if key == "" {
		return "", h.wrong(fmt.Errorf("the variable %s is empty, and %s.key_env asks for the key in it", variable, part), "", part, "key_env")
	}
	return key, nil
}
