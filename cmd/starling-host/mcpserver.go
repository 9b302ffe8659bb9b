package main

import (
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

const mcpTrustHelp = `Show how an MCP server's descriptions of its tools have changed since they were
accepted, value by value. Then ask whether to accept them; --yes accepts without
asking.

"starling-host mcp --server" accepts a server when it first sees it. Later it
leaves out tools that are new or described differently: a description is an instruction
to the model, and you have not read this one. SERVER is the prefix of its tools, to
compare with its last connection, or a command or URL as for --server, to connect now.`

func (a *app) mcpTrustCommand() *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:     "trust SERVER",
		Short:   "accept an MCP server's changed tools",
		Long:    mcpTrustHelp,
		Example: "  starling-host mcp trust everything\n  starling-host mcp trust 'npx -y @modelcontextprotocol/server-everything'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.mcpTrust(cmd.Context(), args[0], yes)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "accept without a question")
	return cmd
}

func (a *app) mcpTrust(ctx context.Context, text string, yes bool) error {
	pins, err := gateway.DefaultPins()
	if err != nil {
		return err
	}
	name, changes, accept, err := pins.Changes(ctx, text)
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		a.stdout.Printf("%s is unchanged since it was accepted\n", name)
		return nil
	}
	for _, c := range changes {
		a.stdout.Printf("%s %s\n", c.Tool, c.What)
		for _, p := range c.Parts {
			a.stdout.Printf("  %s\n", strings.TrimPrefix(p.Pointer, "/"))
			a.said("-", p.Before)
			a.said("+", p.Now)
		}
	}
	if !yes && a.confirm(ctx, "Accept this?", "y", "yes") != policy.Accept {
		return &failure{code: exitRefused, message: "nothing was accepted"}
	}
	if err := accept(); err != nil {
		return err
	}
	a.stdout.Printf("%s is accepted: %s\n", name, display.Plural(len(changes), "change"))
	return nil
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

const mcpLoginHelp = `Log in to a remote MCP server with OAuth. The command prints an address. Open it in a
browser on this machine and allow the access within five minutes. After that
"starling-host mcp --server URL" sends the issued token and refreshes it. Write URL
exactly as for --server: the token is only valid for this URL.

The token is stored beside servers.json, in a file that only you can read. It never
appears in a database, message or pin.

If the authorization server does not register clients, register one yourself, with the
redirect address http://127.0.0.1/callback, and pass its id with --client-id. Its
secret, if any, comes from the variable of --client-secret-env.`

func (a *app) mcpLoginCommand() *cobra.Command {
	var login mcptool.Login
	variable := ""
	cmd := &cobra.Command{
		Use:     "login URL",
		Short:   "log in to a remote MCP server, with OAuth",
		Long:    mcpLoginHelp,
		Example: "  starling-host mcp login https://mcp.example.com/mcp",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
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
			a.stdout.Printf("%s is logged in\n", name)
			return nil
		},
	}
	cmd.Flags().StringVar(&login.ClientID, "client-id", "", "the `ID` of a client that you have registered")
	cmd.Flags().StringVar(&variable, "client-secret-env", "", "the `VARIABLE` that has the client's secret")
	return cmd
}
