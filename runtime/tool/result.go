package tool

// ResultMessage is the answer to a call, for the model that asked for it. In
// JSON it is a message of OpenAI's chat completions.
type ResultMessage struct {
	Role       string `json:"role"`         // "tool"
	ToolCallID string `json:"tool_call_id"` // the model's name for the call
	Name       string `json:"name"`         // of the tool
	Content    string `json:"content"`
	IsError    bool   `json:"-"`
}

// NewToolResult returns the answer of a call that succeeded.
func NewToolResult(id, name, result string) ResultMessage {
	return ResultMessage{Role: "tool", ToolCallID: id, Name: name, Content: result}
}

// NewToolError returns the answer of a call that failed. A failure ends no run:
// a model that is told what was wrong can often do better.
func NewToolError(id, name string, err error) ResultMessage {
	return ResultMessage{Role: "tool", ToolCallID: id, Name: name, Content: ErrorText(err), IsError: true}
}

// ErrorText returns what a model is told of a failed call.
func ErrorText(err error) string {
	return "Error executing tool: " + err.Error() + ". Please fix your arguments."
}
