//go:build !js

package agentfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/starling-host/starling/runtime/internal/anthropic"
	"github.com/starling-host/starling/runtime/internal/bedrock"
	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/internal/gemini"
	"github.com/starling-host/starling/runtime/internal/openai"
	"github.com/starling-host/starling/runtime/internal/script"
	"github.com/starling-host/starling/runtime/provider"
)

// Vendor says what a vendor has, and what it needs to be told.
type Vendor struct {
	KeyEnv   string   // the environment variable that holds the key by convention; empty if it needs none
	Keyless  bool     // another address than the vendor's own may need no key
	Address  bool     // it has no address of its own
	Versions bool     // it knows VendorConfig.APIVersion
	Regional bool     // it knows VendorConfig.Region, and the credentials of AWS in place of a key
	Headers  []string // the headers that can be set
	connect  func(VendorConfig) (provider.Provider, error)
}

// VendorConfig says how a vendor's server is reached.
type VendorConfig = converse.Config

// LookupVendor returns the vendor of a name, such as "anthropic".
func LookupVendor(name string) (Vendor, bool) {
	v, ok := vendors[name]
	return v, ok
}

// VendorNames returns the names of all vendors, sorted.
func VendorNames() []string { return slices.Sorted(maps.Keys(vendors)) }

// NewProvider connects to a vendor's server. Nothing is sent until the provider is used.
func NewProvider(name string, c VendorConfig) (provider.Provider, error) {
	v, ok := vendors[name]
	if !ok {
		return nil, fmt.Errorf("agentfile: there is no provider %q; there are %s", name, strings.Join(VendorNames(), ", "))
	}
	return v.connect(c)
}

var vendors = map[string]Vendor{
	"anthropic":  {KeyEnv: "ANTHROPIC_API_KEY", Versions: true, connect: anthropic.New},
	"azure":      {KeyEnv: "AZURE_OPENAI_API_KEY", Address: true, Versions: true, connect: openai.Azure.New},
	"bedrock":    {Regional: true, connect: bedrock.New},
	"gemini":     {KeyEnv: "GEMINI_API_KEY", Versions: true, connect: gemini.New},
	"groq":       {KeyEnv: "GROQ_API_KEY", connect: openai.Groq.New},
	"ollama":     {connect: openai.Ollama.New},
	"openai":     {KeyEnv: "OPENAI_API_KEY", Keyless: true, Versions: true, Headers: []string{"OpenAI-Organization"}, connect: openai.OpenAI.New},
	"openrouter": {KeyEnv: "OPENROUTER_API_KEY", Keyless: true, Headers: []string{"HTTP-Referer", "X-Title"}, connect: openai.OpenRouter.New},
	"together":   {KeyEnv: "TOGETHER_API_KEY", connect: openai.Together.New},
	"vllm":       {connect: openai.VLLM.New},
}

// The parts of a script: what a scripted model says, turn by turn.
type (
	Script         = script.Script
	ScriptTurn     = script.Turn
	ScriptToolCall = script.ToolCall
)

// NewScript returns the provider that answers as the script says.
func NewScript(s Script) (provider.Provider, error) { return script.New(s) }

// LoadScript reads a script from a YAML file.
func LoadScript(path string) (Script, error) { return script.Load(path) }

// ParseScript reads a script from YAML. The name stands in its errors.
func ParseScript(name string, data []byte) (Script, error) { return script.Parse(name, data) }
