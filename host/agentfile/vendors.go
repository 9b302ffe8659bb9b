package agentfile

import (
	"cmp"
	"errors"

	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/anthropic"
	"github.com/starling-host/starling/runtime/provider/bedrock"
	"github.com/starling-host/starling/runtime/provider/gemini"
	"github.com/starling-host/starling/runtime/provider/openai"
	"github.com/starling-host/starling/runtime/provider/openrouter"
)

// vendor is a provider that a file can name.
type vendor struct {
	keyEnv   string   // where the key is by default; empty if it needs none
	keyless  bool     // at another address it may need no key
	address  bool     // it has no address of its own
	versions bool     // has api_version
	regional bool     // has region, and the credentials of AWS in place of a key
	headers  []string // that can be set
	connect  func(connection) (provider.Provider, error)
}

// connection is what an adapter is made of.
type connection struct {
	Endpoint
	key    string
	getenv func(string) string
}

const headerOrganization = "OpenAI-Organization"

var vendors = map[string]vendor{
	"anthropic":  {keyEnv: "ANTHROPIC_API_KEY", versions: true, connect: connectAnthropic},
	"azure":      {keyEnv: "AZURE_OPENAI_API_KEY", address: true, versions: true, connect: connectAzure},
	"bedrock":    {regional: true, connect: connectBedrock},
	"gemini":     {keyEnv: "GEMINI_API_KEY", versions: true, connect: connectGemini},
	"groq":       {keyEnv: "GROQ_API_KEY", connect: openAI(openai.Groq())},
	"ollama":     {connect: openAI(openai.Ollama())},
	"openai":     {keyEnv: "OPENAI_API_KEY", keyless: true, versions: true, headers: []string{headerOrganization}, connect: openAI()},
	"openrouter": {keyEnv: "OPENROUTER_API_KEY", keyless: true, headers: []string{headerReferer, headerTitle}, connect: connectOpenRouter},
	"together":   {keyEnv: "TOGETHER_API_KEY", connect: openAI(openai.Together())},
	"vllm":       {connect: openAI(openai.VLLM("http://localhost:8000"))},
}

// openAI connects to a server that speaks OpenAI's protocol.
func openAI(preset ...openai.Option) func(connection) (provider.Provider, error) {
	return func(c connection) (provider.Provider, error) {
		opts := append(preset[:len(preset):len(preset)], openai.WithAPIKey(c.key), openai.WithOrganization(c.Headers[headerOrganization]))
		if c.BaseURL != "" {
			opts = append(opts, openai.WithBaseURL(c.BaseURL))
		}
		if c.APIVersion != "" {
			opts = append(opts, openai.WithAPIVersion(c.APIVersion))
		}
		return openai.New(opts...)
	}
}

func connectAzure(c connection) (provider.Provider, error) {
	return openai.New(openai.Azure(c.BaseURL, c.APIVersion), openai.WithAPIKey(c.key))
}

// The headers that name the application to OpenRouter.
const (
	headerReferer = "HTTP-Referer"
	headerTitle   = "X-Title"
)

func connectOpenRouter(c connection) (provider.Provider, error) {
	return openrouter.New(openrouter.WithAPIKey(c.key), openrouter.WithBaseURL(c.BaseURL),
		openrouter.WithHTTPReferer(c.Headers[headerReferer]), openrouter.WithXTitle(c.Headers[headerTitle]))
}

func connectAnthropic(c connection) (provider.Provider, error) {
	opts := []anthropic.Option{anthropic.WithAPIKey(c.key)}
	if c.BaseURL != "" {
		opts = append(opts, anthropic.WithBaseURL(c.BaseURL))
	}
	if c.APIVersion != "" {
		opts = append(opts, anthropic.WithAPIVersion(c.APIVersion))
	}
	return anthropic.New(opts...)
}

func connectGemini(c connection) (provider.Provider, error) {
	opts := []gemini.Option{gemini.WithAPIKey(c.key)}
	if c.BaseURL != "" {
		opts = append(opts, gemini.WithBaseURL(c.BaseURL))
	}
	if c.APIVersion != "" {
		opts = append(opts, gemini.WithAPIVersion(c.APIVersion))
	}
	return gemini.New(opts...)
}

// connectBedrock takes credentials from the variables that AWS's own programs use.
func connectBedrock(c connection) (provider.Provider, error) {
	region := cmp.Or(c.Region, c.getenv("AWS_REGION"), c.getenv("AWS_DEFAULT_REGION"))
	id, secret := c.getenv("AWS_ACCESS_KEY_ID"), c.getenv("AWS_SECRET_ACCESS_KEY")
	if id == "" || secret == "" {
		return nil, errors.New("agentfile: bedrock needs the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, " +
			"which `aws configure export-credentials --format env` prints for a profile")
	}
	return bedrock.New(bedrock.WithCredentials(id, secret, c.getenv("AWS_SESSION_TOKEN")),
		bedrock.WithRegion(region), bedrock.WithBaseEndpoint(c.BaseURL))
}
