package provider

import (
	"bytes"
	"encoding/json"

	"github.com/starling-host/starling/eventlog/canon"
)

// Request is a prompt with everything that changes the answer. The zero value of
// a field other than Model and Messages leaves it to the provider. The names of
// its fields are part of [Request.Hash].
type Request struct {
	Model           string
	SystemPrompt    string
	Messages        []Message
	Tools           []ToolDefinition
	ToolChoice      string // "", "auto", "any", "none" or the name of a tool
	StopSequences   []string
	TopK            *int
	MaxOutputTokens int

	// Params is a CBOR map of options that one provider has, or empty. An
	// adapter refuses keys that it does not know.
	Params canon.Raw
}

// The roles of messages.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool" // a result, in ToolResult
)

// Message is one entry of the conversation.
type Message struct {
	Role        string
	Content     string
	ToolUses    []ToolUse         // what an assistant asked for
	ToolResult  *ToolResult       // of RoleTool
	Annotations map[string]string // for adapters; not sent as text

	// Reasoning is the assistant's reasoning before Content, with the
	// signatures that some providers want back.
	Reasoning []Reasoning `cbor:"Reasoning,omitempty"`
}

// Reasoning is one block of it.
type Reasoning struct {
	Content   string
	Signature []byte `cbor:"Signature,omitempty"`
	Redacted  bool   `cbor:"Redacted,omitempty"` // Content is opaque to everyone but the provider
}

// ToolUse is a call that an assistant asked for.
type ToolUse struct {
	CallID string
	Name   string
	Args   json.RawMessage // canonical JSON; a string if the model wrote none
}

// Object returns the arguments for a protocol that wants an object: what is none
// becomes the only member of one.
func (u ToolUse) Object() json.RawMessage {
	if len(u.Args) > 0 && u.Args[0] == '{' {
		return u.Args
	}
	if len(u.Args) == 0 {
		return json.RawMessage("{}")
	}
	return append(append([]byte(`{"arguments":`), u.Args...), '}')
}

// ToolResult is the answer of a tool.
type ToolResult struct {
	CallID  string
	Content string // JSON, or the text of an error
	IsError bool
}

// ToolDefinition describes a tool to a model.
type ToolDefinition struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of the input
}

// ObjectSchema returns the schema of a tool's input for vendors that accept only
// objects, as models and MCP clients do: a tool that takes any document, whose schema is
// true, takes any object from them.
func ObjectSchema(schema json.RawMessage) json.RawMessage {
	if string(bytes.TrimSpace(schema)) == "true" {
		return json.RawMessage(`{"type":"object"}`)
	}
	return schema
}

// Hash is the BLAKE3-256 of the request in canonical CBOR, with the names of Go
// fields as keys and JSON as byte strings: the prompt_hash of TurnStarted.
func (r *Request) Hash() (canon.Hash, error) {
	b, err := canon.Marshal(r)
	if err != nil {
		return canon.Hash{}, err
	}
	return canon.Sum(b), nil
}
