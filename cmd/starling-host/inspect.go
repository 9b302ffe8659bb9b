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

	"github.com/starling-host/starling/serve"
	"github.com/starling-host/starling/serve/gateway"
)

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
