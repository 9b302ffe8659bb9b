package main

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/serve/gateway"
)

func (a *app) mcpTrustCommand() *cobra.Command {
	yes := false
	cmd := subcommand("trust SERVER", "accept an MCP server's changed tools", func(cmd *cobra.Command, args []string) error {
		pins, err := gateway.DefaultPins()
		if err != nil {
			return err
		}
		name, changes, accept, err := pins.Changes(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if len(changes) == 0 {
			return a.stdout.Printf("%s is unchanged since it was accepted\n", name)
		}
		for _, c := range changes {
			a.stdout.Printf("%s %s\n", c.Tool, c.What)
			for _, p := range c.Parts {
				a.stdout.Printf("  %s\n", strings.TrimPrefix(p.Pointer, "/"))
				a.said("-", p.Before)
				a.said("+", p.Now)
			}
		}
		if !yes && a.confirm(cmd.Context(), "Accept this?", "y", "yes") != policy.Accept {
			return &failure{code: exitRefused, message: "nothing was accepted"}
		}
		if err := accept(); err != nil {
			return err
		}
		return a.stdout.Printf("%s is accepted: %s\n", name, display.Plural(len(changes), "change"))
	})
	cmd.Args = cobra.ExactArgs(1)
	cmd.Flags().BoolVar(&yes, "yes", false, "accept without a question")
	return cmd
}

// said prints a JSON value with a sign before each line. A text has its own lines, between
// quotes.
func (a *app) said(sign, doc string) {
	if doc == "" {
		return
	}
	var text string
	if json.Unmarshal([]byte(doc), &text) == nil {
		doc = `"` + text + `"`
	}
	for _, line := range strings.Split(doc, "\n") {
		a.stdout.Printf("    %s %s\n", sign, display.EscapeRunes(line, display.Visible))
	}
}

func (a *app) mcpVerifyCommand() *cobra.Command {
	f, all := mcpFlags{servers: []string{""}}, false
	cmd := readCommand("verify [DB]", "compare how a server answers recorded calls now", func(ctx context.Context, log database, args []string) error {
		servers, err := f.parsedServers()
		if err != nil {
			return err
		}
		recording, err := gateway.NewRecording(ctx, log, named(args[0]), a.warn)
		if err != nil {
			return err
		}
		defer recording.Close()
		v, err := recording.Verify(ctx, servers[0], all)
		if err != nil {
			return err
		}
		return cmp.Or(a.emit(v, func() {
			a.printDifferences(v.Changes, "descriptions and schemas of the called tools", &v.Runs, "not sent (--all also sends calls of tools that may change something)")
			if len(v.Others) > 0 {
				a.stdout.Printf("tools without a recorded call: %s\n", strings.Join(v.Others, ", "))
			}
		}), unless(v.Same, exitFailed))
	}, a.outputFlag)
	cmd.Flags().StringVar(&f.servers[0], "server", "", "send the calls to this MCP server, `[NAME=]COMMAND|URL`, with the NAME of the recording")
	f.addServers(cmd.Flags())
	cmd.Flags().BoolVar(&all, "all", false, "also send calls of tools that may change something")
	return cmd
}

func (a *app) mcpLoginCommand() *cobra.Command {
	var login mcptool.Login
	variable := ""
	cmd := subcommand("login URL", "log in to a remote MCP server, with OAuth", func(cmd *cobra.Command, args []string) error {
		if login.ClientSecret = os.Getenv(variable); variable != "" && (login.ClientID == "" || login.ClientSecret == "") {
			return usagef("", "--client-secret-env requires a variable that is set, and --client-id")
		}
		login.Show = func(address string) {
			a.stderr.Printf("open this address in a browser on this machine, and allow the access:\n%s\n", address)
		}
		pins, err := gateway.DefaultPins()
		if err != nil {
			return err
		}
		name, err := pins.Login(cmd.Context(), args[0], login)
		if err != nil {
			return err
		}
		return a.stdout.Printf("%s is logged in\n", name)
	})
	cmd.Args = cobra.ExactArgs(1)
	cmd.Flags().StringVar(&login.ClientID, "client-id", "", "the `ID` of a client that you have registered")
	cmd.Flags().StringVar(&variable, "client-secret-env", "", "the `VARIABLE` that has the client's secret")
	return cmd
}
