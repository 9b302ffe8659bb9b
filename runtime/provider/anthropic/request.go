package anthropic

import (
	"cmp"
	"encoding/json"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/internal/converse"
)

// defaultMaxTokens stands in for a MaxOutputTokens of zero.
const defaultMaxTokens = 4096

// translate returns the body of a request, and what the SDK adds to it.
func translate(req *provider.Request) (sdk.MessageNewParams, []option.RequestOption, error) {
	body := sdk.MessageNewParams{Model: req.Model, StopSequences: req.StopSequences}
	if err := converse.Check(req); err != nil {
		return body, nil, err
	}
	p, err := parseParams(req.Params)
	if err != nil {
		return body, nil, err
	}
	if body.Messages, err = conversation(req.Messages); err != nil {
		return body, nil, err
	}
	body.MaxTokens = cmp.Or(int64(req.MaxOutputTokens), defaultMaxTokens+p.Thinking.BudgetTokens)
	if req.SystemPrompt != "" {
		body.System = []sdk.TextBlockParam{{Text: req.SystemPrompt}}
		p.CacheSystem.put(&body.System[0].CacheControl)
	}
	if req.TopK != nil {
		body.TopK = param.NewOpt(int64(*req.TopK))
	}
	for _, t := range req.Tools {
		body.Tools = append(body.Tools, tool(t))
	}
	if n := len(body.Tools); n > 0 {
		p.CacheTools.put(body.Tools[n-1].GetCacheControl())
	}
	if n := len(body.Messages); n > 0 {
		blocks := body.Messages[n-1].Content
		p.CacheMessages.put(blocks[len(blocks)-1].GetCacheControl())
	}
	body.ToolChoice = choice(req.ToolChoice, p.SequentialUses)
	return body, p.fields, nil
}

func tool(t provider.ToolDefinition) sdk.ToolUnionParam {
	schema := provider.ObjectSchema(t.Schema)
	if len(schema) == 0 {
		schema = json.RawMessage(`{"type":"object"}`)
	}
	definition := sdk.ToolParam{Name: t.Name, InputSchema: param.Override[sdk.ToolInputSchemaParam](schema)}
	if t.Description != "" {
		definition.Description = param.NewOpt(t.Description)
	}
	return sdk.ToolUnionParam{OfTool: &definition}
}

// choice translates a ToolChoice. Whether tools may be used in parallel is a part
// of it, so that needs a choice to be said.
func choice(name string, sequential *bool) sdk.ToolChoiceUnionParam {
	var flag param.Opt[bool]
	if sequential != nil {
		flag = param.NewOpt(*sequential)
		name = cmp.Or(name, "auto")
	}
	switch name {
	case "":
		return sdk.ToolChoiceUnionParam{}
	case "auto":
		return sdk.ToolChoiceUnionParam{OfAuto: &sdk.ToolChoiceAutoParam{DisableParallelToolUse: flag}}
	case "any":
		return sdk.ToolChoiceUnionParam{OfAny: &sdk.ToolChoiceAnyParam{DisableParallelToolUse: flag}}
	case "none":
		return sdk.ToolChoiceUnionParam{OfNone: &sdk.ToolChoiceNoneParam{}}
	default:
		return sdk.ToolChoiceUnionParam{OfTool: &sdk.ToolChoiceToolParam{Name: name, DisableParallelToolUse: flag}}
	}
}

func conversation(messages []provider.Message) ([]sdk.MessageParam, error) {
	turns, err := converse.Turns(messages)
	if err != nil {
		return nil, err
	}
	list := make([]sdk.MessageParam, len(turns))
	for i, turn := range turns {
		list[i].Role = sdk.MessageParamRoleUser
		if turn.Assistant {
			list[i].Role = sdk.MessageParamRoleAssistant
		}
		for _, m := range turn.Messages {
			list[i].Content = append(list[i].Content, blocks(m)...)
		}
	}
	return list, nil
}

// blocks returns the blocks of one message, in the order that the API wants.
func blocks(m provider.Message) []sdk.ContentBlockParamUnion {
	var list []sdk.ContentBlockParamUnion
	for _, r := range m.Reasoning {
		if r.Redacted {
			list = append(list, sdk.NewRedactedThinkingBlock(r.Content))
		} else {
			list = append(list, sdk.NewThinkingBlock(string(r.Signature), r.Content))
		}
	}
	if m.Content != "" {
		list = append(list, sdk.NewTextBlock(m.Content))
	}
	for _, use := range m.ToolUses {
		list = append(list, sdk.NewToolUseBlock(use.CallID, use.Object(), use.Name))
	}
	if m.ToolResult != nil {
		list = append(list, result(m.ToolResult))
	}
	return list
}

// result omits what is not there: the API refuses empty text.
func result(r *provider.ToolResult) sdk.ContentBlockParamUnion {
	block := sdk.ToolResultBlockParam{ToolUseID: r.CallID}
	if r.Content != "" {
		block.Content = []sdk.ToolResultBlockParamContentUnion{{OfText: &sdk.TextBlockParam{Text: r.Content}}}
	}
	if r.IsError {
		block.IsError = param.NewOpt(true)
	}
	return sdk.ContentBlockParamUnion{OfToolResult: &block}
}
