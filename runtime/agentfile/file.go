//go:build !js

package agentfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/spec"
)

// File is the content of an agent's file, checked as far as possible without opening other
// files.
type File struct {
	Path         string // of the file
	Name         string `yaml:"name"` // of the agent; by default the name of the file or, for agent.yaml, of its folder
	Model        string `yaml:"model"`
	Endpoint     Endpoint
	SystemPrompt string `yaml:"system"`

	// Params are provider-specific options, a CBOR map or nil.
	Params canon.Raw `yaml:"params"`

	// The bounds on a run. Zero is the default of the runtime.
	MaxTurns        int      `yaml:"max_turns"`
	MaxOutputTokens int      `yaml:"max_output_tokens"`
	StopSequences   []string `yaml:"stop_sequences"`

	// ModelAttempts bounds the attempts at a request that fails temporarily: one more than
	// the file's retries. Zero is the default of the runtime.
	ModelAttempts int

	Tools []Entry

	// Code makes the model call the tools from programs that it writes in this language, one of
	// [Programs], and in no other way. Empty: the model calls the tools itself.
	Code string

	// Trust is the path of the file that says which keys may sign the modules. Empty accepts all.
	Trust string `yaml:"trust"`

	// Variables are visible to the tools and not to the model: a canonical JSON object, or
	// nil. See tool.WithVariablesJSON.
	Variables json.RawMessage `yaml:"variables"`

	limits budget.Limits
	at     *config.Node // the provider, for errors
}

// Load reads an agent from a file. If the content is invalid, the error is a
// [*config.Error].
func Load(path string) (*File, error) {
	if info, err := os.Stat(path); err == nil && (info.IsDir() || filepath.Ext(path) == ".wasm" || filepath.Ext(path) == ".py") {
		return nil, fmt.Errorf("agentfile: %s is a tool, not an agent file", path)
	}
	data, err := config.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("agentfile: %w", err)
	}
	return Parse(path, data)
}

// Parse reads an agent from the content of a file. Relative paths start at the folder of
// path, which errors also name.
func Parse(path string, data []byte) (*File, error) {
	f := &File{Path: path}
	d := struct {
		*File
		*Endpoint
		Provider   scriptOrName  `yaml:"provider"`
		SystemFile string        `yaml:"system_file"`
		Retries    *int          `yaml:"retries"`
		Tools      []entry       `yaml:"tools"`
		Budget     budget.Limits `yaml:"budget"`
		Code       struct {
			Language string `yaml:"language"`
		} `yaml:"code"`
	}{File: f, Endpoint: &f.Endpoint}
	root, err := schema().Load(path, data, &d)
	if err != nil {
		return nil, err
	}
	f.at, f.limits, f.Code = root.At("provider"), d.Budget, d.Code.Language
	f.Endpoint.Provider, f.Endpoint.Script = cmp.Or(d.Provider.name, scripted), config.Beside(f.Path, d.Provider.Script)
	f.Trust = config.Beside(f.Path, f.Trust)
	f.Name, f.Model = cmp.Or(f.Name, nameOf(path)), cmp.Or(f.Model, scripted) // other providers require it
	if bytes.Equal(f.Params, emptyMap) {
		f.Params = nil
	}
	if d.Retries != nil {
		f.ModelAttempts = 1 + *d.Retries
	}
	if d.Tools != nil {
		f.Tools = make([]Entry, len(d.Tools))
	}
	for i, at := range root.At("tools").Items() {
		f.Tools[i] = f.entry(d.Tools[i], at)
	}
	if at := root.At("system_file"); at != nil {
		text, err := config.ReadFile(config.Beside(f.Path, d.SystemFile))
		if err == nil && !utf8.Valid(text) {
			err = fmt.Errorf("%s is not UTF-8 text", d.SystemFile)
		}
		if err != nil {
			return nil, at.Errorf("", "%v", err)
		}
		f.SystemPrompt = string(text)
	}
	return f, nil
}

var emptyMap = canon.Raw{0xa0} // in CBOR

var schema = sync.OnceValue(func() *config.Schema {
	return config.MustSchema(spec.AgentSchema(), config.Formats{"egress-host": config.Format(egress.ParseRule), "uri": config.CheckURL, "no-key": checkNoKey})
})

func checkNoKey(_ *work.Budget, text string) error {
	if slices.ContainsFunc(strings.Fields(text), looksLikeKey) {
		return errors.New("this looks like a key: a file holds no secrets")
	}
	return nil
}

// keyPrefixes begin the keys of vendors.
var keyPrefixes = []string{"sk-", "sk_", "gsk_", "AIza", "AKIA", "ASIA", "ABSK", "xai-", "hf_", "tgp_", "pplx-", "ghp_", "Bearer "}

// looksLikeKey guesses whether text is a secret. Keys begin with a vendor's prefix, or are
// many letters and digits. Names of variables are words between underscores, in upper or
// lower case.
func looksLikeKey(s string) bool {
	if slices.ContainsFunc(keyPrefixes, func(prefix string) bool { return strings.HasPrefix(s, prefix) }) {
		return true
	}
	words := strings.Contains(s, "_") && (strings.ToUpper(s) == s || strings.ToLower(s) == s)
	return len(s) >= 24 && !words && strings.ContainsAny(s, "0123456789") && alphanumeric().MatchString(s)
}

var alphanumeric = lazy.Regexp(`^[A-Za-z0-9_]+$`)

// tool resolves the name of a module: a path of the file, a URL such as oci://..., or the digest
// of a module in the database.
func (f *File) tool(name string) string {
	folder, layout := strings.CutPrefix(name, "oci-layout:")
	switch {
	case layout:
		return "oci-layout:" + config.Beside(f.Path, folder)
	case strings.Contains(name, "://"), len(name) == 64 && strings.Trim(name, "0123456789abcdef") == "":
		return name
	}
	return config.Beside(f.Path, name)
}

// Budget returns the budget of one run.
func (f *File) Budget() budget.Limits { return f.limits }

// BudgetCounts reports whether the agent can enforce its budget in US dollars, if any: the
// price of its model is known, or the model is a script.
func (f *File) BudgetCounts() bool {
	_, known := agent.Cost(f.Model, provider.Usage{})
	return known || f.limits.MaxUSD == 0 || f.Endpoint.Script != ""
}

// Agent returns the agent with a model and the tools that [File.OpenTools] has opened.
func (f *File) Agent(model provider.Provider, box *Toolbox) *agent.Agent {
	return &agent.Agent{
		Provider: model, Tools: box.Tools, Budget: f.limits,
		Config: agent.Config{
			Model: f.Model, SystemPrompt: f.SystemPrompt + box.told, Params: f.Params, StopSequences: f.StopSequences,
			MaxOutputTokens: f.MaxOutputTokens, MaxTurns: f.MaxTurns, ModelAttempts: f.ModelAttempts,
			Retries: box.Retries, InCode: box.inCode,
		},
	}
}

// nameOf is the name of an agent whose file does not set one.
func nameOf(path string) string {
	absolute, err := filepath.Abs(path)
	if err != nil {
		absolute = path
	}
	base := filepath.Base(absolute)
	name := strings.TrimSuffix(base, filepath.Ext(base))
	if name == "agent" {
		return filepath.Base(filepath.Dir(absolute))
	}
	return name
}
