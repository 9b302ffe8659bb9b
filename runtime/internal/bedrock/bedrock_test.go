package bedrock_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/internal/bedrock"
	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/providertest"
)

func TestNew(t *testing.T) {
	with := func(change func(*converse.Config)) converse.Config {
		c := configuration()
		change(&c)
		return c
	}
	for name, tc := range map[string]struct {
		config converse.Config
		want   string
	}{
		"nothing":             {converse.Config{}, "AWS_ACCESS_KEY_ID"},
		"no credentials":      {converse.Config{Region: "us-east-1"}, "AWS_ACCESS_KEY_ID"},
		"no region":           {with(func(c *converse.Config) { c.Region = "" }), "no region"},
		"no host":             {with(func(c *converse.Config) { c.BaseURL = "https://" }), "base URL"},
		"a password":          {with(func(c *converse.Config) { c.BaseURL = "https://u:geheim@host" }), "bedrock: the base URL has a user or a password in it"},
		"another scheme":      {with(func(c *converse.Config) { c.BaseURL = "ftp://host" }), "base URL"},
		"everything is right": {configuration(), ""},
	} {
		p, err := bedrock.New(tc.config)
		if (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) || p != nil) {
			t.Errorf("%s: got %v, %v, want %q", name, p, err, tc.want)
		}
	}
}

func TestInfo(t *testing.T) {
	for id, want := range map[string]provider.Info{
		"":     {ID: "bedrock", APIVersion: "2023-09-30"},
		"fips": {ID: "fips", APIVersion: "2023-09-30"},
	} {
		c := configuration()
		c.ID = id
		p, err := bedrock.New(c)
		if err != nil {
			t.Fatal(err)
		}
		if p.Info() != want {
			t.Errorf("got %+v, want %+v", p.Info(), want)
		}
	}
}

func sent(t *testing.T, req *provider.Request, region ...string) (*http.Request, map[string]any, error) {
	t.Helper()
	body := string(frames(t, "messageStop {\"stopReason\":\"end_turn\"}\nmetadata {}"))
	return providertest.Sent(t, req, "application/vnd.amazon.eventstream", body, func(url string) (provider.Provider, error) {
		c := configuration()
		c.BaseURL = url
		if len(region) > 0 {
			c.Region = region[0]
		}
		return bedrock.New(c)
	})
}

// TestAddress has the region in the signature, and an ARN in the path.
func TestAddress(t *testing.T) {
	req := providertest.Question(nil)
	req.Model = "arn:aws:bedrock:us-east-1:123456789012:prompt/PROMPT12345:1"
	r, body, err := sent(t, req, "eu-central-1")
	if err != nil {
		t.Fatal(err)
	}
	if want := "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Aprompt%2FPROMPT12345%3A1/converse-stream"; r.RequestURI != want {
		t.Errorf("got the target %s, want %s", r.RequestURI, want)
	}
	if auth := r.Header.Get("Authorization"); !strings.Contains(auth, "/eu-central-1/bedrock/aws4_request") {
		t.Errorf("got the signature %s", auth)
	}
	want := map[string]any{"messages": []any{map[string]any{"role": "user", "content": []any{map[string]any{"text": "Hello?"}}}}}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("a prompt does not allow more than its messages (-want +got):\n%s", diff)
	}
}

func TestToolChoice(t *testing.T) {
	type object = map[string]any
	for name, tc := range map[string]struct {
		choice string
		want   any
	}{
		"not said": {"", nil},
		"auto":     {"auto", object{"auto": object{}}},
		"any":      {"any", object{"any": object{}}},
		"a tool":   {"ping", object{"tool": object{"name": "ping"}}},
	} {
		req := providertest.Question(nil)
		req.ToolChoice, req.Tools = tc.choice, []provider.ToolDefinition{{Name: "ping"}}
		_, body, err := sent(t, req)
		if err != nil {
			t.Fatal(err)
		}
		config, _ := body["toolConfig"].(object)
		if diff := cmp.Diff(tc.want, config["toolChoice"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestTopK(t *testing.T) {
	ten := 10
	for name, tc := range map[string]struct {
		topK   *int
		fields map[string]any
		want   any
	}{
		"neither": {nil, nil, nil},
		"alone":   {&ten, nil, map[string]any{"top_k": 10.0}},
		"merged":  {&ten, map[string]any{"a": "b"}, map[string]any{"a": "b", "top_k": 10.0}},
		"a field": {nil, map[string]any{"top_k": 7}, map[string]any{"top_k": 7.0}},
	} {
		req := providertest.Question(nil)
		if tc.fields != nil {
			req = providertest.Question(map[string]any{"additionalModelRequestFields": tc.fields})
		}
		req.TopK = tc.topK
		_, body, err := sent(t, req)
		if diff := cmp.Diff(tc.want, body["additionalModelRequestFields"]); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestHistory covers what the golden request lacks: redacted reasoning, reasoning
// without a signature, arguments that are not an object or have an empty key,
// empty results.
func TestHistory(t *testing.T) {
	req := providertest.Question(nil)
	req.Messages = append(req.Messages,
		provider.Message{Role: provider.RoleAssistant, Content: "Hm.", Reasoning: []provider.Reasoning{{Content: "So."}, {Content: "/wCAfw==", Redacted: true}},
			ToolUses: []provider.ToolUse{{CallID: "1", Name: "ping", Args: json.RawMessage(`"{broken"`)}, {CallID: "2", Name: "ping", Args: json.RawMessage(`{"":9007199254740993}`)}}},
		provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "1", Content: "no", IsError: true}},
		provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "2"}},
		provider.Message{Role: provider.RoleUser, Content: "Go on."},
	)
	_, body, err := sent(t, req)
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	want := []any{
		object{"role": "user", "content": []any{object{"text": "Hello?"}}},
		object{"role": "assistant", "content": []any{
			object{"reasoningContent": object{"reasoningText": object{"text": "So."}}},
			object{"reasoningContent": object{"redactedContent": "/wCAfw=="}},
			object{"text": "Hm."},
			object{"toolUse": object{"toolUseId": "1", "name": "ping", "input": object{"arguments": "{broken"}}},
			object{"toolUse": object{"toolUseId": "2", "name": "ping", "input": object{"": 9007199254740993.0}}},
		}},
		object{"role": "user", "content": []any{
			object{"toolResult": object{"toolUseId": "1", "status": "error", "content": []any{object{"text": "no"}}}},
			object{"toolResult": object{"toolUseId": "2", "content": []any{}}},
			object{"text": "Go on."},
		}},
	}
	if diff := cmp.Diff(want, body["messages"]); diff != "" {
		t.Errorf("wrong messages (-want +got):\n%s", diff)
	}
}

func TestRefusedRequests(t *testing.T) {
	with := func(change func(*provider.Request)) *provider.Request {
		req := providertest.Question(nil)
		change(req)
		return req
	}
	option := func(name string, value any) *provider.Request {
		return providertest.Question(map[string]any{name: value})
	}
	twice := option("additionalModelRequestFields", map[string]any{"top_k": 1})
	twice.TopK = new(2)
	for name, tc := range map[string]struct {
		req  *provider.Request
		want string
	}{
		"a misspelt option":           {option("guardRailConfig", 1), `unknown option "guardRailConfig", known are additionalModelRequestFields,`},
		"a misspelt part of one":      {option("guardrailConfig", map[string]any{"guardrailIdentifer": "a"}), `option "guardrailConfig": json: unknown field "guardrailIdentifer"`},
		"a misspelt schema":           {option("outputConfig", map[string]any{"textFormat": map[string]any{"structure": map[string]any{"jsonScheme": 1}}}), `option "outputConfig"`},
		"a variable that is none":     {option("promptVariables", map[string]any{"a": "b"}), `option "promptVariables"`},
		"fields that are none":        {option("additionalModelRequestFields", "a"), `option "additionalModelRequestFields"`},
		"a temperature that is none":  {option("temperature", "hot"), `option "temperature"`},
		"top_k twice":                 {twice, "it has a top_k, and so has the request"},
		"no tool choice of that name": {with(func(r *provider.Request) { r.ToolChoice = "pong" }), `no tool of the request is called "pong"`},
		"none as a tool choice":       {with(func(r *provider.Request) { r.ToolChoice = "none" }), `Bedrock has no "none"`},
		"any tool of none":            {with(func(r *provider.Request) { r.ToolChoice = "any" }), "without tools"},
		"no model":                    {with(func(r *provider.Request) { r.Model = "" }), "no model"},
		"a schema that is not JSON": {with(func(r *provider.Request) {
			r.Tools = []provider.ToolDefinition{{Name: "a", Schema: json.RawMessage("{")}}
		}), `schema of the tool "a" is not JSON`},
		"arguments that are not JSON": {with(func(r *provider.Request) {
			r.Messages = append(r.Messages, provider.Message{Role: provider.RoleAssistant, ToolUses: []provider.ToolUse{{CallID: "1", Name: "a", Args: json.RawMessage("{")}}})
		}), `arguments of the tool use "1": not JSON`},
		"thoughts of another vendor": {with(func(r *provider.Request) {
			r.Messages = append(r.Messages, provider.Message{Role: provider.RoleAssistant, Reasoning: []provider.Reasoning{{Content: "?", Redacted: true}}})
		}), "redacted reasoning is not that of Bedrock"},
		"an unknown role": {with(func(r *provider.Request) { r.Messages[0].Role = "system" }), `message 1: unknown role "system"`},
	} {
		r, _, err := sent(t, tc.req)
		if err == nil || !strings.Contains(err.Error(), tc.want) || provider.Transient(err) || r != nil {
			t.Errorf("%s: got %v, sent %v, want %q", name, err, r != nil, tc.want)
		}
	}
}

func TestMoreTokensThanTheAPICounts(t *testing.T) {
	if strconv.IntSize == 32 {
		t.Skip("SKIPPED: no request can ask for so many on 32 bits")
	}
	req, most := providertest.Question(nil), int64(math.MaxInt32)
	req.MaxOutputTokens = int(most + 1)
	if r, _, err := sent(t, req); err == nil || !strings.Contains(err.Error(), "2147483648 output tokens") || r != nil {
		t.Errorf("got %v, sent %v", err, r != nil)
	}
}

// TestRefusal checks the words and the class of an answer that is an exception, and
// that it is not tried again.
func TestRefusal(t *testing.T) {
	for name, tc := range map[string]struct {
		status     int
		kind, body string
		want       string
		class      error
	}{
		"throttled":      {429, "ThrottlingException", `{"message":"Too many requests"}`, "bedrock: ThrottlingException: Too many requests (request r1)", provider.ErrRateLimit},
		"over the quota": {400, "ServiceQuotaExceededException", `{"message":"no more"}`, "bedrock: ServiceQuotaExceededException: no more (request r1)", provider.ErrRateLimit},
		"the model":      {424, "ModelErrorException", `{"message":"it broke"}`, "bedrock: ModelErrorException: it broke (request r1)", provider.ErrServer},
		"a bad request":  {400, "ValidationException", `{"message":"blank"}`, "bedrock: ValidationException: blank (request r1)", nil},
		"a new one":      {403, "UnrecognizedClientException", `{"message":"who?"}`, "bedrock: UnrecognizedClientException: who? (request r1)", provider.ErrAuth},
	} {
		requests := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests++
			w.Header().Set("X-Amzn-Requestid", "r1")
			w.Header().Set("X-Amzn-Errortype", tc.kind+":http://internal.amazon.com/coral/")
			w.WriteHeader(tc.status)
			io.WriteString(w, tc.body)
		}))
		_, err := connect(t, server.URL, server.Client()).Stream(t.Context(), providertest.Question(nil))
		server.Close()
		if err == nil || !strings.HasSuffix(err.Error(), tc.want) || provider.Transient(err) != (tc.class != nil && tc.class != provider.ErrAuth) || tc.class != nil && !errors.Is(err, tc.class) {
			t.Errorf("%s: got %v, want %q of the class %v", name, err, tc.want, tc.class)
		}
		if requests != 1 {
			t.Errorf("%s: %d requests", name, requests)
		}
	}
}

// doer is a transport. It answers with a body after which the connection breaks. After
// the last byte, that is not a failure.
type doer struct {
	body []byte
	look func(*http.Request)
}

// RoundTrip implements [http.RoundTripper].
func (d doer) RoundTrip(req *http.Request) (*http.Response, error) {
	d.look(req)
	body := io.MultiReader(bytes.NewReader(d.body), iotest.ErrReader(syscall.ECONNRESET))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(body), Request: req}, nil
}

// TestClient has the client of the caller, and a connection that breaks after the end.
func TestClient(t *testing.T) {
	body := frames(t, "messageStop {\"stopReason\":\"end_turn\"}\nmetadata {}")
	c := configuration()
	c.HTTP = &http.Client{Transport: doer{body, func(req *http.Request) {
		if want := "bedrock-runtime.us-east-1.amazonaws.com"; req.URL.Host != want {
			t.Errorf("got the host %s, want %s", req.URL.Host, want)
		}
	}}}
	p, err := bedrock.New(c)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := p.Stream(t.Context(), providertest.Question(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	chunk, err := stream.Next(t.Context())
	sum := canon.Sum(body)
	want := provider.StreamChunk{Kind: provider.ChunkEnd, StopReason: "end_turn", RawResponseHash: sum[:]}
	if diff := cmp.Diff(want, chunk); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestDefaultClientIsNotRedirected has no client of the caller's, which the suite
// always has.
func TestDefaultClientIsNotRedirected(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirection was followed") }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	c := configuration()
	c.BaseURL = server.URL
	p, err := bedrock.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Stream(t.Context(), providertest.Question(nil)); err == nil || !strings.Contains(err.Error(), "status 307") {
		t.Errorf("got %v", err)
	}
}

// TestABearerTokenIsEnough: AWS's own programs need no access key beside AWS_BEARER_TOKEN_BEDROCK.
func TestABearerTokenIsEnough(t *testing.T) {
	c := configuration()
	c.Getenv = func(name string) string {
		return map[string]string{"AWS_BEARER_TOKEN_BEDROCK": "secret"}[name]
	}
	c.Region = "eu-west-1"
	if _, err := bedrock.New(c); err != nil {
		t.Error(err)
	}
}
