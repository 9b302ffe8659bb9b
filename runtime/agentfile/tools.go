//go:build !js

package agentfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/internal/builtin"
	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/runtime/tool"
)

// The built-in tools.
const (
	fetch      = "fetch"
	readsFiles = "read_file"
)

// Programs are the tools that run programs of a model, by their languages. The loader has their
// modules.
var Programs = map[string]string{"javascript": "run_js", "python": "run_py"}

// Loader loads modules.
type Loader interface {
	// LoadModule loads the module at m.Path with the settings of m, and returns all of its
	// tools. Release is called once, after their last use. The loader ignores the names in
	// m.
	LoadModule(ctx context.Context, m Module) (tools []tool.Tool, release func() error, err error)
}

// Toolbox has the tools of an agent.
type Toolbox struct {
	Tools   []tool.Tool                 // in the order of the file
	Retries map[string]tool.RetryConfig // by name, for agent.Config

	// Absent has the errors of unreachable servers, if the box is for replays. Their tools
	// are missing; see [Toolbox.Misses].
	Absent []error

	told   string   // instructions to the model beside the definitions of tools
	inCode []string // the tools that only programs can call

	absent  []*Entry
	owners  map[string]*Entry // of the tools, by name
	release []func() error
}

// Misses reports whether a recorded tool belongs to an unreachable server, by the file's
// prefix, include and exclude, and returns the policy for its failed calls, nil for none.
func (b *Toolbox) Misses(ref event.ToolSchemaRef) (retry *tool.RetryConfig, ok bool) {
	remote, ok := strings.CutPrefix(ref.Source, mcptool.SourcePrefix)
	if !ok || b.owners[ref.Name] != nil {
		return nil, false
	}
	for _, e := range b.absent {
		included := e.MCP.Include == nil || slices.Contains(e.MCP.Include, remote)
		if ref.Name == cmp.Or(e.MCP.Rename[remote], e.MCP.Prefix+remote) && included && !slices.Contains(e.MCP.Exclude, remote) {
			return e.Retry, true
		}
	}
	return nil, false
}

// Close releases modules and ends the started servers, in reverse order. Calls of their
// tools must have returned.
func (b *Toolbox) Close() error {
	var failures []error
	for _, release := range slices.Backward(b.release) {
		failures = append(failures, release())
	}
	b.release = nil
	return errors.Join(failures...)
}

// OpenTools loads modules with the loader, starts or connects to the servers of the Model
// Context Protocol, and returns all tools. Getenv supplies the variables that a server's
// env names. If anything fails, or two tools have the same name, everything is closed
// again. The box must be closed.
func (f *File) OpenTools(ctx context.Context, load Loader, getenv func(string) string) (*Toolbox, error) {
	return f.openTools(ctx, load, getenv, false)
}

// OpenToolsForReplay is [File.OpenTools] for replays, which do not call servers: an
// unreachable server is not an error.
func (f *File) OpenToolsForReplay(ctx context.Context, load Loader, getenv func(string) string) (*Toolbox, error) {
	return f.openTools(ctx, load, getenv, true)
}

func (f *File) openTools(ctx context.Context, load Loader, getenv func(string) string, replay bool) (*Toolbox, error) {
	b := &Toolbox{Retries: map[string]tool.RetryConfig{}, owners: map[string]*Entry{}}
	for i := range f.Tools {
		e := &f.Tools[i]
		tools, err := b.open(ctx, f, e, load, getenv)
		if err != nil && replay && e.MCP != nil && ctx.Err() == nil {
			b.Absent, b.absent = append(b.Absent, err), append(b.absent, e)
			continue
		}
		if err == nil {
			err = b.add(e, tools)
		}
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	if f.Code != "" {
		if err := b.addCode(ctx, f.Code, load); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	return b, nil
}

// addCode reserves the tools for programs, and adds the tool that runs programs.
func (b *Toolbox) addCode(ctx context.Context, language string, load Loader) error {
	others := slices.Clone(b.Tools)
	b.inCode = lists.Map(others, tool.Tool.Name)
	b.told = tool.Declarations(language, others...)
	e := &Entry{Module: &Module{Path: Programs[language], Code: true}}
	tools, err := b.openModule(ctx, e, load)
	if err != nil {
		return err
	}
	if len(others) > tool.MaxDeclared {
		tools = append(tools, builtin.Search(others...))
	}
	return b.add(e, tools)
}

// open returns the tools of an entry.
func (b *Toolbox) open(ctx context.Context, f *File, e *Entry, load Loader, getenv func(string) string) ([]tool.Tool, error) {
	switch {
	case e.Module != nil:
		return b.openModule(ctx, e, load)
	case e.Builtin != nil:
		t := builtin.Fetch()
		if e.Builtin.Name == readsFiles {
			var err error
			if t, err = builtin.ReadFile(e.Builtin.Dir); err != nil {
				return nil, e.wrap(err)
			}
		}
		if e.Builtin.Rename != "" {
			t = tool.Rename(t, e.Builtin.Rename)
		}
		return []tool.Tool{t}, nil
	}
	client, err := e.MCP.Connect(ctx, filepath.Dir(f.Path), getenv)
	if missing, ok := errors.AsType[*missingVariable](err); ok {
		return nil, e.at.Errorf("", "%v", missing)
	}
	if err != nil {
		return nil, e.wrap(err)
	}
	b.release = append(b.release, client.Close)
	return client.Tools(), nil
}

func (b *Toolbox) openModule(ctx context.Context, e *Entry, load Loader) ([]tool.Tool, error) {
	tools, release, err := load.LoadModule(ctx, *e.Module)
	if err != nil {
		return nil, e.wrap(err)
	}
	b.release = append(b.release, release)
	if e.Module.Tool != "" {
		at := slices.IndexFunc(tools, func(t tool.Tool) bool { return t.Name() == e.Module.Tool })
		if at < 0 {
			return nil, e.at.Errorf("it has "+strings.Join(lists.Map(tools, tool.Tool.Name), ", "), "the module has no tool %q", e.Module.Tool)
		}
		tools = tools[at : at+1]
	}
	if e.Module.Rename != "" {
		if len(tools) != 1 {
			return nil, e.at.Errorf("choose one with the key name, and make an entry of each", "the module has %d tools, but only one name for them", len(tools))
		}
		tools = []tool.Tool{tool.Rename(tools[0], e.Module.Rename)}
	}
	return tools, nil
}

// add adds the tools of an entry. Their names must be new.
func (b *Toolbox) add(e *Entry, tools []tool.Tool) error {
	for _, t := range tools {
		name := t.Name()
		if other := b.owners[name]; other != nil {
			return cmp.Or(e.at, other.at).Errorf("give one of them another name with rename, or prefix for a server",
				"%s has a tool %q, and so has %s (%s)", e.source(), name, other.source(), other.at.Place())
		}
		b.owners[name] = e
		if e.Retry != nil {
			b.Retries[name] = *e.Retry
		}
	}
	b.Tools = append(b.Tools, tools...)
	return nil
}

// source names the origin of the entry's tools.
func (e *Entry) source() string {
	switch {
	case e.Module != nil:
		return e.Module.Path
	case e.Builtin != nil:
		return "the built-in " + e.Builtin.Name
	case e.MCP.URL != "":
		return "the server " + e.MCP.Host()
	}
	return "the server " + e.MCP.Command[0]
}

// wrap adds the entry to an error, unless the error names it already. It wraps the error,
// which may have a hint.
func (e *Entry) wrap(err error) error {
	if errors.As(err, new(*config.Error)) {
		return err
	}
	return fmt.Errorf("%s: %w", e.at.Place(), err)
}

// connectTimeout bounds the time in which a server starts and lists its tools.
const connectTimeout = 30 * time.Second

// loginTimeout bounds the same if the user has to log in.
const loginTimeout = 5 * time.Minute

// inherited are the variables of this process that a server gets. The others may hold
// secrets.
var inherited = []string{
	"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
	"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP",
	"USERNAME", "USERPROFILE", "WINDIR",
}

// Connect starts the server in a folder, or connects to it, and lists its tools, within 30 seconds,
// or 5 minutes with a login. Getenv supplies the variables in Env and those that every server
// inherits. The server must be closed.
func (m *MCP) Connect(ctx context.Context, dir string, getenv func(string) string) (*mcptool.Client, error) {
	timeout := max(connectTimeout, m.Timeout)
	if m.Login != nil {
		timeout = loginTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	env, err := expanded("env", m.Env, getenv)
	if err != nil {
		return nil, err
	}
	headers, err := expanded("headers", m.Headers, getenv)
	if err != nil {
		return nil, err
	}
	o := mcptool.Options{
		Prefix: m.Prefix, Include: m.Include, Exclude: m.Exclude, Rename: m.Rename, Timeout: m.Timeout, TextOnly: m.TextOnly,
		Headers: headers, Secrets: m.Secrets(), Changed: m.Changed, Tokens: m.Tokens, Login: m.Login,
		Assistant: m.Assistant, OneAtATime: m.OneAtATime, Strict: m.Check == "strict",
	}
	for _, values := range []map[string]string{env, headers} {
		for name, value := range values {
			if fromVariable := value != m.Env[name] && value != m.Headers[name]; fromVariable || secretName().MatchString(name) || looksLikeKey(value) {
				o.Secrets = append(append(o.Secrets, value), strings.Fields(value)...)
			}
		}
	}
	if m.URL != "" {
		return mcptool.NewHTTP(ctx, m.URL, o)
	}
	cmd := exec.Command(m.Command[0], m.Command[1:]...)
	cmd.Dir = dir
	for _, name := range inherited {
		if value := getenv(name); value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		cmd.Env = append(cmd.Env, name+"="+env[name])
	}
	return mcptool.NewCommand(ctx, cmd, o)
}

var secretName = lazy.Regexp(`(?i)key|token|secret|passw|pwd|auth|credential|cookie|signature|^sig$`)

// Secrets returns the parts of the command and the URL that are, or look like, secrets:
// passwords and parameters of URLs, values of flags, assignments and headers with such a name,
// and keys.
func (m *MCP) Secrets() (all []string) {
	take := func(name, value string) {
		if value != "" && (secretName().MatchString(name) || looksLikeKey(value)) {
			all = append(all, value)
		}
	}
	flag := ""
	for _, word := range append([]string{m.URL}, m.Command...) {
		name, value, _ := strings.Cut(word, "=")
		if header, text, ok := strings.Cut(word, ": "); ok && !strings.Contains(header, " ") {
			name, value = header, text
		}
		switch {
		case looksLikeKey(word), secretName().MatchString(flag) && !strings.HasPrefix(word, "-"):
			all = append(all, word)
		case secretName().MatchString(name) && !strings.Contains(name, "/") && value != "":
			fields := strings.Fields(value)
			all = append(append(all, value), fields[len(fields)-1])
		}
		if flag = ""; strings.HasPrefix(word, "-") && value == "" {
			flag = word
		}
		_, rest, ok := strings.Cut(word, "://")
		if !ok {
			continue
		}
		if user, _, ok := strings.Cut(rest, "@"); ok && !strings.Contains(user, "/") {
			if _, password, ok := strings.Cut(user, ":"); ok {
				take("password", password)
			} else {
				take("", user)
			}
		}
		if u, err := url.Parse(word); err == nil {
			for name, values := range u.Query() {
				for _, value := range values {
					take(name, value)
				}
			}
			for segment := range strings.SplitSeq(u.Path, "/") {
				take("", segment)
			}
		}
	}
	return slices.DeleteFunc(all, func(secret string) bool { return secret == "" })
}

// Host returns the host of the URL, the only part without secrets.
func (m *MCP) Host() string {
	u, err := url.Parse(m.URL)
	if err != nil {
		return "with a URL"
	}
	return u.Host
}

// missingVariable is the error for an unset environment variable.
type missingVariable struct{ name, of string }

// Error names both.
func (e *missingVariable) Error() string {
	return fmt.Sprintf("%s needs the environment variable %s, which is not set", e.of, e.name)
}

// expanded returns values with the variables in them expanded.
func expanded(of string, values map[string]string, getenv func(string) string) (map[string]string, error) {
	all := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		missing := ""
		all[name] = os.Expand(values[name], func(from string) string {
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
			return nil, &missingVariable{missing, of + "." + name}
		}
	}
	return all, nil
}

// Fetch returns the built-in tool "fetch", which gets a public URL.
func Fetch() tool.Tool { return builtin.Fetch() }

// ReadFile returns the built-in tool "read_file", which reads the files below a folder.
func ReadFile(dir string) (tool.Tool, error) { return builtin.ReadFile(dir) }
