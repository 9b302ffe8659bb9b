package gemini

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

// New returns the provider. It fails without a key, or with a base URL that is
// not one.
func New(c converse.Config) (provider.Provider, error) {
	c, base, err := c.Complete(converse.Config{ID: "gemini", BaseURL: "https://generativelanguage.googleapis.com", APIVersion: "v1beta"})
	if err != nil {
		return nil, err
	}
	base = base.JoinPath(c.APIVersion)
	return &converse.API{
		Config: c, Name: "gemini", Key: c.APIKey, Fault: fault,
		RequestID: func(http.Header) string { return "" }, // the events have it
		Translate: func(req *provider.Request) (*converse.Call, error) {
			body, err := translate(req)
			if err != nil {
				return nil, err
			}
			address, err := target(*base, req.Model)
			if err != nil {
				return nil, err
			}
			ids, err := converse.NewIDs(req)
			return &converse.Call{URL: address, Header: http.Header{"X-Goog-Api-Key": {c.APIKey}}, Body: body, Reader: &reader{ids: ids}}, err
		},
	}, nil
}

// target returns the address of a model, whose name may begin with the kind of model.
func target(u url.URL, model string) (string, error) {
	if strings.ContainsAny(model, "?&") || strings.Contains(model, "..") {
		return "", fmt.Errorf("invalid model %q", model)
	}
	if !strings.HasPrefix(model, "models/") && !strings.HasPrefix(model, "tunedModels/") {
		model = "models/" + model
	}
	u.Path += "/" + model + ":streamGenerateContent"
	u.RawPath, u.RawQuery = "", "alt=sse"
	return u.String(), nil
}

// object is a JSON object.
type object = map[string]any

// options are the options that Params may have, with the types of their values, and
// the members of objects among them. Other members are refused.
type options struct {
	FrequencyPenalty, PresencePenalty, Temperature, TopP *float64
	Seed                                                 *int32
	MediaResolution, ResponseMIMEType, CachedContent     string
	ResponseJSONSchema                                   any
	ResponseSchema                                       object
	Labels                                               map[string]string
	ServiceTier                                          string
	Store                                                *bool
	SafetySettings                                       []struct{ Category, Threshold string }
	ThinkingConfig                                       *struct {
		IncludeThoughts bool
		ThinkingBudget  *int32
		ThinkingLevel   string
	}
}

// known are the names of the options, and ofTheBody the options that are members of
// the body; all others belong to its generationConfig.
var (
	known = []string{
		"cachedContent", "frequencyPenalty", "labels", "mediaResolution", "presencePenalty", "responseJsonSchema", "responseMimeType",
		"responseSchema", "safetySettings", "seed", "serviceTier", "store", "temperature", "thinkingConfig", "topP",
	}
	ofTheBody = []string{"cachedContent", "labels", "safetySettings", "serviceTier", "store"}
)

// translate returns the body of a request.
func translate(req *provider.Request) ([]byte, error) {
	if err := converse.Check(req); err != nil {
		return nil, err
	}
	if req.MaxOutputTokens > math.MaxInt32 {
		return nil, fmt.Errorf("MaxOutputTokens is %d", req.MaxOutputTokens)
	}
	contents, err := translateMessages(req.Messages)
	if err != nil {
		return nil, err
	}
	config := object{}
	body := object{"contents": contents, "generationConfig": config}
	err = converse.Params(req.Params, known, &options{}, true, func(name string, value json.RawMessage) {
		switch {
		case string(value) == "null":
		case slices.Contains(ofTheBody, name):
			body[name] = value
		default:
			config[name] = value
		}
	})
	if err != nil {
		return nil, err
	}
	if len(req.StopSequences) > 0 {
		config["stopSequences"] = req.StopSequences
	}
	if req.TopK != nil {
		config["topK"] = *req.TopK
	}
	if req.MaxOutputTokens > 0 {
		config["maxOutputTokens"] = req.MaxOutputTokens
	}
	if req.SystemPrompt != "" {
		body["systemInstruction"] = content{Role: provider.RoleUser, Parts: []part{{Text: &req.SystemPrompt}}}
	}
	if len(req.Tools) > 0 {
		declarations, err := converse.Declare(req.Tools, "parametersJsonSchema", nil)
		if err != nil {
			return nil, err
		}
		body["tools"] = []object{{"functionDeclarations": declarations}}
		if choice := choose(req.ToolChoice); choice != nil {
			body["toolConfig"] = object{"functionCallingConfig": choice}
		}
	}
	return display.JSON(body, "")
}

// choose returns the tool choice, or nil without one.
func choose(choice string) object {
	switch choice {
	case "":
		return nil
	case "any", "auto", "none":
		return object{"mode": strings.ToUpper(choice)}
	}
	return object{"mode": "ANY", "allowedFunctionNames": []string{choice}}
}

// content is a turn.
type content struct {
	Role  string `json:"role"`
	Parts []part `json:"parts"`
}

// part is a piece of a turn, as sent and received.
type part struct {
	Text             *string           `json:"text,omitempty"`
	Thought          bool              `json:"thought,omitempty"`
	FunctionCall     *functionCall     `json:"functionCall,omitempty"`
	FunctionResponse *functionResponse `json:"functionResponse,omitempty"`
	InlineData       *inlineData       `json:"inlineData,omitempty"`
	ThoughtSignature []byte            `json:"thoughtSignature,omitempty"`
}

type inlineData struct {
	MimeType string `json:"mimeType"`
	Data     []byte `json:"data"`
}

type functionCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type functionResponse struct {
	ID       string `json:"id,omitempty"`
	Name     string `json:"name"`
	Response object `json:"response"`
}

func translateMessages(messages []provider.Message) ([]content, error) {
	contents := []content{}
	names := map[string]string{} // of tools, by call id
	blocks := func(m provider.Message) ([]part, error) { return translateMessage(m, names) }
	err := converse.EachTurn(messages, blocks, func(role string, parts []part) {
		if role == provider.RoleAssistant {
			role = "model"
		}
		contents = append(contents, content{role, parts})
	})
	return contents, err
}

func translateMessage(m provider.Message, names map[string]string) ([]part, error) {
	switch {
	case m.Role == provider.RoleAssistant:
		for _, use := range m.ToolUses {
			names[use.CallID] = use.Name
		}
		return said(m), nil
	case m.ToolResult == nil:
		return []part{{Text: &m.Content}}, nil
	}
	name, ok := names[m.ToolResult.CallID]
	if !ok {
		return nil, fmt.Errorf("the result of %q has no tool use before it", m.ToolResult.CallID)
	}
	response := &functionResponse{ID: m.ToolResult.CallID, Name: name, Response: outcome(m.ToolResult)}
	parts := []part{{FunctionResponse: response}}
	for _, image := range m.ToolResult.Images {
		if image.Type != "image/gif" { // which the API has not
			parts = append(parts, part{InlineData: &inlineData{image.Type, image.Data}})
		}
	}
	return parts, nil
}

func outcome(r *provider.ToolResult) object {
	switch {
	case r.IsError:
		return object{"error": r.Content}
	case json.Valid([]byte(r.Content)):
		return object{"output": json.RawMessage(r.Content)}
	}
	return object{"output": r.Content}
}

// said returns the parts of a model's message: thoughts, text, calls.
func said(m provider.Message) []part {
	var parts []part
	var ofText []byte
	ofCalls := map[int][]byte{}
	for _, r := range m.Reasoning {
		thought := part{Thought: true, Text: &r.Content}
		switch place, call, signature := splitSignature(r.Signature); place {
		case signedText:
			ofText = signature
		case signedCall:
			ofCalls[call] = signature
		default:
			thought.ThoughtSignature = r.Signature
		}
		if !r.Redacted && (r.Content != "" || thought.ThoughtSignature != nil) {
			parts = append(parts, thought)
		}
	}
	if m.Content != "" {
		parts = append(parts, part{Text: &m.Content})
	}
	if ofText != nil {
		parts = append(parts, part{Text: new(string), ThoughtSignature: ofText}) // the API sends them like this too
	}
	for i, use := range m.ToolUses {
		call := &functionCall{ID: use.CallID, Name: use.Name, Args: use.Object()}
		parts = append(parts, part{FunctionCall: call, ThoughtSignature: ofCalls[i]})
	}
	return parts
}

// The prefixes that name a signature's owner, see the comment of the package. A
// thought's signature has none.
const (
	signedText = "text"
	signedCall = "call"
)

func textSignature(signature []byte) []byte { return append([]byte(signedText+"/"), signature...) }

func callSignature(call int, signature []byte) []byte {
	return append(fmt.Appendf(nil, "%s/%d/", signedCall, call), signature...)
}

// splitSignature takes a signature apart. The place is empty for that of a thought.
func splitSignature(signature []byte) (place string, call int, rest []byte) {
	text := string(signature)
	if after, ok := strings.CutPrefix(text, signedText+"/"); ok {
		return signedText, 0, []byte(after)
	}
	if after, ok := strings.CutPrefix(text, signedCall+"/"); ok {
		number, rest, _ := strings.Cut(after, "/")
		if call, err := strconv.Atoi(number); err == nil {
			return signedCall, call, []byte(rest)
		}
	}
	return "", 0, signature
}
