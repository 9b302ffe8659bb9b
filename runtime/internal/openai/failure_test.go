package openai_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/internal/openai"
	"github.com/starling-host/starling/runtime/provider"
)

// TestErrorBodies has the forms in which servers report errors.
func TestErrorBodies(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status int
		media  string
		body   string
		want   string
		class  error
	}{
		{"OpenAI", 404, "application/json", `{"error":{"message":"The model does not exist","type":"invalid_request_error","param":"model","code":"model_not_found"}}`,
			"openai: status 404: The model does not exist (invalid_request_error, model_not_found, model)", nil},
		{"Ollama", 404, "application/json", `{"error":"model 'x' not found"}`, "openai: status 404: model 'x' not found", nil},
		{"vLLM", 400, "application/json", `{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}`, "openai: status 400: too long (BadRequestError, 400)", nil},
		{"FastAPI", 422, "application/json", `{"detail":[{"loc":["body"],"msg":"field required"}]}`, `openai: status 422: [{"loc":["body"],"msg":"field required"}]`, nil},
		{"Azure", 401, "application/json", `{"error":{"code":"401","message":"Access denied"}}`, "provider: not authorised: openai: status 401: Access denied (401)", provider.ErrAuth},
		{"an object without a message", 500, "application/json", `{"error":{"why":"no"}}`, `provider: server failure: openai: status 500: {"why":"no"}`, provider.ErrServer},
		{"lines and control characters", 502, "text/plain", "bad\r\n\x1b[31mgateway\n", "provider: server failure: openai: status 502: bad [31mgateway", provider.ErrServer},
		{"not UTF-8", 502, "text/plain", "bad\xff", "provider: server failure: openai: status 502: bad", provider.ErrServer},
		{"nothing", 429, "", "", "provider: rate limit: openai: status 429: no message", provider.ErrRateLimit},
		{"an error of status 200", 200, "application/json", `{"error":{"code":429,"message":"Slow down"}}`, "provider: rate limit: openai: status 429: Slow down (429)", provider.ErrRateLimit},
		{"an answer that is no stream", 200, "application/json", `{"choices":[]}`, `openai: malformed response: its type is "application/json", and not that of events`, nil},
		{"a page of a proxy", 200, "text/html; charset=utf-8", "<html>", `openai: malformed response: its type is "text/html", and not that of events`, nil},
		{"redirected", 302, "text/html", "moved", "openai: status 302: moved", nil},
		{"no content", 204, "", "", "openai: status 204: no message", nil},
	} {
		server := &answering{status: tc.status, header: http.Header{"Content-Type": {tc.media}}, body: tc.body}
		p, err := openai.OpenAI.New(converse.Config{APIKey: "k-1", HTTP: &http.Client{Transport: server}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Stream(t.Context(), hello("m"))
		if err == nil || err.Error() != tc.want || provider.Transient(err) != (tc.class != nil && tc.class != provider.ErrAuth) || tc.class != nil && !errors.Is(err, tc.class) {
			t.Errorf("%s: got  %v\nwant %s", tc.name, err, tc.want)
		}
	}
}

func TestErrorsInTheMiddle(t *testing.T) {
	for _, tc := range []struct {
		name, event string
		class       error
	}{
		{"a word for the limit", `{"error":{"message":"x","code":"rate_limit_exceeded"}}`, provider.ErrRateLimit},
		{"a word for the quota", `{"error":{"message":"x","type":"insufficient_quota"}}`, provider.ErrRateLimit},
		{"a word for the key", `{"error":{"message":"x","code":"invalid_api_key","type":"invalid_request_error"}}`, provider.ErrAuth},
		{"a word for the server", `{"error":{"message":"x","type":"server_error"}}`, provider.ErrServer},
		{"a number", `{"error":{"message":"x","code":502}}`, provider.ErrServer},
		{"a number in quotes", `{"error":{"message":"x","code":"503"}}`, provider.ErrServer},
		{"the caller's mistake", `{"error":{"message":"x","type":"invalid_request_error"}}`, nil},
		{"no class", `{"error":{"message":"x"}}`, nil},
	} {
		_, err := stream(t.Context(), hello("m"), "data: "+tc.event+"\n\n")
		if err == nil || !strings.Contains(err.Error(), "the server broke off: x") {
			t.Errorf("%s: got %v", tc.name, err)
		}
		for _, class := range []error{provider.ErrRateLimit, provider.ErrAuth, provider.ErrServer, provider.ErrNetwork} {
			if errors.Is(err, class) != (class == tc.class) {
				t.Errorf("%s: got %v, want the class %v", tc.name, err, tc.class)
			}
		}
	}
}

func TestAnEventThatIsTooLong(t *testing.T) {
	body := "data: " + strings.Repeat("x", 17<<20) + "\n\n"
	if _, err := stream(t.Context(), hello("m"), body); err == nil || !strings.Contains(err.Error(), "16 MiB") || provider.Transient(err) {
		t.Errorf("got %v", err)
	}
}
