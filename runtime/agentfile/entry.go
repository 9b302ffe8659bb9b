//go:build !js

package agentfile

import (
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/runtime/tool"
)

// Entry is an entry of the list of tools. Exactly one of Module, Builtin and MCP is set.
type Entry struct {
	Module  *Module
	Builtin *Builtin
	MCP     *MCP

	// Retry is the policy for failed calls of the entry's tools; nil for none.
	Retry *tool.RetryConfig

	at *config.Node // for errors
}

// Module is a module, with the settings of its tools.
type Module struct {
	Path         string              // of a .wasm file or of a folder with a tool, or another name of a module
	Code         bool                // its tools can call the other tools of the run
	Tool         string              // the only tool to use; empty for all
	Rename       string              // its name for the agent; empty for its own
	AllowHosts   []string            // rules of egress.ParseRule
	AllowPrivate bool                // see egress.Rules
	Limits       event.SandboxLimits // zero fields are the host's defaults
}

// Builtin is a tool of package builtin.
type Builtin struct {
	Name   string // "fetch" or "read_file"
	Dir    string // what read_file may read
	Rename string // its name for the agent; empty for its own
}

// MCP is a server of the Model Context Protocol. Either the command or the address is set.
type MCP struct {
	Command []string          `yaml:"command"`
	Env     map[string]string `yaml:"env"` // $NAME and ${NAME} stand for variables of this process, $$ for a dollar
	URL     string            `yaml:"url"`

	Prefix   string        `yaml:"prefix"`
	Include  []string      `yaml:"include"`
	Exclude  []string      `yaml:"exclude"`
	Timeout  time.Duration `yaml:"timeout"` // of one call; zero leaves it to the run
	TextOnly bool          `yaml:"text_only"`

	// Headers are sent to a URL, with variables as in Env. Rename maps the server's names of
	// tools to other names.
	Headers map[string]string `yaml:"headers"`
	Rename  map[string]string `yaml:"rename"`

	// Check is "strict" to refuse arguments that do not match the schema of their tool. Otherwise the
	// server decides.
	Check string `yaml:"check"`

	// Changed is called when the tools may have changed. Tokens is the file with the OAuth token
	// for a URL, which Login obtains. An agent's file cannot set these.
	Changed func()
	Tokens  string
	Login   *mcptool.Login

	// Assistant is the client that the server is connected for, and OneAtATime bounds its calls, see
	// [mcptool.Options]. Likewise.
	Assistant  *mcptool.Assistant
	OneAtATime bool
}

// MaxOutput is the largest value of the output limit of a call, in bytes: an event must hold
// the output and other fields.
const MaxOutput = 8 << 20

// entry is an Entry in a file: a path, or a map.
type entry struct {
	Wasm              string   `yaml:"wasm"`
	Name              string   `yaml:"name"`
	AllowHosts        []string `yaml:"allow_hosts"`
	AllowPrivate      bool     `yaml:"allow_private"`
	config.CallLimits          // the keys of the schema

	Builtin string `yaml:"builtin"`
	Dir     string `yaml:"dir"`
	MCP     *MCP   `yaml:"mcp"`

	Rename string            `yaml:"rename"`
	Retry  *tool.RetryConfig `yaml:"retry"`
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (e *entry) UnmarshalText(path []byte) error {
	e.Wasm = string(path)
	return nil
}

// entry returns the entry with its paths as the system takes them.
func (f *File) entry(e entry, at *config.Node) Entry {
	made := Entry{MCP: e.MCP, Retry: e.Retry, at: at}
	switch {
	case e.Wasm != "":
		made.Module = &Module{
			Path: f.tool(e.Wasm), Tool: e.Name, Rename: e.Rename, AllowHosts: e.AllowHosts, AllowPrivate: e.AllowPrivate, Limits: e.Sandbox(),
		}
	case e.Builtin != "":
		made.Builtin = &Builtin{Name: e.Builtin, Dir: config.Beside(f.Path, e.Dir), Rename: e.Rename}
	case len(e.MCP.Command) > 0 && strings.ContainsAny(e.MCP.Command[0], `/\`):
		e.MCP.Command[0] = config.Beside(f.Path, e.MCP.Command[0])
	}
	return made
}
