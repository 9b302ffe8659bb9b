package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/serve"
)

// started is a server that an assistant starts.
type started struct {
	name    string // its name in assistants
	command string
	args    []string
	needs   []string // names of the variables that it takes from its environment
}

// assistant is an assistant whose configuration "mcp config" writes.
type assistant struct {
	where  string // what to do with the output
	format func(started) string
	remote func(name, url string) string // for a listening server; nil if the assistant cannot use one
}

// assistants are the supported assistants, by their names in "mcp config".
var assistants = map[string]assistant{
	"claude-code": {"run this in a terminal", func(s started) string { // it passes its variables on
		line := display.Command("claude mcp add", s.name) + " --"
		for _, word := range append([]string{s.command}, s.args...) {
			line += " " + display.ShellWord(word)
		}
		return line
	}, func(name, url string) string { return display.Command("claude mcp add --transport http", name, url) }},
	"claude-desktop": {"put this into claude_desktop_config.json (Settings, Developer, Edit Config)", inServers("the value of %s"), nil},
	"cursor":         {"put this into ~/.cursor/mcp.json, or .cursor/mcp.json of a project", inServers("${env:%s}"), remoteInServers("url")},
	"gemini":         {"put this into ~/.gemini/settings.json", inServers("$%s"), remoteInServers("httpUrl")},
	"vscode": {"run this in a terminal", func(s started) string {
		server := s.entry("${env:%s}")
		server["name"] = s.name
		return display.Command("code --add-mcp", quoted(server))
	}, func(name, url string) string {
		return display.Command("code --add-mcp", quoted(map[string]string{"name": name, "type": "http", "url": url}))
	}},
	"codex": {"add this to ~/.codex/config.toml", func(s started) string {
		// A JSON string is a basic string of TOML.
		table := "[mcp_servers." + s.name + "]\ncommand = " + quoted(s.command) + "\nargs = " + quoted(s.args)
		if len(s.needs) > 0 { // it clears the others
			table += "\nenv_vars = " + quoted(s.needs)
		}
		return table
	}, func(name, url string) string { return "[mcp_servers." + name + "]\nurl = " + quoted(url) }},
}

func quoted(v any) string {
	text, _ := json.Marshal(v) // strings cannot fail
	return string(text)
}

// document formats a JSON document that has servers by name.
func document(name string, server any) string {
	text, _ := json.MarshalIndent(map[string]any{"mcpServers": map[string]any{name: server}}, "", "  ")
	return string(text)
}

// entry is the server in the configuration of an assistant that writes a variable in that form.
func (s started) entry(variable string) map[string]any {
	server := map[string]any{"command": s.command, "args": s.args}
	if len(s.needs) > 0 {
		env := map[string]string{}
		for _, name := range s.needs {
			env[name] = fmt.Sprintf(variable, name)
		}
		server["env"] = env
	}
	return server
}

// inServers formats a document for a server that the assistant starts.
func inServers(variable string) func(started) string {
	return func(s started) string { return document(s.name, s.entry(variable)) }
}

// remoteInServers formats a document for a server that listens.
func remoteInServers(member string) func(name, url string) string {
	return func(name, url string) string { return document(name, map[string]string{member: url}) }
}

const mcpConfigHelp = `Print the configuration for an assistant, so that it starts "starling-host mcp" with
the same arguments. Each module, server, policy and database is loaded first, to be
sure that the configuration works. Paths become absolute, and a tool's folder is
replaced by the module built from it. With --listen the assistant connects to a server
that you start; standard error shows the command.

ASSISTANT is claude-code, claude-desktop, codex, cursor, gemini or vscode.`

func (a *app) mcpConfigCommand() *cobra.Command {
	var f mcpFlags
	var name string
	cmd := &cobra.Command{
		Use:     "config ASSISTANT [DB]",
		Short:   "print the configuration for an assistant",
		Long:    mcpConfigHelp,
		Example: "  starling-host mcp config claude-code --tool dice.wasm",
	}
	f.add(cmd)
	cmd.Flags().StringVar(&name, "name", "starling", "`NAME` of the server in the assistant")
	cmd.ValidArgs = slices.Sorted(maps.Keys(assistants))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		to, known := assistants[args[0]]
		if !known {
			return usagef("use one of "+strings.Join(cmd.ValidArgs, ", "), "unknown assistant %q", args[0])
		}
		if !serverName.MatchString(name) {
			return usagef("", "--name: %q is not 1 to 32 letters, digits, _ and -", name)
		}
		refs, dbs, err := f.refs(args[1:])
		if err != nil {
			return err
		}
		if f.listen != "" {
			at, err := f.address()
			switch {
			case err != nil:
				return err
			case to.remote == nil:
				return usagef("omit --listen", "%s cannot connect to a server that listens: it starts its servers itself", args[0])
			case strings.HasSuffix(at.Address, ":0"):
				return usagef("--listen 127.0.0.1:8400", "--listen: the configuration must name the port, and %s picks any free port", f.listen)
			}
		}
		built, needs, err := a.loadable(cmd.Context(), f, refs, dbs)
		if err != nil {
			return err
		}
		program, err := os.Executable()
		if err != nil {
			return err
		}
		line, err := f.commandLine(cmd, refs, dbs, built)
		if err != nil {
			return err
		}
		if f.listen != "" {
			a.stderr.Printf("start the server: starling-host")
			for _, word := range line {
				a.stderr.Printf(" %s", display.ShellWord(word))
			}
			a.stderr.Printf("\n%s:\n", to.where)
			_, err = fmt.Fprintln(a.stdout.Lines(), to.remote(name, "http://"+f.listen+"/mcp"))
			return err
		}
		a.stderr.Printf("%s:\n", to.where)
		_, err = fmt.Fprintln(a.stdout.Lines(), to.format(started{name, program, line, needs}))
		return err
	}
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
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
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
			case "db", "policy", "trust", "key-file":
				v = absolute(v)
			case "server":
				var err error
				v, err = absoluteServer(v)
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
	for _, db := range dbs {
		line = append(line, absolute(db))
	}
	return line, wrong
}

var (
	serverName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)
	variable   = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)
)

// loadable loads everything that the assistant will start. It returns the locations of modules
// built from folders, which are built here because the assistant may lack the tools for it, and the
// variables that provide servers and secrets.
func (a *app) loadable(ctx context.Context, f mcpFlags, refs, dbs []string) (built map[string]string, needs []string, err error) {
	options, err := f.options()
	if err != nil {
		return nil, nil, err
	}
	for _, where := range dbs {
		log, err := f.read.open(ctx, where)
		if err != nil {
			return nil, nil, err
		}
		_ = log.Close()
	}
	db := starling.Over(nil, starling.Options{})
	defer db.Close()
	built = map[string]string{}
	for _, ref := range refs {
		m, err := db.LoadModule(ctx, ref, options)
		if err != nil {
			return nil, nil, err
		}
		if artifact.IsRemote(ref) { // pinned: the assistant starts it in another folder
			built[ref] = m.Source.Source
			continue
		}
		if info, err := os.Stat(ref); err != nil || !info.IsDir() || guest.InterpreterOf(m.Source.Wasm) != nil { // which needs no compiler
			continue
		}
		base, err := os.UserConfigDir()
		if err != nil {
			return nil, nil, err
		}
		file := filepath.Join(base, "starling-host", "tools", fmt.Sprintf("%.16s", m.Digest()), m.Source.Name+".wasm")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return nil, nil, err
		}
		if err := keyfile.Replace(file, m.Source.Wasm, 0o600); err != nil {
			return nil, nil, err
		}
		a.stderr.Printf("built %s; run this command again after you change it\n", ref)
		built[ref] = file
	}
	need := func(name string) string {
		if variable.MatchString(name) && !slices.Contains(needs, name) {
			needs = append(needs, name)
		}
		return ""
	}
	for _, text := range f.servers {
		os.Expand(text, need)
		pins, err := serve.DefaultPins()
		if err != nil {
			return nil, nil, err
		}
		if name, _, _, err := pins.Changes(ctx, text); err != nil {
			return nil, nil, fmt.Errorf("the server %s: %s", name, starling.PlainError(err))
		}
	}
	if options.Policy != nil {
		for _, s := range options.Policy.Secrets {
			need("STARLING_SECRET_" + s.Name)
		}
	}
	return built, needs, nil
}

// absolute makes a path absolute; the address of a database on a server is returned unchanged.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil && !onServer(path) && !artifact.IsDigest(path) {
		return full
	}
	return path
}
