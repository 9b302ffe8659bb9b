package openai

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
)

// dialect is in what a server differs from the others.
type dialect struct {
	maxTokens string // the field for the limit of the output
	topK      bool   // has top_k
	extras    bool   // has fields that OpenAI does not have, see params.go
	reasoning string // the field of a message that takes earlier reasoning, or ""
	azure     bool   // deployments, versions that are dates, the header api-key
	uncounted bool   // refuses to be asked for the counts of tokens
}

var (
	openAI     = dialect{maxTokens: "max_completion_tokens"}
	azureCloud = dialect{maxTokens: "max_completion_tokens", azure: true}
	groqCloud  = dialect{maxTokens: "max_completion_tokens", extras: true}
	deepSeek   = dialect{maxTokens: "max_tokens", extras: true, reasoning: "reasoning_content"}
	router     = dialect{maxTokens: "max_tokens", topK: true, extras: true, reasoning: "reasoning"}
	vLLM       = dialect{maxTokens: "max_tokens", topK: true, extras: true, reasoning: "reasoning"}
	ollama     = dialect{maxTokens: "max_tokens", extras: true}
	compatible = dialect{maxTokens: "max_tokens", topK: true, extras: true}
)

func dialectOf(host string) dialect {
	switch {
	case host == "api.openai.com":
		return openAI
	case strings.HasSuffix(host, ".openai.azure.com"):
		return azureCloud
	case host == "api.groq.com":
		return groqCloud
	case host == "api.deepseek.com":
		return deepSeek
	case host == "openrouter.ai":
		return router
	}
	return compatible
}

// server is the option for a well known one.
func server(id, base string, d dialect) Option {
	return func(s *settings) { s.id, s.base, s.dialect = id, base, &d }
}

// Azure is a resource of Azure OpenAI, such as "https://name.openai.azure.com".
// With a version that is a date, such as "2024-10-21", the model of a request is
// the name of a deployment. With "v1" or "" it is Azure's version 1, where a
// model is a model.
func Azure(endpoint, version string) Option {
	version = cmp.Or(version, defaultVersion)
	return func(s *settings) {
		server("azure", endpoint, azureCloud)(s)
		s.version = &version
	}
}

// Groq is api.groq.com. It needs a key.
func Groq() Option { return server("groq", "https://api.groq.com/openai/v1", groqCloud) }

// Together is api.together.xyz. It needs a key.
func Together() Option { return server("together", "https://api.together.xyz/v1", compatible) }

// Ollama is an Ollama on this machine, at its usual port.
func Ollama() Option { return server("ollama", "http://localhost:11434/v1", ollama) }

// VLLM is a vLLM at an address such as "http://localhost:8000".
func VLLM(baseURL string) Option { return server("vllm", baseURL, vLLM) }

// OpenRouter is openrouter.ai, or what stands for it at another address. Package
// openrouter adds the headers that name the application.
func OpenRouter(baseURL string) Option { return server("openrouter", baseURL, router) }

// locate returns where requests go. For deployments of Azure the path lacks the
// model, see target.
func (d dialect) locate(base *url.URL, version *string) url.URL {
	u := *base
	if d.azure && u.Path == "" {
		u.Path = "/openai"
	}
	switch {
	case version != nil && d.azure && isDate(*version):
		u.RawQuery = url.Values{"api-version": {*version}}.Encode()
		return u
	case version == nil && u.Path == "":
		u.Path = "/" + defaultVersion
	case version != nil && *version != "":
		u.Path = strings.TrimSuffix(u.Path, "/"+versionOf(u.Path)) + "/" + *version
	}
	u.Path += "/chat/completions"
	return u
}

// isDate tells Azure's dated versions, such as "2024-08-01-preview", from "v1".
func isDate(version string) bool { return strings.HasPrefix(version, "20") }

// at returns the dialect of a version. Those of Azure before September 2024 know
// neither stream_options nor max_completion_tokens.
func (d dialect) at(version string) dialect {
	if d.azure && isDate(version) && version < "2024-09" {
		d.maxTokens, d.uncounted = "max_tokens", true
	}
	return d
}

// target is the address for a model.
func (c *client) target(model string) string {
	if u := c.endpoint; u.RawQuery != "" {
		return u.JoinPath("deployments", url.PathEscape(model), "chat/completions").String()
	}
	return c.endpoint.String()
}

func (c *client) authorise(h http.Header) {
	switch {
	case c.key == "":
	case c.dialect.azure:
		h.Set("Api-Key", c.key)
	default:
		h.Set("Authorization", "Bearer "+c.key)
	}
	if c.organization != "" {
		h.Set("OpenAI-Organization", c.organization)
	}
}
