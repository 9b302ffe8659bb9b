//go:build !js

package agentfile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/config"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
)

// File is an agent as its file has it. Everything in it has been checked as far as
// the file alone allows.
type File struct {
	Path         string // of the file
	Name         string // of the agent; by default the name of the file or, for agent.yaml, of its folder
	Model        string
	Endpoint     Endpoint
	SystemPrompt string

	// Params are options of the one provider, a CBOR map or nil.
	Params canon.Raw

	// The bounds on a run. Zero leaves one to the runtime.
	MaxTurns, MaxOutputTokens int
	StopSequences             []string

	// ModelAttempts is how often a request may be made that fails in a way that may
	// pass: one more than the file's retries. Zero leaves it to the runtime.
	ModelAttempts int

	Tools []Entry

	// Code has the model write programs in JavaScript, in which it calls the tools. It is
	// not told of them otherwise.
	Code bool

	// Variables are told to the tools and not to the model: a canonical JSON object,
	// or nil. See tool.WithVariablesJSON.
	Variables json.RawMessage

	limits budget.Limits
	at     *config.Node // the provider, for errors
}

// Load reads an agent from a file. What is wrong with its content is a
// [*config.Error].
func Load(path string) (*File, error) {
	if info, err := os.Stat(path); err == nil && (info.IsDir() || filepath.Ext(path) == ".wasm") {
		return nil, fmt.Errorf("agentfile: %s is a tool and not the file of an agent, which lists tools", path)
	}
	data, err := config.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("agentfile: %w", err)
	}
	return Parse(path, data)
}

// Parse reads an agent from the content of a file. Relative paths begin at the
// folder of the path, which also stands in errors.
func Parse(path string, data []byte) (*File, error) {
	root, err := config.Parse(path, data)
	if err != nil {
		return nil, err
	}
	var d document
	if err := root.Decode(&d); err != nil {
		return nil, err
	}
	f := d.file(path)
	f.at = root.Get("provider")
	for i := range f.Tools {
		f.Tools[i].resolve(f.path)
	}
	if at := root.Get("system_file"); at != nil {
		if f.SystemPrompt, err = f.readSystem(d.SystemFile); err != nil {
			return nil, at.Errorf("", "%v", err)
		}
	}
	return f, nil
}

// path returns where a path of the file leads.
func (f *File) path(name string) string {
	if filepath.IsAbs(name) || name == "" {
		return name
	}
	return filepath.Join(filepath.Dir(f.Path), name)
}

func (f *File) readSystem(name string) (string, error) {
	text, err := config.ReadFile(f.path(name))
	if err != nil {
		return "", err
	}
	if !utf8.Valid(text) {
		return "", fmt.Errorf("%s is not UTF-8 text", name)
	}
	return string(text), nil
}

// Budget returns what one run may spend.
func (f *File) Budget() budget.Limits { return f.limits }

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

// javascript is the language in which a model writes programs.
const javascript = "javascript"

// document is the content of a file.
type document struct {
	Name            word              `yaml:"name"`
	Provider        choice            `yaml:"provider,required"`
	Model           word              `yaml:"model"`
	BaseURL         address           `yaml:"base_url"`
	APIVersion      word              `yaml:"api_version"`
	APIKeyEnv       variable          `yaml:"api_key_env"`
	Region          word              `yaml:"region"`
	Headers         map[string]string `yaml:"headers"`
	System          string            `yaml:"system"`
	SystemFile      string            `yaml:"system_file"`
	Params          object            `yaml:"params"`
	MaxTurns        positive          `yaml:"max_turns"`
	MaxOutputTokens positive          `yaml:"max_output_tokens"`
	StopSequences   []word            `yaml:"stop_sequences"`
	Retries         *attempts         `yaml:"retries"`
	Tools           []Entry           `yaml:"tools"`
	Code            *struct {
		Language word `yaml:"language,required"`
	} `yaml:"code"`
	Budget    allowances `yaml:"budget"`
	Variables object     `yaml:"variables"`
}

// allowances are the axes of a budget.
type allowances struct {
	InputTokens  count  `yaml:"input_tokens"`
	OutputTokens count  `yaml:"output_tokens"`
	USD          money  `yaml:"usd"`
	WallClock    period `yaml:"wall_clock"`
	Fuel         count  `yaml:"fuel"`
	Effects      count  `yaml:"effects"`
	EgressBytes  size   `yaml:"egress_bytes"`
}

func (a allowances) limits() budget.Limits {
	return budget.Limits{
		MaxInputTokens: int64(a.InputTokens), MaxOutputTokens: int64(a.OutputTokens), MaxUSD: float64(a.USD),
		MaxWallClock: time.Duration(a.WallClock), MaxFuel: uint64(a.Fuel), MaxEffects: uint64(a.Effects),
		MaxEgressBytes: uint64(a.EgressBytes),
	}
}

func (d *document) file(path string) *File {
	f := &File{
		Path: path, Name: string(d.Name), Model: string(d.Model), SystemPrompt: d.System, Params: d.Params.cbor(), Variables: d.Variables.json,
		MaxTurns: int(d.MaxTurns), MaxOutputTokens: int(d.MaxOutputTokens), Tools: d.Tools, Code: d.Code != nil, limits: d.Budget.limits(),
		Endpoint: Endpoint{
			Provider: d.Provider.name, BaseURL: string(d.BaseURL), APIVersion: string(d.APIVersion),
			APIKeyEnv: string(d.APIKeyEnv), Region: string(d.Region), Headers: d.Headers,
		},
	}
	f.Endpoint.Script = f.path(d.Provider.script)
	for _, s := range d.StopSequences {
		f.StopSequences = append(f.StopSequences, string(s))
	}
	if d.Retries != nil {
		f.ModelAttempts = 1 + int(*d.Retries)
	}
	if f.Model == "" {
		f.Model = scripted // of the others it is required
	}
	if f.Name == "" {
		f.Name = nameOf(path)
	}
	return f
}

// nameOf is the name of an agent whose file does not say it.
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

// DecodeYAML implements [config.Decoder]. Keys that are in the wrong place are
// refused before anything that could show them.
func (d *document) DecodeYAML(n *config.Node) error {
	for _, key := range []string{"api_key", "apikey", "key", "token", "secret"} {
		if at := n.Get(key); at != nil {
			return at.Hidden().Errorf(hintKey, "%q has no place here: a file holds no secrets", key)
		}
	}
	type fields document
	if err := n.Decode((*fields)(d)); err != nil {
		return err
	}
	if d.Code != nil && d.Code.Language != javascript {
		return n.Get("code").Get("language").Errorf("write: code: {language: "+javascript+"}", "a model writes programs in %s, and not in %q", javascript, d.Code.Language)
	}
	if at := n.Get("system_file"); at != nil && n.Get("system") != nil {
		return at.Errorf("", `an agent has "system" or "system_file", not both`)
	}
	return d.checkVendor(n)
}
