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

// vendor describes a vendor. spec/agent.schema.json lists its keys in a file.
type vendor struct {
	keyEnv  string // the environment variable that holds the key by convention; empty if it needs none
	keyless bool   // an address other than the vendor's own may need no key
	connect func(VendorConfig) (provider.Provider, error)
}

// VendorConfig configures the connection to a vendor's server.
type VendorConfig = converse.Config

// VendorNames returns the names of all vendors, sorted.
func VendorNames() []string { return slices.Sorted(maps.Keys(vendors)) }

// NewProvider connects to a vendor's server. Nothing is sent until the provider is used.
func NewProvider(name string, c VendorConfig) (provider.Provider, error) {
	v, ok := vendors[name]
	if !ok {
		return nil, fmt.Errorf("agentfile: unknown provider %q; want one of %s", name, strings.Join(VendorNames(), ", "))
	}
	return v.connect(c)
}

var vendors = map[string]vendor{
	"anthropic":  {"ANTHROPIC_API_KEY", false, anthropic.New},
	"azure":      {"AZURE_OPENAI_API_KEY", false, openai.Azure.New},
	"bedrock":    {"", false, bedrock.New}, // which reads the credentials of AWS
	"gemini":     {"GEMINI_API_KEY", false, gemini.New},
	"groq":       {"GROQ_API_KEY", false, openai.Groq.New},
	"ollama":     {"", false, openai.Ollama.New},
	"openai":     {"OPENAI_API_KEY", true, openai.OpenAI.New},
	"openrouter": {"OPENROUTER_API_KEY", true, openai.OpenRouter.New},
	"together":   {"TOGETHER_API_KEY", false, openai.Together.New},
	"vllm":       {"", false, openai.VLLM.New},
}

// The parts of a script: the answers of a scripted model, turn by turn.
type (
	Script         = script.Script
	ScriptTurn     = script.Turn
	ScriptToolCall = script.ToolCall
)

// NewScript returns a provider that answers from the script.
func NewScript(s Script) (provider.Provider, error) { return script.New(s) }

// LoadScript reads a script from a YAML file.
func LoadScript(path string) (Script, error) { return script.Load(path) }

// ParseScript reads a script from YAML. Errors mention the name.
func ParseScript(name string, data []byte) (Script, error) { return script.Parse(name, data) }
