package bedrock

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

// object is a JSON object.
type object = map[string]any

// input is the body of a request.
type input struct {
	AdditionalModelRequestFields      map[string]json.RawMessage `json:"additionalModelRequestFields,omitzero"`
	AdditionalModelResponseFieldPaths []string                   `json:"additionalModelResponseFieldPaths,omitzero"`
	GuardrailConfig                   *guardrail                 `json:"guardrailConfig,omitzero"`

	// InferenceConfig is absent without settings, because the ARN of a prompt does not
	// allow any.
	InferenceConfig inference `json:"inferenceConfig,omitzero"`

	Messages          []object            `json:"messages"`
	OutputConfig      *output             `json:"outputConfig,omitzero"`
	PerformanceConfig *performance        `json:"performanceConfig,omitzero"`
	PromptVariables   map[string]variable `json:"promptVariables,omitzero"`
	RequestMetadata   map[string]string   `json:"requestMetadata,omitzero"`
	ServiceTier       *tier               `json:"serviceTier,omitzero"`
	System            []object            `json:"system,omitzero"`
	ToolConfig        object              `json:"toolConfig,omitzero"`
}

type (
	guardrail struct {
		Identifier     *string `json:"guardrailIdentifier,omitzero"`
		Version        *string `json:"guardrailVersion,omitzero"`
		ProcessingMode string  `json:"streamProcessingMode,omitzero"`
		Trace          string  `json:"trace,omitzero"`
	}
	performance struct {
		Latency string `json:"latency,omitzero"`
	}
	tier struct {
		Type string `json:"type,omitzero"`
	}
	variable struct {
		Text string `json:"text"`
	}
	output struct {
		Effort     *string     `json:"effort,omitzero"`
		TextFormat *textFormat `json:"textFormat,omitzero"`
	}
	textFormat struct {
		Structure struct {
			JSONSchema *jsonSchema `json:"jsonSchema,omitzero"`
		} `json:"structure,omitzero"`
		Type string `json:"type,omitzero"`
	}
	jsonSchema struct {
		Description *string `json:"description,omitzero"`
		Name        *string `json:"name,omitzero"`
		Schema      *string `json:"schema,omitzero"`
	}
	inference struct {
		MaxTokens     int      `json:"maxTokens,omitzero"`
		StopSequences []string `json:"stopSequences,omitzero"`
		Temperature   *float32 `json:"temperature,omitzero"`
		TopP          *float32 `json:"topP,omitzero"`
	}
)

// translate returns the body of a request.
func translate(req *provider.Request) ([]byte, error) {
	if err := converse.Check(req); err != nil {
		return nil, err
	}
	if req.MaxOutputTokens > math.MaxInt32 {
		return nil, fmt.Errorf("%d output tokens, at most %d are allowed", req.MaxOutputTokens, math.MaxInt32)
	}
	var in input
	if err := applyParams(&in, req); err != nil {
		return nil, err
	}
	in.InferenceConfig.MaxTokens = req.MaxOutputTokens
	if len(req.StopSequences) > 0 {
		in.InferenceConfig.StopSequences = req.StopSequences
	}
	if req.SystemPrompt != "" {
		in.System = []object{{"text": req.SystemPrompt}}
	}
	in.Messages = []object{}
	sees := seeing().MatchString(req.Model)
	err := converse.EachTurn(req.Messages, func(m provider.Message) ([]object, error) { return blocks(m, sees) }, func(role string, content []object) {
		in.Messages = append(in.Messages, object{"role": role, "content": content})
	})
	if err != nil {
		return nil, err
	}
	if in.ToolConfig, err = tools(req); err != nil {
		return nil, err
	}
	return display.JSON(in, "")
}

// params are the options of a request: fields of the body, and settings under
// other providers' names.
var params = []string{
	"additionalModelRequestFields", "additionalModelResponseFieldPaths", "guardrailConfig", "outputConfig", "performanceConfig",
	"promptVariables", "requestMetadata", "serviceTier", "temperature", "top_p",
}

// applyParams puts the options of the request into the body.
func applyParams(in *input, req *provider.Request) error {
	read := struct {
		*input
		Temperature **float32 `json:"temperature"`
		TopP        **float32 `json:"top_p"`
	}{in, &in.InferenceConfig.Temperature, &in.InferenceConfig.TopP}
	err := converse.Params(req.Params, params, &read, true, func(string, json.RawMessage) {})
	if err != nil || req.TopK == nil {
		return err
	}
	if _, ok := in.AdditionalModelRequestFields["top_k"]; ok {
		return errors.New(`params: option "additionalModelRequestFields": it has a top_k, and so has the request`)
	}
	if in.AdditionalModelRequestFields == nil {
		in.AdditionalModelRequestFields = map[string]json.RawMessage{}
	}
	in.AdditionalModelRequestFields["top_k"] = fmt.Append(nil, *req.TopK)
	return nil
}

func tools(req *provider.Request) (object, error) {
	if req.ToolChoice == "none" {
		return nil, errors.New(`tool choice: Bedrock has no "none"; a request without tools has the same effect`)
	}
	specs, err := converse.Declare(req.Tools, "inputSchema", object{"type": "object"})
	if err != nil || len(specs) == 0 {
		return nil, err
	}
	list := lists.Map(specs, func(spec object) object {
		spec["inputSchema"] = object{"json": spec["inputSchema"]}
		return object{"toolSpec": spec}
	})
	config := object{"tools": list}
	switch choice := req.ToolChoice; choice {
	case "":
	case "auto", "any":
		config["toolChoice"] = object{choice: object{}}
	default:
		config["toolChoice"] = object{"tool": object{"name": choice}}
	}
	return config, nil
}

// seeing are models that take images: the others refuse a request that has one.
var seeing = lazy.Regexp(`claude|nova-(lite|pro|premier)|llama4|llama3-2-(11|90)b|pixtral`)

// blocks returns the blocks of one message, in the order that models require.
func blocks(m provider.Message, sees bool) ([]object, error) {
	var list []object
	for _, r := range m.Reasoning {
		text := object{"text": r.Content}
		if len(r.Signature) > 0 {
			text["signature"] = string(r.Signature)
		}
		content := object{"reasoningText": text}
		if r.Redacted {
			opaque, err := base64.StdEncoding.DecodeString(r.Content)
			if err != nil {
				return nil, fmt.Errorf("redacted reasoning is not that of Bedrock: %w", err)
			}
			content = object{"redactedContent": opaque}
		}
		list = append(list, object{"reasoningContent": content})
	}
	if m.Content != "" {
		list = append(list, object{"text": m.Content})
	}
	for _, use := range m.ToolUses {
		arguments := use.Object()
		if !json.Valid(arguments) {
			return nil, fmt.Errorf("arguments of the tool use %q: not JSON: %.60q", use.CallID, arguments)
		}
		list = append(list, object{"toolUse": object{"toolUseId": use.CallID, "name": use.Name, "input": arguments}})
	}
	if r := m.ToolResult; r != nil {
		content := []object{}
		if r.Content != "" {
			content = append(content, object{"text": r.Content})
		}
		for _, image := range r.Images {
			if !sees {
				break
			}
			format := strings.TrimPrefix(image.Type, "image/") // one of gif, jpeg, png, webp
			content = append(content, object{"image": object{"format": format, "source": object{"bytes": image.Data}}})
		}
		result := object{"toolUseId": r.CallID, "content": content}
		if r.IsError { // not every model knows the status "success"
			result["status"] = "error"
		}
		list = append(list, object{"toolResult": result})
	}
	return list, nil
}
