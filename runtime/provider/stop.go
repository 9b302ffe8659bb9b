package provider

import "strings"

// StopKind says what a stop reason means for the answer.
type StopKind int

// The kinds of stop reasons.
const (
	StopWhole   StopKind = iota // the answer is complete, and so for a reason that is not known
	StopPaused                  // the model goes on when it is asked again
	StopCut                     // the answer is longer than it may be
	StopRefused                 // the model, or a filter of its provider, keeps the answer back
	StopBroken                  // the provider failed, or the model wrote what it cannot read
)

// stops are the reasons of Anthropic, Bedrock, Gemini and servers with OpenAI's protocol that
// do not mean a complete answer.
var stops = map[string]StopKind{
	"pause_turn": StopPaused,

	"max_tokens": StopCut, "model_context_window_exceeded": StopCut, "length": StopCut, "model_length": StopCut, "MAX_TOKENS": StopCut,

	"refusal": StopRefused, "content_filter": StopRefused, "content_filtered": StopRefused, "guardrail_intervened": StopRefused,

	"error": StopBroken, "abort": StopBroken, "insufficient_system_resource": StopBroken,
	"malformed_model_output": StopBroken, "malformed_tool_use": StopBroken,
	"MALFORMED_FUNCTION_CALL": StopBroken, "MALFORMED_RESPONSE": StopBroken, "UNEXPECTED_TOOL_CALL": StopBroken,
	"TOO_MANY_TOOL_CALLS": StopBroken, "MISSING_THOUGHT_SIGNATURE": StopBroken, "OTHER": StopBroken,

	"STOP": StopWhole, "COMPLETE": StopWhole,
}

// StopKindOf returns the kind of a [StreamChunk.StopReason]. A word in capitals that is not
// known is one of Gemini, whose list grows by reasons to keep an answer back.
func StopKindOf(reason string) StopKind {
	kind, known := stops[reason]
	if !known && strings.ContainsAny(reason, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") && strings.ToUpper(reason) == reason {
		return StopRefused
	}
	return kind
}
