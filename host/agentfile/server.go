package agentfile

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/runtime/tool/mcptool"
)

// connectTimeout bounds how long a server may take to start and to list its tools.
const connectTimeout = 30 * time.Second

// inherited are the variables of this process that a server gets. All others may
// hold secrets that are none of its business.
var inherited = []string{
	"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
	"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP",
	"USERNAME", "USERPROFILE", "WINDIR",
}

// openServer connects to a server of the Model Context Protocol.
func (b *Toolbox) openServer(ctx context.Context, f *File, e *Entry, getenv func(string) string) ([]tool.Tool, error) {
	connecting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	client, err := e.connect(connecting, f, getenv)
	if err != nil {
		return nil, e.wrap(err)
	}
	b.release = append(b.release, client.Close)
	tools, err := client.Tools(ctx)
	if err != nil {
		return nil, e.wrap(err)
	}
	return tools, nil
}

func (e *Entry) connect(ctx context.Context, f *File, getenv func(string) string) (*mcptool.Client, error) {
	if e.MCP.URL != "" {
		return mcptool.NewHTTP(ctx, e.MCP.URL, nil, e.MCP.options()...)
	}
	env, err := e.environment(getenv)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(e.MCP.Command[0], e.MCP.Command[1:]...)
	cmd.Env = env
	cmd.Dir = filepath.Dir(f.Path)
	return mcptool.NewCommand(ctx, cmd, e.MCP.options()...)
}

func (m *MCP) options() []mcptool.Option {
	opts := []mcptool.Option{
		mcptool.WithToolNamePrefix(m.Prefix), mcptool.WithExcludeTools(m.Exclude...),
		mcptool.WithCallTimeout(m.Timeout), mcptool.WithTextOnly(m.TextOnly),
	}
	if m.Include != nil {
		opts = append(opts, mcptool.WithIncludeTools(m.Include...))
	}
	return opts
}

// environment returns what a server gets: some variables of this process, and those
// of the file.
func (e *Entry) environment(getenv func(string) string) ([]string, error) {
	var env []string
	for _, name := range inherited {
		if value := getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.MCP.Env)) {
		missing := ""
		value := os.Expand(e.MCP.Env[name], func(from string) string {
			value := getenv(from)
			switch {
			case from == "$": // written as $$
				return from
			case value == "":
				missing = from
			}
			return value
		})
		if missing != "" {
			return nil, e.errorf("", "the environment variable %s, which env.%s is made of, is not set", missing, name)
		}
		env = append(env, name+"="+value)
	}
	return env, nil
}
