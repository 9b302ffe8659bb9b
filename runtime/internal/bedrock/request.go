package bedrock

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/document"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

// translate returns the input of ConverseStream for a request.
func translate(req *provider.Request) (*bedrockruntime.ConverseStreamInput, error) {
	if err := converse.Check(req); err != nil {
		return nil, err
	}
	in := &bedrockruntime.ConverseStreamInput{ModelId: aws.String(req.Model)}
	if err := applyParams(in, req); err != nil {
		return nil, err
	}
	if req.MaxOutputTokens > math.MaxInt32 {
		return nil, fmt.Errorf("%d output tokens, at most %d are allowed", req.MaxOutputTokens, math.MaxInt32)
	}
	if req.MaxOutputTokens != 0 {
		inference(in).MaxTokens = aws.Int32(int32(req.MaxOutputTokens))
	}
	if len(req.StopSequences) > 0 {
		inference(in).StopSequences = req.StopSequences
	}
	if req.SystemPrompt != "" {
		in.System = []types.SystemContentBlock{&types.SystemContentBlockMemberText{Value: req.SystemPrompt}}
	}
	var err error
	if in.Messages, err = conversation(req.Messages); err != nil {
		return nil, err
	}
	in.ToolConfig, err = tools(req)
	return in, err
}

// rawDocument is a document whose JSON is known. The SDK would make its own
// from a Go value, which loses how numbers were written and fails without an error
// on an empty key.
type rawDocument struct {
	document.Interface
	text json.RawMessage
}

// MarshalSmithyDocument returns the JSON.
func (d rawDocument) MarshalSmithyDocument() ([]byte, error) { return d.text, nil }

func newDocument(text json.RawMessage) (document.Interface, error) {
	if !json.Valid(text) {
		return nil, fmt.Errorf("not JSON: %.60q", text)
	}
	return rawDocument{document.NewLazyDocument(nil), text}, nil
}

func tools(req *provider.Request) (*types.ToolConfiguration, error) {
	if req.ToolChoice == "none" {
		return nil, errors.New(`tool choice: Bedrock has no "none"; a request without tools has the same effect`)
	}
	if len(req.Tools) == 0 {
		return nil, nil
	}
	config := &types.ToolConfiguration{ToolChoice: choice(req.ToolChoice)}
	for _, t := range req.Tools {
		spec := types.ToolSpecification{Name: aws.String(t.Name)}
		if t.Description != "" {
			spec.Description = aws.String(t.Description)
		}
		schema := provider.ObjectSchema(t.Schema)
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		doc, err := newDocument(schema)
		if err != nil {
			return nil, fmt.Errorf("schema of the tool %q: %w", t.Name, err)
		}
		spec.InputSchema = &types.ToolInputSchemaMemberJson{Value: doc}
		config.Tools = append(config.Tools, &types.ToolMemberToolSpec{Value: spec})
	}
	return config, nil
}

func choice(name string) types.ToolChoice {
	switch name {
	case "":
		return nil
	case "auto":
		return &types.ToolChoiceMemberAuto{}
	case "any":
		return &types.ToolChoiceMemberAny{}
	default:
		return &types.ToolChoiceMemberTool{Value: types.SpecificToolChoice{Name: aws.String(name)}}
	}
}

func conversation(messages []provider.Message) ([]types.Message, error) {
	turns, err := converse.Turns(messages)
	if err != nil {
		return nil, err
	}
	list := make([]types.Message, len(turns))
	for i, turn := range turns {
		list[i].Role = types.ConversationRoleUser
		if turn.Assistant {
			list[i].Role = types.ConversationRoleAssistant
		}
		for _, m := range turn.Messages {
			content, err := blocks(m)
			if err != nil {
				return nil, err
			}
			list[i].Content = append(list[i].Content, content...)
		}
	}
	return list, nil
}

// blocks returns the blocks of one message, in the order that models want.
func blocks(m provider.Message) ([]types.ContentBlock, error) {
	var list []types.ContentBlock
	for _, r := range m.Reasoning {
		content, err := reasoning(r)
		if err != nil {
			return nil, err
		}
		list = append(list, &types.ContentBlockMemberReasoningContent{Value: content})
	}
	if m.Content != "" {
		list = append(list, &types.ContentBlockMemberText{Value: m.Content})
	}
	for _, use := range m.ToolUses {
		input, err := newDocument(use.Object())
		if err != nil {
			return nil, fmt.Errorf("arguments of the tool use %q: %w", use.CallID, err)
		}
		list = append(list, &types.ContentBlockMemberToolUse{Value: types.ToolUseBlock{
			ToolUseId: aws.String(use.CallID), Name: aws.String(use.Name), Input: input,
		}})
	}
	if m.ToolResult != nil {
		list = append(list, result(m.ToolResult))
	}
	return list, nil
}

func reasoning(r provider.Reasoning) (types.ReasoningContentBlock, error) {
	if r.Redacted {
		opaque, err := base64.StdEncoding.DecodeString(r.Content)
		if err != nil {
			return nil, fmt.Errorf("redacted reasoning is not that of Bedrock: %w", err)
		}
		return &types.ReasoningContentBlockMemberRedactedContent{Value: opaque}, nil
	}
	text := types.ReasoningTextBlock{Text: aws.String(r.Content)}
	if len(r.Signature) > 0 {
		text.Signature = aws.String(string(r.Signature))
	}
	return &types.ReasoningContentBlockMemberReasoningText{Value: text}, nil
}

// result says the status of a failure alone, because not every model knows it.
func result(r *provider.ToolResult) types.ContentBlock {
	block := types.ToolResultBlock{ToolUseId: aws.String(r.CallID), Content: []types.ToolResultContentBlock{}}
	if r.Content != "" {
		block.Content = append(block.Content, &types.ToolResultContentBlockMemberText{Value: r.Content})
	}
	if r.IsError {
		block.Status = types.ToolResultStatusError
	}
	return &types.ContentBlockMemberToolResult{Value: block}
}

// input is a request as the SDK takes it.
type input = bedrockruntime.ConverseStreamInput

// options say where the value of an option belongs. Nil stands for those that applyParams
// puts into their places.
var options = map[string]func(in *input) any{
	"additionalModelRequestFields":      nil,
	"additionalModelResponseFieldPaths": func(in *input) any { return &in.AdditionalModelResponseFieldPaths },
	"requestMetadata":                   func(in *input) any { return &in.RequestMetadata },
	"performanceConfig":                 func(in *input) any { return &in.PerformanceConfig },
	"serviceTier":                       func(in *input) any { return &in.ServiceTier },
	"guardrailConfig":                   func(in *input) any { return &in.GuardrailConfig },
	"promptVariables":                   nil,
	"outputConfig":                      nil,
	"temperature":                       func(in *input) any { return &inference(in).Temperature },
	"top_p":                             func(in *input) any { return &inference(in).TopP },
}

// applyParams puts the options of the request into the input.
func applyParams(in *input, req *provider.Request) error {
	known := slices.Sorted(maps.Keys(options))
	values, err := converse.Params(req.Params, known)
	if err != nil {
		return err
	}
	for key, value := range values {
		switch key {
		case "additionalModelRequestFields": // see setFields, because of TopK
		case "promptVariables":
			err = setVariables(in, value)
		case "outputConfig":
			err = setOutput(in, value)
		default:
			err = strict(value, options[key](in))
		}
		if err != nil {
			return fmt.Errorf("params: option %q: %w", key, err)
		}
	}
	return setFields(in, values["additionalModelRequestFields"], req.TopK)
}

// strict decodes a value into a type of the SDK, whose fields are called like
// those of the API. What the type does not have is an error.
func strict(value json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// inference returns the inference settings. They are absent when there are none,
// because the ARN of a prompt does not allow any.
func inference(in *input) *types.InferenceConfiguration {
	if in.InferenceConfig == nil {
		in.InferenceConfig = &types.InferenceConfiguration{}
	}
	return in.InferenceConfig
}

func setFields(in *input, value json.RawMessage, topK *int) error {
	var fields map[string]json.RawMessage
	if value != nil {
		if err := json.Unmarshal(value, &fields); err != nil {
			return fmt.Errorf(`params: option "additionalModelRequestFields": %w`, err)
		}
	}
	if topK != nil {
		if _, ok := fields["top_k"]; ok {
			return errors.New(`params: option "additionalModelRequestFields": it has a top_k, and so has the request`)
		}
		if fields == nil {
			fields = map[string]json.RawMessage{}
		}
		fields["top_k"] = fmt.Append(nil, *topK)
	}
	if fields == nil {
		return nil
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	in.AdditionalModelRequestFields, err = newDocument(text)
	return err
}

// setVariables is apart because the SDK has a union here, which encoding/json does
// not know.
func setVariables(in *input, value json.RawMessage) error {
	var variables map[string]struct{ Text string }
	if err := strict(value, &variables); err != nil {
		return err
	}
	in.PromptVariables = map[string]types.PromptVariableValues{}
	for name, v := range variables {
		in.PromptVariables[name] = &types.PromptVariableValuesMemberText{Value: v.Text}
	}
	return nil
}

// setOutput is apart for the same reason.
func setOutput(in *input, value json.RawMessage) error {
	var output struct {
		Effort     *string
		TextFormat *struct {
			Type      types.OutputFormatType
			Structure struct{ JSONSchema *types.JsonSchemaDefinition }
		}
	}
	if err := strict(value, &output); err != nil {
		return err
	}
	in.OutputConfig = &types.OutputConfig{Effort: output.Effort}
	if format := output.TextFormat; format != nil {
		in.OutputConfig.TextFormat = &types.OutputFormat{Type: format.Type}
		if schema := format.Structure.JSONSchema; schema != nil {
			in.OutputConfig.TextFormat.Structure = &types.OutputFormatStructureMemberJsonSchema{Value: *schema}
		}
	}
	return nil
}
