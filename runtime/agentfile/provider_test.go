package agentfile

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/runtime/provider"
)

// env returns a getenv for pairs of names and values.
func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// spy is a server that notes who asks for what, and refuses.
func spy(t *testing.T) (url string, seen *string) {
	t.Helper()
	seen = new(string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := r.Header
		key := cmp.Or(h.Get("Authorization"), h.Get("X-Api-Key"), h.Get("Api-Key"), h.Get("X-Goog-Api-Key"))
		if scheme, _, signed := strings.Cut(key, " Credential="); signed {
			key = scheme
		}
		*seen = strings.TrimSpace(strings.Join([]string{r.URL.RequestURI(), key, h.Get("OpenAI-Organization"), h.Get("X-Title"), h.Get("Anthropic-Version")}, " "))
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	return server.URL, seen
}

// TestProviders has every provider ask a server, which sees the key.
func TestProviders(t *testing.T) {
	for name, c := range map[string]struct {
		keys string // of the file
		env  []string
		id   string
		want string
	}{
		"openai":             {"provider: openai\nbase_url: URL\nheaders: {OpenAI-Organization: acme}", []string{"OPENAI_API_KEY", "k1"}, "openai", "/v1/chat/completions Bearer k1 acme"},
		"openai, no key":     {"provider: openai\nbase_url: URL/v2", nil, "openai", "/v2/chat/completions"},
		"openai, its own":    {"provider: openai\nbase_url: URL\napi_key_env: OTHER", []string{"OPENAI_API_KEY", "k1", "OTHER", "k2"}, "openai", "/v1/chat/completions Bearer k2"},
		"azure":              {"provider: azure\nbase_url: URL\napi_version: 2024-10-21", []string{"AZURE_OPENAI_API_KEY", "k"}, "azure", "/openai/deployments/m/chat/completions?api-version=2024-10-21 k"},
		"groq":               {"provider: groq\nbase_url: URL/openai/v1", []string{"GROQ_API_KEY", "k"}, "groq", "/openai/v1/chat/completions Bearer k"},
		"together":           {"provider: together\nbase_url: URL", []string{"TOGETHER_API_KEY", "k"}, "together", "/v1/chat/completions Bearer k"},
		"ollama":             {"provider: ollama\nbase_url: URL", nil, "ollama", "/v1/chat/completions"},
		"vllm":               {"provider: vllm\nbase_url: URL\napi_key_env: K", []string{"K", "k"}, "vllm", "/v1/chat/completions Bearer k"},
		"openrouter":         {"provider: openrouter\nbase_url: URL/api/v1\nheaders: {X-Title: dice}", []string{"OPENROUTER_API_KEY", "k"}, "openrouter", "/api/v1/chat/completions Bearer k  dice"},
		"anthropic":          {"provider: anthropic\nbase_url: URL", []string{"ANTHROPIC_API_KEY", "k"}, "anthropic", "/v1/messages k   2023-06-01"},
		"anthropic, version": {"provider: anthropic\nbase_url: URL\napi_version: 2024-01-01", []string{"ANTHROPIC_API_KEY", "k"}, "anthropic", "/v1/messages k   2024-01-01"},
		"gemini":             {"provider: gemini\nbase_url: URL", []string{"GEMINI_API_KEY", "k"}, "gemini", "/v1beta/models/m:streamGenerateContent?alt=sse k"},
		"bedrock": {"provider: bedrock\nbase_url: URL\nregion: eu-central-1", []string{"AWS_ACCESS_KEY_ID", "i", "AWS_SECRET_ACCESS_KEY", "s"}, "bedrock",
			"/model/m/converse-stream AWS4-HMAC-SHA256"},
	} {
		t.Run(name, func(t *testing.T) {
			url, seen := spy(t)
			f, err := Parse("agent.yaml", []byte(strings.ReplaceAll(c.keys, "URL", url)+"\nmodel: m"))
			if err != nil {
				t.Fatal(err)
			}
			p, err := f.Provider(t.Context(), env(c.env...))
			if err != nil {
				t.Fatal(err)
			}
			if p.Info().ID != c.id {
				t.Errorf("got the provider %+v", p.Info())
			}
			stream, err := p.Stream(t.Context(), &provider.Request{Model: f.Model, Messages: []provider.Message{{Role: provider.RoleUser, Content: "Hello?"}}})
			if err == nil {
				_, err = stream.Next(t.Context())
			}
			if diff := gocmp.Diff(c.want, *seen); err == nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestEveryProviderIsTried finds vendors that TestProviders does not have.
func TestEveryProviderIsTried(t *testing.T) {
	for _, name := range VendorNames() {
		v := vendors[name]
		f := &File{Endpoint: Endpoint{Provider: name, BaseURL: "http://localhost:1", Region: "eu"}}
		p, err := f.Provider(t.Context(), env(v.keyEnv, "k", "AWS_ACCESS_KEY_ID", "i", "AWS_SECRET_ACCESS_KEY", "s"))
		if err != nil || p.Info().ID != name {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
}

func TestProviderErrors(t *testing.T) {
	for name, c := range map[string]struct {
		keys string
		env  []string
		want string
	}{
		"no key": {"provider: anthropic\nmodel: m", nil, `agent.yaml:1:11: the environment variable ANTHROPIC_API_KEY is not set
  1 | provider: anthropic
    |           ^
hint: export ANTHROPIC_API_KEY=KEY, or name another variable with api_key_env`},
		"no key where one is named": {"provider: vllm\nmodel: m\napi_key_env: K", nil, `agent.yaml:1:11: the environment variable K is not set
  1 | provider: vllm
    |           ^
hint: export K=KEY, or name another variable with api_key_env`},
		"no credentials": {"provider: bedrock\nmodel: m\nregion: eu", []string{"AWS_ACCESS_KEY_ID", "i"},
			"bedrock needs the environment variable AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, which `aws configure export-credentials --format env` prints for a profile"},
		"no region":                   {"provider: bedrock\nmodel: m", []string{"AWS_ACCESS_KEY_ID", "i", "AWS_SECRET_ACCESS_KEY", "s"}, "bedrock: no region: set the environment variable AWS_REGION, or the key region of the agent's file"},
		"a script that is not there":  {"provider: {script: none.yaml}", nil, "script: none.yaml: no such file or directory"},
		"a script that is not a list": {"provider: {script: testdata/map.yaml}", nil, "testdata/map.yaml:1:1: a script is a list of turns, and has at least one\n  1 | text: a\n    | ^\nhint: begin each turn with a dash, as in: - text: Hello."},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Parse("agent.yaml", []byte(c.keys))
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.Provider(t.Context(), env(c.env...))
			if diff := gocmp.Diff(c.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestScript(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "s.yaml"), []byte("- text: Hi"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Parse(filepath.Join(dir, "agent.yaml"), []byte("provider: {script: s.yaml}"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Provider(t.Context(), env())
	if err != nil || p.Info().ID != "script" {
		t.Errorf("%v, %v", p, err)
	}
}
