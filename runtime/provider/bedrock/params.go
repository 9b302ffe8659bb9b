package bedrock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/internal/converse"
)

// options put the value of an option where it belongs. That of
// additionalModelRequestFields is in setFields, because of TopK.
var options = map[string]func(in *bedrockruntime.ConverseStreamInput, value json.RawMessage) error{
	"additionalModelRequestFields": func(*bedrockruntime.ConverseStreamInput, json.RawMessage) error { return nil },
	"additionalModelResponseFieldPaths": func(in *bedrockruntime.ConverseStreamInput, value json.RawMessage) error {
		return strict(value, &in.AdditionalModelResponseFieldPaths)
	},
	"requestMetadata": func(in *bedrockruntime.ConverseStreamInput, value json.RawMessage) error {
		return strict(value, &in.RequestMetadata)
	},
	"performanceConfig": func(in *bedrockruntime.ConverseStreamInput, value json.RawMessage) error {
		return strict(value, &in.PerformanceConfig)
	},
	"serviceTier": func(in *bedrockruntime.ConverseStreamInput, value json.RawMessage) error {
		return strict(value, &in.ServiceTier)
	},
	"guardrailConfig": func(in *bedrockruntime.ConverseStreamInput, value json.RawMessage) error {
		return strict(value, &in.GuardrailConfig)
	},
	"promptVariables": setVariables,
	"outputConfig":    setOutput,
	"temperature": func(in *bedrockruntime.ConverseStreamInput, value json.RawMessage) error {
		return strict(value, &inference(in).Temperature)
	},
	"top_p": func(in *bedrockruntime.ConverseStreamInput, value json.RawMessage) error {
		return strict(value, &inference(in).TopP)
	},
}

// applyParams puts the options of the request into the input.
func applyParams(in *bedrockruntime.ConverseStreamInput, req *provider.Request) error {
	known := slices.Sorted(maps.Keys(options))
	values, err := converse.Params(req.Params, known)
	if err != nil {
		return err
	}
	for key, value := range values {
		if err := options[key](in, value); err != nil {
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
func inference(in *bedrockruntime.ConverseStreamInput) *types.InferenceConfiguration {
	if in.InferenceConfig == nil {
		in.InferenceConfig = &types.InferenceConfiguration{}
	}
	return in.InferenceConfig
}

func setFields(in *bedrockruntime.ConverseStreamInput, value json.RawMessage, topK *int) error {
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
func setVariables(in *bedrockruntime.ConverseStreamInput, value json.RawMessage) error {
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
func setOutput(in *bedrockruntime.ConverseStreamInput, value json.RawMessage) error {
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
