package budget

import (
	"unicode/utf8"

	"github.com/starling-host/starling/runtime/provider"
)

// EstimateInput guesses the input tokens of a request from its length: one for
// every three characters, rounded up, of prompt, messages, arguments, results
// and the schemas of the tools. It is what TurnStarted records.
func EstimateInput(req *provider.Request) int64 {
	runes := utf8.RuneCountInString(req.SystemPrompt)
	for _, m := range req.Messages {
		runes += messageRunes(m)
	}
	for _, t := range req.Tools {
		runes += utf8.RuneCount(t.Schema)
	}
	return int64(runes+2) / 3
}

func messageRunes(m provider.Message) int {
	runes := utf8.RuneCountInString(m.Content)
	for _, r := range m.Reasoning {
		runes += utf8.RuneCountInString(r.Content)
	}
	for _, u := range m.ToolUses {
		runes += utf8.RuneCount(u.Args)
	}
	if m.ToolResult != nil {
		runes += utf8.RuneCountInString(m.ToolResult.Content)
	}
	return runes
}
