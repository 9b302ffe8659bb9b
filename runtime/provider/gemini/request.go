package gemini

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"google.golang.org/genai"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/internal/converse"
)

// known are the options that Params may have.
var known = []string{
	"cachedContent", "frequencyPenalty", "labels", "mediaResolution", "presencePenalty", "responseJsonSchema", "responseMimeType",
	"responseSchema", "safetySettings", "seed", "serviceTier", "store", "temperature", "thinkingConfig", "topP",
}

// translate returns the request, the body included, as settings of the SDK.
func translate(req *provider.Request) (*genai.GenerateContentConfig, error) {
	if err := converse.Check(req); err != nil {
		return nil, err
	}
	settings, err := params(req.Params)
	if err != nil {
		return nil, err
	}
	b := &body{}
	if b.contents, err = translateMessages(req.Messages); err != nil {
		return nil, err
	}
	if b.declarations, err = translateTools(req.Tools); err != nil {
		return nil, err
	}
	settings.HTTPOptions = &genai.HTTPOptions{ExtrasRequestProvider: b.fill}
	settings.AutomaticContinuation = genai.Ptr(false)
	if req.SystemPrompt != "" {
		settings.SystemInstruction = genai.NewContentFromText(req.SystemPrompt, genai.RoleUser)
	}
	settings.ToolConfig = choose(req)
	return settings, limit(settings, req)
}

// limit sets what ends a response, and how wide the model's choice is.
func limit(settings *genai.GenerateContentConfig, req *provider.Request) error {
	settings.StopSequences = req.StopSequences
	if req.TopK != nil {
		settings.TopK = genai.Ptr(float32(*req.TopK))
	}
	if req.MaxOutputTokens < 0 || req.MaxOutputTokens > math.MaxInt32 {
		return fmt.Errorf("MaxOutputTokens is %d", req.MaxOutputTokens)
	}
	settings.MaxOutputTokens = int32(req.MaxOutputTokens)
	return nil
}

// params returns the options of a request. Members of options that the SDK does
// not know are refused as well.
func params(raw canon.Raw) (*genai.GenerateContentConfig, error) {
	values, err := converse.Params(raw, known)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	settings := &genai.GenerateContentConfig{}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(settings); err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	return settings, nil
}

func translateTools(tools []provider.ToolDefinition) ([]declaration, error) {
	var declarations []declaration
	for _, t := range tools {
		if len(t.Schema) > 0 && !json.Valid(t.Schema) {
			return nil, fmt.Errorf("the schema of the tool %q is not JSON", t.Name)
		}
		declarations = append(declarations, declaration{t.Name, t.Description, provider.ObjectSchema(t.Schema)})
	}
	return declarations, nil
}

// choose returns the choice of a tool, or nil where there is nothing to choose.
func choose(req *provider.Request) *genai.ToolConfig {
	if req.ToolChoice == "" || len(req.Tools) == 0 {
		return nil
	}
	calling := &genai.FunctionCallingConfig{Mode: genai.FunctionCallingConfigModeAny}
	switch req.ToolChoice {
	case "any":
	case "auto":
		calling.Mode = genai.FunctionCallingConfigModeAuto
	case "none":
		calling.Mode = genai.FunctionCallingConfigModeNone
	default:
		calling.AllowedFunctionNames = []string{req.ToolChoice}
	}
	return &genai.ToolConfig{FunctionCallingConfig: calling}
}

func translateMessages(messages []provider.Message) ([]content, error) {
	turns, err := converse.Turns(messages)
	if err != nil {
		return nil, err
	}
	contents := []content{}
	names := map[string]string{} // of tools, by call id
	for _, turn := range turns {
		c := content{Role: genai.RoleUser}
		if turn.Assistant {
			c.Role = genai.RoleModel
		}
		for _, m := range turn.Messages {
			parts, err := translateMessage(m, names)
			if err != nil {
				return nil, err
			}
			c.Parts = append(c.Parts, parts...)
		}
		contents = append(contents, c)
	}
	return contents, nil
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
	return []part{{FunctionResponse: response}}, nil
}

func outcome(r *provider.ToolResult) map[string]any {
	switch {
	case r.IsError:
		return map[string]any{"error": r.Content}
	case json.Valid([]byte(r.Content)):
		return map[string]any{"output": json.RawMessage(r.Content)}
	}
	return map[string]any{"output": r.Content}
}

// said returns the parts of what the model said: thoughts, text, calls.
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

// What a signature belongs to, as it is written before it, see the comment of the
// package. A thought's is as it is.
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
