package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/hint"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/lazy"
)

// Setup is a [Service] that an assistant is configured to use. The assistant starts its command
// or, with a URL, connects to it.
type Setup struct {
	Name    string // in the assistant
	Command string // the path of the program
	Args    []string
	Needs   []string // names of the variables that the command takes from its environment
	URL     string   // of a service that the user starts; empty if the assistant starts it
}

// assistant is a program that can be configured to use a service.
type assistant struct {
	where  string // what to do with the text
	format func(Setup) string
	remote func(name, url string) string // for a URL; nil if the assistant cannot use one
}

// assistants are the supported assistants, by their names.
var assistants = map[string]assistant{
	"claude-code": {"run this in a terminal", func(s Setup) string { // it passes its variables on
		line := display.Command("claude mcp add", s.Name) + " --"
		for _, word := range append([]string{s.Command}, s.Args...) {
			line += " " + display.ShellWord(word)
		}
		return line
	}, func(name, url string) string { return display.Command("claude mcp add --transport http", name, url) }},
	"claude-desktop": {"put this into claude_desktop_config.json (Settings, Developer, Edit Config)", inServers("the value of %s"), nil},
	"cursor":         {"put this into ~/.cursor/mcp.json, or .cursor/mcp.json of a project", inServers("${env:%s}"), remoteInServers("url")},
	"gemini":         {"put this into ~/.gemini/settings.json", inServers("$%s"), remoteInServers("httpUrl")},
	"vscode": {"run this in a terminal", func(s Setup) string {
		server := s.entry("${env:%s}")
		server["name"] = s.Name
		return display.Command("code --add-mcp", quoted(server))
	}, func(name, url string) string {
		return display.Command("code --add-mcp", quoted(map[string]string{"name": name, "type": "http", "url": url}))
	}},
	"codex": {"add this to ~/.codex/config.toml", func(s Setup) string {
		// A JSON string is a basic string of TOML.
		table := "[mcp_servers." + s.Name + "]\ncommand = " + quoted(s.Command) + "\nargs = " + quoted(s.Args)
		if len(s.Needs) > 0 { // it clears the others
			table += "\nenv_vars = " + quoted(s.Needs)
		}
		return table
	}, func(name, url string) string { return "[mcp_servers." + name + "]\nurl = " + quoted(url) }},
}

// Assistants returns the names of the supported assistants.
func Assistants() []string { return slices.Sorted(maps.Keys(assistants)) }

var serverName = lazy.Regexp(`^[A-Za-z0-9_-]{1,32}$`)

// For returns the configuration of an assistant, and where to put it. A wrong name of the assistant
// or of the service, and a URL that the assistant cannot use, are errors, whatever the command is.
func (s Setup) For(name string) (where, text string, err error) {
	to, known := assistants[name]
	switch {
	case !known:
		return "", "", hint.New(fmt.Sprintf("unknown assistant %q", name), "use one of "+strings.Join(Assistants(), ", "))
	case !serverName().MatchString(s.Name):
		return "", "", fmt.Errorf("--name: %q is not 1 to 32 letters, digits, _ and -", s.Name)
	case s.URL == "":
		return to.where, to.format(s), nil
	case to.remote == nil:
		return "", "", hint.New(name+" cannot connect to a server that listens: it starts its servers itself", "omit --listen")
	}
	return to.where, to.remote(s.Name, s.URL), nil
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
func (s Setup) entry(variable string) map[string]any {
	server := map[string]any{"command": s.Command, "args": s.Args}
	if len(s.Needs) > 0 {
		env := map[string]string{}
		for _, name := range s.Needs {
			env[name] = fmt.Sprintf(variable, name)
		}
		server["env"] = env
	}
	return server
}

// inServers formats a document for a server that the assistant starts.
func inServers(variable string) func(Setup) string {
	return func(s Setup) string { return document(s.Name, s.entry(variable)) }
}

// remoteInServers formats a document for a server that listens.
func remoteInServers(member string) func(name, url string) string {
	return func(name, url string) string { return document(name, map[string]string{member: url}) }
}

var variable = lazy.Regexp(`^[A-Z_][A-Z0-9_]*$`)

// Prepare loads the modules and connects to the servers of a service, so that an assistant can start
// it in another folder and without a compiler. It returns the file or digest to use in place of each
// module that it built or fetched, calling built for a folder, and the variables that provide servers and
// secrets.
func Prepare(ctx context.Context, refs, servers []string, o starling.ToolOptions, built func(ref string)) (modules map[string]string, needs []string, err error) {
	db := starling.Over(nil, starling.Options{})
	defer db.Close()
	modules = map[string]string{}
	for _, ref := range refs {
		m, err := db.LoadModule(ctx, ref, o)
		if err != nil {
			return nil, nil, err
		}
		if artifact.IsRemote(ref) { // pinned: the assistant starts it in another folder
			modules[ref] = m.Source.Source
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
		built(ref)
		modules[ref] = file
	}
	need := func(name string) string {
		if variable().MatchString(name) && !slices.Contains(needs, name) {
			needs = append(needs, name)
		}
		return ""
	}
	for _, text := range servers {
		os.Expand(text, need)
		pins, err := DefaultPins()
		if err != nil {
			return nil, nil, err
		}
		if name, _, _, err := pins.Changes(ctx, text); err != nil {
			return nil, nil, fmt.Errorf("the server %s: %s", name, starling.PlainError(err))
		}
	}
	if o.Policy != nil {
		for _, s := range o.Policy.Secrets {
			need("STARLING_SECRET_" + s.Name)
		}
	}
	return modules, needs, nil
}
