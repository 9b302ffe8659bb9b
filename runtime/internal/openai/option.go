package openai

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"unicode"

	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

const defaultVersion = "v1"

// Server is a server of the protocol, or all that have no name here.
type Server struct {
	id, base string
	dialect  *dialect // nil: that of the host
}

// The known servers. VLLM and Azure are wherever the operator has them.
var (
	OpenAI     = Server{"openai", "https://api.openai.com", nil}
	Azure      = Server{"azure", "", &azureCloud} // at a resource, such as "https://name.openai.azure.com"
	Groq       = Server{"groq", "https://api.groq.com/openai/v1", &groqCloud}
	Together   = Server{"together", "https://api.together.xyz/v1", &compatible}
	Ollama     = Server{"ollama", "http://localhost:11434/v1", &ollama}
	VLLM       = Server{"vllm", "http://localhost:8000", &vLLM}
	OpenRouter = Server{"openrouter", "https://openrouter.ai/api/v1", &router} // with the models of many vendors
)

// client makes requests.
type client struct {
	converse.Config
	endpoint url.URL
	dialect  dialect
}

// New returns a Provider. It fails without a key for api.openai.com and openrouter.ai, and for an
// invalid setting.
//
// The base URL has the path before "/chat/completions". Without a path, the API version becomes the
// path; an existing version in the path is replaced. For Azure, a version that is a date, such as
// "2024-10-21", goes into the query, and a request names a deployment as its model; with "v1", the
// default, it names a model. Headers are such as OpenAI-Organization, or HTTP-Referer and X-Title,
// which identify the application to OpenRouter.
func (s Server) New(c converse.Config) (provider.Provider, error) {
	c.ID = cmp.Or(c.ID, s.id)
	base, err := parseBase(cmp.Or(c.BaseURL, s.base))
	if err != nil {
		return nil, err
	}
	switch {
	case c.APIKey == "" && (base.Hostname() == "api.openai.com" || s == OpenRouter && base.Hostname() == "openrouter.ai"):
		return nil, fmt.Errorf("%s: no API key: %s needs one", s.id, base.Hostname())
	case strings.ContainsFunc(c.APIKey, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return nil, errors.New("openai: the API key has white space in it")
	}
	d := dialectOf(base.Hostname())
	if s.dialect != nil {
		d = *s.dialect
	}
	if s == Azure {
		c.APIVersion = cmp.Or(c.APIVersion, defaultVersion)
	}
	endpoint := d.locate(base, c.APIVersion)
	c.APIVersion = cmp.Or(c.APIVersion, versionOf(base.Path), defaultVersion)
	return &converse.API{
		Config: c, Name: c.ID, Key: c.APIKey, Translate: (&client{c, endpoint, d.at(c.APIVersion)}).translate, Fault: refusal, Untyped: true,
		RequestID: func(h http.Header) string { return cmp.Or(h.Get("X-Request-Id"), h.Get("X-Generation-Id")) }, // the latter is OpenRouter's
	}, nil
}

func parseBase(base string) (*url.URL, error) {
	u, err := url.Parse(base)
	if parsing := new(url.Error); errors.As(err, &parsing) {
		err = parsing.Err // without the URL, which may have a password in it
	}
	if err != nil {
		return nil, fmt.Errorf("openai: the base URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("openai: the base URL %q is not like https://host/v1", u.Redacted())
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = ""
	return u, nil
}

var versionPattern = lazy.Regexp(`^v\d+(alpha|beta)?\d*$`)

// versionOf returns the last element of a path if it is a version.
func versionOf(p string) string {
	if last := path.Base(p); versionPattern().MatchString(last) {
		return last
	}
	return ""
}

// dialect describes how a server differs from the others.
type dialect struct {
	maxTokens string // the field for the limit of the output
	topK      bool   // has top_k
	extras    bool   // has fields that OpenAI does not have
	reasoning string // the field of a message that takes earlier reasoning, or ""
	azure     bool   // deployments, versions that are dates, the header api-key
	uncounted bool   // refuses to be asked for the counts of tokens
	images    bool   // its models accept images; others would refuse the request
}

var (
	openAI     = dialect{maxTokens: "max_completion_tokens", images: true}
	azureCloud = dialect{maxTokens: "max_completion_tokens", azure: true, images: true}
	groqCloud  = dialect{maxTokens: "max_completion_tokens", extras: true}
	deepSeek   = dialect{maxTokens: "max_tokens", extras: true, reasoning: "reasoning_content"}
	router     = dialect{maxTokens: "max_tokens", topK: true, extras: true, reasoning: "reasoning", images: true}
	vLLM       = dialect{maxTokens: "max_tokens", topK: true, extras: true, reasoning: "reasoning"}
	ollama     = dialect{maxTokens: "max_tokens", extras: true}
	compatible = dialect{maxTokens: "max_tokens", topK: true, extras: true}
	unknown    = dialect{maxTokens: "max_tokens", topK: true, extras: true, images: true}
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
	return unknown
}

// locate returns where requests go. For deployments of Azure the path lacks the
// model, which each request adds.
func (d dialect) locate(base *url.URL, version string) url.URL {
	u := *base
	if d.azure && u.Path == "" {
		u.Path = "/openai"
	}
	switch {
	case d.azure && isDate(version):
		u.RawQuery = url.Values{"api-version": {version}}.Encode()
		return u
	case version == "" && u.Path == "":
		u.Path = "/" + defaultVersion
	case version != "":
		u.Path = strings.TrimSuffix(u.Path, "/"+versionOf(u.Path)) + "/" + version
	}
	u.Path += "/chat/completions"
	return u
}

// isDate distinguishes Azure's dated versions, such as "2024-08-01-preview", from "v1".
func isDate(version string) bool { return strings.HasPrefix(version, "20") }

// at returns the dialect of a version. Azure's versions before September 2024
// know neither stream_options nor max_completion_tokens.
func (d dialect) at(version string) dialect {
	if d.azure && isDate(version) && version < "2024-09" {
		d.maxTokens, d.uncounted = "max_tokens", true
	}
	return d
}
