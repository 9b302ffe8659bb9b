package provider

// Response is an answer that is complete.
type Response struct {
	TurnID          string // of the log
	Text            string
	Reasoning       []Reasoning
	ToolUses        []ToolUse
	StopReason      string // in the provider's own word
	Usage           Usage
	CostUSD         float64 // zero if the model has no known price
	RawResponseHash []byte  // see StreamChunk
	RequestID       string
}

// Message returns the response as the next entry of the conversation.
func (r *Response) Message() Message {
	return Message{Role: RoleAssistant, Content: r.Text, ToolUses: r.ToolUses, Reasoning: r.Reasoning}
}
