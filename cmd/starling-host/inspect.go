package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/search"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/serve"
	"github.com/starling-host/starling/serve/queue"
)

const inspectHelp = `Show the runs of a database in a browser: what each did and when, its events,
conversation and HTTP requests, two runs side by side, a run as it grows, and the
verdicts of validate and replay. It executes runs again, offline, to show which functions
and source lines spent their fuel, which of a module were ever executed, and what another
version of a tool would have changed. The database is opened for reading only.

Standard output has the address. It contains a token that the page exchanges for a
cookie. STARLING_INSPECT_TOKEN sets a fixed token, which programs send as
"Authorization: Bearer TOKEN". To listen beyond this machine (--addr 0.0.0.0:8300),
set the token; the connection is not encrypted.`

// inspectToken names the environment variable with the token of "inspect".
const inspectToken = "STARLING_INSPECT_TOKEN"

func (a *app) inspectCommand() *cobra.Command {
	addr := "127.0.0.1:0"
	cmd := readCommand(&cobra.Command{
		Use:     "inspect [DB]",
		Short:   "show the runs of a database in a browser",
		Long:    inspectHelp,
		Example: "  starling-host inspect\n  starling-host inspect starling.db --addr 127.0.0.1:8300",
	}, func(ctx context.Context, log database, args []string) error {
		return a.inspect(ctx, log, args[0], addr)
	})
	cmd.Flags().StringVar(&addr, "addr", addr, "listen on this `HOST:PORT`; port 0 picks a free port")
	return cmd
}

func (a *app) inspect(ctx context.Context, log database, path, addr string) error {
	r, err := starling.Over(log, starling.Options{}).Replayer(ctx, starling.ReplayOptions{Engine: starling.EngineOptions{Warn: a.warn}})
	if err != nil {
		return err
	}
	defer r.Close()
	listener, token, err := listenToInspect(addr, os.Getenv(inspectToken))
	if err != nil {
		return err
	}
	view, err := eventViewOf(ctx, path, log)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	view.Replayer, view.Modules = replayerOf(r), log
	view.Ended = func(ctx context.Context, runID string, d *agent.Divergence) []string {
		return endedIn(ctx, log, runID, d, nil)
	}
	view.Executor = func(ctx context.Context, o serve.Execution) (x serve.Executor, err error) {
		var kind starling.EngineKind
		if o.Source != nil {
			kind = starling.Machine // which alone counts
		}
		r, err := starling.Over(log, starling.Options{}).Replayer(ctx, starling.ReplayOptions{
			Module: o.Module, Engine: starling.EngineOptions{Kind: kind, Warn: a.warn, Adjust: func(c *sandbox.Config) { c.Observers = o.Observers }},
		})
		if err == nil {
			x = serve.Executor{Replay: replayerOf(r), Close: r.Close}
		}
		return x, err
	}
	c := serve.LocalWebViewConfig{Scope: serve.OnlyView(view, token)}
	if !listener.Addr().(*net.TCPAddr).IP.IsUnspecified() { // which has too many names to know
		c.Origins = serve.OriginsOf("http://"+listener.Addr().String(), listener.Addr())
	}
	server, err := serve.NewLocalWebView(c)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	a.stdout.Printf("http://%s/sign-in#%s\n", listener.Addr(), url.PathEscape(token))
	a.stderr.Printf("showing %s, read-only; stop with Ctrl-C\n", named(path))
	return server.Serve(ctx, listener)
}

// eventViewOf returns the view of a whole database for a server.
func eventViewOf(ctx context.Context, path string, log database) (serve.View, error) {
	view := serve.View{
		Log: log, Title: named(path), Database: named(path),
		Checker: func(ctx context.Context, runID string) (eventlog.Report, error) {
			v, err := starling.Over(log, starling.Options{}).Validate(ctx, runID) // as the database is now
			return v.Report, cmp.Or(err, v.Err)
		},
	}
	q, err := serve.JobsIn(ctx, log)
	if q != nil {
		view.Operator, view.Jobs = &serve.Operator{Queue: q.Queue, Names: func(ctx context.Context, jobs []queue.Status) map[string]string {
			names := map[string]string{}
			for _, job := range jobs {
				run := search.Read(ctx, log, eventlog.RunSummary{RunID: job.RunID})
				names[job.RunID] = run.Name()
			}
			return names
		}}, q.Lookup
	}
	return view, err
}

// replayerOf returns a function that replays runs for a page.
func replayerOf(r *starling.Replayer) func(context.Context, string) (agent.Verdict, error) {
	return func(ctx context.Context, runID string) (agent.Verdict, error) {
		v, err := r.Replay(ctx, runID)
		switch {
		case err != nil:
			return v.Verdict, err
		case v.Corrupt != nil:
			return v.Verdict, v.Corrupt
		case v.Refused != nil:
			return v.Verdict, refusalOf(v)
		}
		return v.Verdict, nil
	}
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
