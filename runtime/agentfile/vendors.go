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

// vendor is what this package has to know of a vendor. spec/agent.schema.json has the keys
// of a file that one takes.
type vendor struct {
	keyEnv  string // the environment variable that holds the key by convention; empty if it needs none
	keyless bool   // another address than the vendor's own may need no key
	connect func(VendorConfig) (provider.Provider, error)
}

// VendorConfig says how a vendor's server is reached.
type VendorConfig = converse.Config

// VendorNames returns the names of all vendors, sorted.
func VendorNames() []string { return slices.Sorted(maps.Keys(vendors)) }

// NewProvider connects to a vendor's server. Nothing is sent until the provider is used.
func NewProvider(name string, c VendorConfig) (provider.Provider, error) {
	v, ok := vendors[name]
	if !ok {
		return nil, fmt.Errorf("agentfile: unknown provider %q; known are %s", name, strings.Join(VendorNames(), ", "))
	}
	return v.connect(c)
}

var vendors = map[string]vendor{
	"anthropic":  {"ANTHROPIC_API_KEY", false, anthropic.New},
	"azure":      {"AZURE_OPENAI_API_KEY", false, openai.Azure.New},
	"bedrock":    {"", false, bedrock.New}, // which has the credentials of AWS
	"gemini":     {"GEMINI_API_KEY", false, gemini.New},
	"groq":       {"GROQ_API_KEY", false, openai.Groq.New},
	"ollama":     {"", false, openai.Ollama.New},
	"openai":     {"OPENAI_API_KEY", true, openai.OpenAI.New},
	"openrouter": {"OPENROUTER_API_KEY", true, openai.OpenRouter.New},
	"together":   {"TOGETHER_API_KEY", false, openai.Together.New},
	"vllm":       {"", false, openai.VLLM.New},
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
