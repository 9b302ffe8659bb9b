package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/hint"
	"github.com/starling-host/starling/internal/lists"
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

func (a *app) mcpConfigCommand() *cobra.Command {
	var f mcpFlags
	var setup gateway.Setup
	cmd := subcommand("config ASSISTANT [DB]", "print the configuration for an assistant", func(cmd *cobra.Command, args []string) error {
		if f.listen != "" {
			setup.URL = "http://" + f.listen + "/mcp"
		}
		if _, _, err := setup.For(args[0]); err != nil { // before anything is built
			return usagef(hint.Of(err), "%v", err)
		}
		refs, dbs, err := f.refs(args[1:])
		if err != nil {
			return err
		}
		if f.listen != "" {
			if at, err := f.address(); err != nil {
				return err
			} else if strings.HasSuffix(at.Address, ":0") {
				return usagef("--listen 127.0.0.1:8400", "--listen: the configuration must name the port, and %s picks any free port", f.listen)
			}
		}
		options, err := f.options()
		if err != nil {
			return err
		}
		for _, where := range slices.DeleteFunc(append([]string{f.replay}, dbs...), func(where string) bool { return where == "" }) {
			log, err := f.read.open(cmd.Context(), where)
			if err != nil {
				return err
			}
			_ = log.Close()
		}
		var built map[string]string
		built, setup.Needs, err = gateway.Prepare(cmd.Context(), refs, f.servers, options, func(ref string) {
			a.stderr.Printf("built %s; run this command again after you change it\n", ref)
		})
		if err != nil {
			return err
		}
		if setup.Command, err = os.Executable(); err != nil {
			return err
		}
		if setup.Args, err = f.commandLine(cmd, refs, dbs, built); err != nil {
			return err
		}
		where, text, err := setup.For(args[0])
		if err != nil {
			return err
		}
		if f.listen != "" {
			a.stderr.Printf("start the server: starling-host")
			for _, word := range setup.Args {
				a.stderr.Printf(" %s", display.ShellWord(word))
			}
			a.stderr.Printf("\n")
		}
		a.stderr.Printf("%s:\n", where)
		_, err = fmt.Fprintln(a.stdout.Lines(), text)
		return err
	}, f.add)
	cmd.ValidArgs = gateway.Assistants()
	cmd.Flags().StringVar(&setup.Name, "name", "starling", "`NAME` of the server in the assistant")
	return cmd
}

// commandLine returns the arguments of this command as arguments of mcp, with paths that are valid
// in the folder in which the assistant starts it. built has the modules built from folders of
// tools.
func (f *mcpFlags) commandLine(cmd *cobra.Command, refs, dbs []string, built map[string]string) (line []string, wrong error) {
	line = []string{"mcp"}
	if len(dbs) == 0 && !cmd.Flags().Changed("db") {
		line = append(line, "--db", absolute(f.database))
	}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		for _, v := range valuesOf(flag) {
			switch flag.Name {
			case "name":
				continue
			case "tools":
				within := func(ref string) bool { return filepath.Dir(ref) == filepath.Clean(v) }
				if slices.ContainsFunc(refs, func(ref string) bool { return within(ref) && built[ref] != "" }) {
					for _, ref := range refs {
						if within(ref) {
							line = append(line, "--tool", cmp.Or(built[ref], absolute(ref)))
						}
					}
					continue
				}
				v = absolute(v)
			case "tool":
				v = cmp.Or(built[v], absolute(v))
			case "db", "replay", "policy", "trust", "key-file", "receipts", "dir":
				v = absolute(v)
			case "server":
				var err error
				if v, err = gateway.AbsoluteServer(v); err != nil {
					err = usagef("", "--server: %v", err)
				}
				wrong = cmp.Or(wrong, err)
			}
			switch flag.NoOptDefVal {
			case "":
				line = append(line, "--"+flag.Name, v)
			case v:
				line = append(line, "--"+flag.Name)
			default: // false is the same as none
				if flag.Value.Type() != "bool" {
					line = append(line, "--"+flag.Name+"="+v)
				}
			}
		}
	})
	return append(line, lists.Map(dbs, absolute)...), wrong
}

// absolute makes a path absolute; the address of a database on a server is returned unchanged.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil && !onServer(path) && !artifact.IsDigest(path) {
		return full
	}
	return path
}
