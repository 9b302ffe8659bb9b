//go:build !js

package agentfile

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/config"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/tool"
)

// Entry is one entry of the list of tools. One of Module, Builtin and MCP is set.
type Entry struct {
	Module  *Module
	Builtin *Builtin
	MCP     *MCP

	// Retry is the policy for failed calls of the entry's tools; nil for none.
	Retry *tool.RetryConfig

	at *config.Node // for errors
}

// Module is a module, and the conditions under which its tools run.
type Module struct {
	Path         string              // of a .wasm file or of a folder with a tool
	Code         bool                // its tools call the other tools of the run
	Tool         string              // the only one of its tools that the agent has; empty for all
	Rename       string              // what the agent calls it; empty for its own name
	AllowHosts   []string            // rules of egress.ParseRule
	AllowPrivate bool                // see egress.Rules
	Limits       event.SandboxLimits // zero fields are the host's defaults
}

// Builtin is a tool of package builtin.
type Builtin struct {
	Name   string // "fetch" or "read_file"
	Dir    string // what read_file may read
	Rename string // what the agent calls it; empty for its own name
}

// MCP is a server of the Model Context Protocol, of which either the command or
// the address is set.
type MCP struct {
	Command []string
	Env     map[string]string // $NAME and ${NAME} stand for variables of this process, $$ for a dollar
	URL     string

	Prefix           string
	Include, Exclude []string
	Timeout          time.Duration // of one call; zero leaves it to the run
	TextOnly         bool

	// Headers are sent to a URL, with variables as in Env. Rename has other names for tools, by
	// the server's.
	Headers, Rename map[string]string

	// Changed is called when the tools may have changed. Tokens is the file with the OAuth token
	// for a URL, which Login gets. An agent's file has none of these.
	Changed func()
	Tokens  string
	Login   *Login
}

// MaxOutput is the largest that the output of a call may be made, in bytes: an event holds it,
// and what stands around it.
const MaxOutput = 8 << 20

const hintEntry = "write a path, or a map with wasm, builtin or mcp"

// DecodeYAML implements [config.Decoder].
func (e *Entry) DecodeYAML(n *config.Node) error {
	e.at = n
	path, ok := n.Text()
	if wasm := n.Get("wasm"); wasm != nil {
		path, _ = wasm.Text()
	}
	switch {
	case path == runJS:
		return n.Errorf("write beside the tools: code: {language: javascript}", "run_js is not in the list of tools, because it calls them")
	case ok && path != "":
		e.Module = &Module{Path: path}
		return nil
	}
	if n.Kind() != config.Map {
		return n.Errorf(hintEntry, "this must be a tool, not %v", n.Kind())
	}
	kinds := map[string]func(*config.Node) error{"wasm": e.module, "builtin": e.builtin, "mcp": e.mcp}
	var decode func(*config.Node) error
	for kind, f := range kinds {
		if n.Get(kind) == nil {
			continue
		}
		if decode != nil {
			return n.Errorf("make an entry of each", "this is several tools")
		}
		decode = f
	}
	if decode == nil {
		return n.Errorf(hintEntry, "this does not say which tool it is")
	}
	return decode(n)
}

// module reads {wasm: PATH, ...}.
func (e *Entry) module(n *config.Node) error {
	var m struct {
		Wasm         word     `yaml:"wasm,required"`
		Name         toolName `yaml:"name"`
		Rename       toolName `yaml:"rename"`
		AllowHosts   []host   `yaml:"allow_hosts"`
		AllowPrivate bool     `yaml:"allow_private"`
		Fuel         count    `yaml:"fuel"`
		Memory       size     `yaml:"memory"`
		Output       size     `yaml:"output"`
		Timeout      period   `yaml:"timeout"`
		Retry        *retry   `yaml:"retry"`
	}
	if err := n.Decode(&m); err != nil {
		return err
	}
	pages := uint64(m.Memory)/pageSize + min(uint64(m.Memory)%pageSize, 1)
	if pages > maxPages {
		return n.Get("memory").Errorf("", "a module has at most 4GiB")
	}
	if m.Output > MaxOutput {
		return n.Get("output").Errorf("", "an output has at most 8MiB")
	}
	if n.Get("allow_private") != nil && len(m.AllowHosts) == 0 {
		return n.Get("allow_private").Errorf("name the hosts, as in: allow_hosts: [localhost:8080]", `"allow_private" is about "allow_hosts", of which there are none`)
	}
	e.Retry = m.Retry.config()
	e.Module = &Module{
		Path: string(m.Wasm), Tool: string(m.Name), Rename: string(m.Rename), AllowPrivate: m.AllowPrivate,
		Limits: event.SandboxLimits{Fuel: uint64(m.Fuel), MemoryPages: uint32(pages), TimeoutMs: time.Duration(m.Timeout).Milliseconds(), OutputBytes: uint64(m.Output)},
	}
	for _, h := range m.AllowHosts {
		e.Module.AllowHosts = append(e.Module.AllowHosts, string(h))
	}
	return nil
}

// builtin reads {builtin: NAME, ...}.
func (e *Entry) builtin(n *config.Node) error {
	var b struct {
		Builtin string   `yaml:"builtin,required"`
		Dir     word     `yaml:"dir"`
		Rename  toolName `yaml:"rename"`
		Retry   *retry   `yaml:"retry"`
	}
	if err := n.Decode(&b); err != nil {
		return err
	}
	switch {
	case b.Builtin != fetch && b.Builtin != readsFiles:
		return n.Get("builtin").Errorf("there are fetch and read_file", "there is no built-in tool %q", b.Builtin)
	case b.Builtin == fetch && b.Dir != "":
		return n.Get("dir").Errorf("", "fetch has no folder")
	case b.Builtin == readsFiles && b.Dir == "":
		return n.Errorf("say what it may read, as in: dir: notes", `read_file needs the key "dir"`)
	}
	e.Builtin, e.Retry = &Builtin{Name: b.Builtin, Dir: string(b.Dir), Rename: string(b.Rename)}, b.Retry.config()
	return nil
}

// mcp reads {mcp: {...}}.
func (e *Entry) mcp(n *config.Node) error {
	var m struct {
		MCP   server `yaml:"mcp,required"`
		Retry *retry `yaml:"retry"`
	}
	if err := n.Decode(&m); err != nil {
		return err
	}
	e.MCP, e.Retry = (*MCP)(&m.MCP), m.Retry.config()
	return nil
}

// server is an MCP in a file.
type server MCP

// DecodeYAML implements [config.Decoder].
func (s *server) DecodeYAML(n *config.Node) error {
	var m struct {
		Command  []string            `yaml:"command"`
		Env      map[string]string   `yaml:"env"`
		URL      address             `yaml:"url"`
		Headers  map[string]string   `yaml:"headers"`
		Prefix   toolName            `yaml:"prefix"`
		Include  []string            `yaml:"include"`
		Exclude  []string            `yaml:"exclude"`
		Rename   map[string]toolName `yaml:"rename"`
		Timeout  period              `yaml:"timeout"`
		TextOnly bool                `yaml:"text_only"`
	}
	if err := n.Decode(&m); err != nil {
		return err
	}
	hasCommand, hasURL := n.Get("command") != nil, m.URL != ""
	switch {
	case hasCommand == hasURL:
		return n.Errorf("", `a server has either the key "command" or the key "url"`)
	case hasCommand && (len(m.Command) == 0 || m.Command[0] == ""):
		return n.Get("command").Errorf("write the program and its arguments, as in: command: [mcp-server-time, --utc]", "this must be a program")
	case hasURL && m.Env != nil:
		return n.Get("env").Hidden().Errorf("", `"env" is for servers with a command`)
	case hasCommand && m.Headers != nil:
		return n.Get("headers").Hidden().Errorf("", `"headers" is for servers with a URL`)
	}
	for key, values := range map[string]map[string]string{"env": m.Env, "headers": m.Headers} {
		for name, value := range values {
			if slices.ContainsFunc(strings.Fields(value), looksLikeKey) {
				return n.Get(key).Get(name).Hidden().Errorf("take it from an environment variable, as in: "+name+": $"+upperName(name), "%s.%s looks like a key: a file holds no secrets", key, name)
			}
		}
	}
	var rename map[string]string
	for name, other := range m.Rename {
		if rename == nil {
			rename = map[string]string{}
		}
		rename[name] = string(other)
	}
	*s = server{
		Command: m.Command, Env: m.Env, URL: string(m.URL), Prefix: string(m.Prefix),
		Include: m.Include, Exclude: m.Exclude, Timeout: time.Duration(m.Timeout), TextOnly: m.TextOnly,
		Headers: m.Headers, Rename: rename,
	}
	return nil
}

// upperName returns the name of a header as that of a variable.
func upperName(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }

// toolName is a name that every provider takes.
type toolName string

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// DecodeYAML implements [config.Decoder].
func (t *toolName) DecodeYAML(n *config.Node) error {
	if err := n.Decode((*string)(t)); err != nil {
		return err
	}
	if !namePattern.MatchString(string(*t)) {
		return n.Errorf("", "this must be 1 to 64 letters, digits, _ and -")
	}
	return nil
}

// host is a rule of package egress.
type host string

// DecodeYAML implements [config.Decoder].
func (h *host) DecodeYAML(n *config.Node) error {
	if err := n.Decode((*string)(h)); err != nil {
		return err
	}
	if _, err := egress.ParseRule(string(*h)); err != nil {
		return n.Errorf("", "%s", strings.TrimPrefix(err.Error(), "egress: "))
	}
	return nil
}

// retry is a tool.RetryConfig in a file.
type retry struct {
	MaxAttempts   positive      `yaml:"max_attempts"`
	Jitter        float64       `yaml:"jitter"`
	MaxSnoozes    positive      `yaml:"max_snoozes"`
	MaxSnoozeTime time.Duration `yaml:"max_snooze_time"`
}

// CheckYAML implements [config.Checker].
func (r *retry) CheckYAML(n *config.Node) error {
	if r.Jitter > 1 {
		return n.Get("jitter").Errorf("", "this must be a share, 0 to 1")
	}
	return nil
}

func (r *retry) config() *tool.RetryConfig {
	if r == nil {
		return nil
	}
	return &tool.RetryConfig{
		MaxAttempts: int(r.MaxAttempts), Jitter: r.Jitter,
		MaxSnoozes: int(r.MaxSnoozes), MaxSnoozeTime: r.MaxSnoozeTime,
	}
}

// resolve makes paths begin where path says.
func (e *Entry) resolve(path func(string) string) {
	switch {
	case e.Module != nil:
		e.Module.Path = path(e.Module.Path)
	case e.Builtin != nil:
		e.Builtin.Dir = path(e.Builtin.Dir)
	case len(e.MCP.Command) > 0 && strings.ContainsAny(e.MCP.Command[0], `/\`):
		e.MCP.Command[0] = path(e.MCP.Command[0])
	}
}

// A page of linear memory, in bytes, and how many of them a module can have.
const (
	pageSize = 64 << 10
	maxPages = 1 << 16
)
