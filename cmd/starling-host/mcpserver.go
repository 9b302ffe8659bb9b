package main

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/serve"
)

const mcpTrustHelp = `Show what an MCP server says of its tools that it did not say when it was accepted, and
accept it after a question, or with --yes without one.

"starling-host mcp --server" accepts a server when it first sees it. Later it leaves out
tools that are new, or that the server describes differently: a description is an
instruction to the model, and you have not read this one. SERVER is written as for
--server.`

func (a *app) mcpTrustCommand() *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:     "trust SERVER",
		Short:   "accept what an MCP server says of its tools now",
		Long:    mcpTrustHelp,
		Example: "  starling-host mcp trust 'npx -y @modelcontextprotocol/server-everything'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.mcpTrust(cmd.Context(), args[0], yes)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "accept without a question")
	return cmd
}

func (a *app) mcpTrust(ctx context.Context, text string, yes bool) error {
	server, err := serve.ParseServer(text)
	if err != nil {
		return usagef("", "%v", err)
	}
	pins, err := serve.DefaultPins()
	if err != nil {
		return err
	}
	changes, accept, err := pins.Changes(ctx, server)
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		a.stdout.printf("%s says what it said when it was accepted\n", server.Name)
		return nil
	}
	for _, c := range changes {
		what := "has another description"
		switch {
		case c.Now == nil:
			what = "is gone"
		case c.Before == nil:
			what = "is new"
		case *c.Before == *c.Now:
			what = "has the same description, and another title, schema or annotation"
			c.Before = nil
		}
		a.stdout.printf("%s %s\n", c.Tool, what)
		for _, said := range []struct {
			sign string
			text *string
		}{{"-", c.Before}, {"+", c.Now}} {
			if said.text == nil {
				continue
			}
			for _, line := range printableLines(*said.text) {
				a.stdout.printf("  %s %s\n", said.sign, line)
			}
		}
	}
	if !yes && a.confirm(ctx, "Accept this?") != policy.Accept {
		return &failure{code: exitRefused, message: "nothing was accepted"}
	}
	if err := accept(); err != nil {
		return err
	}
	a.stdout.printf("%s is accepted: %s\n", server.Name, plural(len(changes), "change"))
	return nil
}

// absoluteServer returns what names a server as it works from every folder: with the path of
// the program, and those of the files and folders that its arguments name.
func absoluteServer(text string) (string, error) {
	s, err := serve.ParseServer(text)
	if err != nil {
		return "", usagef("", "--server: %v", err)
	}
	if s.URL != "" {
		return text, nil
	}
	for i, word := range s.Command {
		found, err := word, error(nil)
		if i == 0 {
			found, err = exec.LookPath(word)
		}
		if err != nil {
			return "", usagef("", "--server: %v", err)
		}
		_, missing := os.Stat(word)
		if i == 0 || missing == nil && (word == "." || word == ".." || strings.ContainsAny(word, `/\`)) {
			if found, err = filepath.Abs(found); err != nil {
				return "", err
			}
		}
		s.Command[i] = found
	}
	words := []string{}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		words = append(words, name+"="+shellWord(s.Env[name]))
	}
	for _, word := range s.Command {
		words = append(words, shellWord(word))
	}
	return s.Name + "=" + strings.Join(words, " "), nil
}
