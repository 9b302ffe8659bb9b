package agentfile_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/provider"
)

// TestImagesOfToolResults: each vendor whose models can see gets images in its own form, and
// the others get the text alone. Numbers in arguments and results keep their digits.
func TestImagesOfToolResults(t *testing.T) {
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		body = string(text)
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer server.Close()
	result := func(id string) provider.Message {
		return provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: id,
			Content: `{"content":[{"bytes":2,"number":1,"type":"image"}],"id":9007199254740993}`, Images: []provider.Image{{Type: "image/png", Data: []byte("hi")}}}}
	}
	req := &provider.Request{Messages: []provider.Message{
		{Role: provider.RoleUser, Content: "look"},
		{Role: provider.RoleAssistant, ToolUses: []provider.ToolUse{{CallID: "a", Name: "see", Args: []byte(`{"id":18446744073709551617}`)}, {CallID: "b", Name: "see", Args: []byte(`{}`)}}},
		result("a"), result("b"), {Role: provider.RoleUser, Content: "and?"},
	}}
	openai := `{"content":[{"text":"Image 1 of the result of the call a:","type":"text"},{"image_url":{"url":"data:image/png;base64,aGk="},"type":"image_url"},` +
		`{"text":"Image 1 of the result of the call b:","type":"text"},{"image_url":{"url":"data:image/png;base64,aGk="},"type":"image_url"}],"role":"user"},{"role":"user","content":"and?"}`
	for _, c := range []struct{ vendor, model, want string }{
		{"anthropic", "claude-sonnet-4-5", `{"source":{"data":"aGk=","media_type":"image/png","type":"base64"},"type":"image"}`},
		{"gemini", "gemini-2.5-pro", `{"inlineData":{"mimeType":"image/png","data":"aGk="}}`},
		{"openai", "gpt-5", openai}, {"openrouter", "x/y", openai},
		{"bedrock", "us.anthropic.claude-sonnet-4", `{"image":{"format":"png","source":{"bytes":"aGk="}}}`},
		{"bedrock", "mistral.large", ""}, {"ollama", "llama", ""}, {"groq", "llama", ""},
	} {
		getenv := func(name string) string {
			return map[string]string{"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}[name]
		}
		p, err := agentfile.NewProvider(c.vendor, agentfile.VendorConfig{APIKey: "k", BaseURL: server.URL, Region: "eu-west-1", Getenv: getenv})
		if err != nil {
			t.Fatal(err)
		}
		req.Model = c.model
		if _, err := p.Stream(t.Context(), req); err == nil {
			t.Errorf("%s: no error", c.vendor)
		}
		if c.want == "" && strings.Contains(body, "aGk=") || !strings.Contains(body, c.want) {
			t.Errorf("%s sends %s, want %s", c.vendor, body, c.want)
		}
		if strings.Count(body, "9007199254740993") != 2 || strings.Count(body, "18446744073709551617") != 1 {
			t.Errorf("%s loses digits: %s", c.vendor, body)
		}
	}
}
