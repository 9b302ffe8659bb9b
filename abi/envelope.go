package abi

import "errors"

// JSON is one JSON value, kept as its bytes. It is what json.RawMessage is,
// without making a guest link encoding/json.
type JSON []byte

// MarshalJSON returns j, or null when j is empty.
func (j JSON) MarshalJSON() ([]byte, error) {
	if len(j) == 0 {
		return []byte("null"), nil
	}
	return j, nil
}

// UnmarshalJSON keeps a copy of data.
func (j *JSON) UnmarshalJSON(data []byte) error {
	if j == nil {
		return errors.New("abi: UnmarshalJSON on a nil *JSON")
	}
	*j = append((*j)[:0], data...)
	return nil
}

// Input is the document that starling_execute receives.
type Input struct {
	Tool    string  `json:"tool"`
	Input   JSON    `json:"input"`
	Context Context `json:"context"`
}

// Context describes the call to the guest. All of it is in the log, so it may influence the guest's
// output.
type Context struct {
	RunID     string `json:"run_id"`
	CallID    string `json:"call_id"`
	Attempt   uint32 `json:"attempt"`             // from 1
	Variables JSON   `json:"variables,omitempty"` // a JSON object, or absent
}

// ErrorKind is the action that a failed call requests from the host.
type ErrorKind string

const (
	// ErrorTool: the tool failed; retried as the caller's policy says.
	ErrorTool ErrorKind = "tool"
	// ErrorTransient: worth another attempt if the tool is idempotent.
	ErrorTransient ErrorKind = "transient"
	// ErrorCancel: do not retry, nothing is wrong with the input (permission,
	// authentication).
	ErrorCancel ErrorKind = "cancel"
	// ErrorDiscard: do not retry, the input can never succeed.
	ErrorDiscard ErrorKind = "discard"
	// ErrorSnooze: try again after RetryAfterMs; no attempt is consumed.
	ErrorSnooze ErrorKind = "snooze"
)

// Error is the "error" member of the document that starling_execute returns.
// The other form of that document has one member, "output".
type Error struct {
	Kind         ErrorKind `json:"kind"`
	Message      string    `json:"message"`
	RetryAfterMs int64     `json:"retry_after_ms,omitempty"`
}

// Description is the document that starling_describe returns.
type Description struct {
	Tools []ToolDescription `json:"tools"`
}

// ToolDescription describes one tool of a module. Schemas are JSON Schema,
// draft 2020-12 unless they say otherwise.
type ToolDescription struct {
	Name         string   `json:"name"`                    // ^[a-z][a-z0-9_-]{0,63}$
	Description  string   `json:"description"`             // for the model, at most 4 KiB
	InputSchema  JSON     `json:"input_schema"`            // must describe an object
	OutputSchema JSON     `json:"output_schema,omitempty"` // absent: any JSON value
	Effects      []string `json:"effects,omitempty"`       // hosts that it wants, as HOST or HOST:PORT
	Idempotent   bool     `json:"idempotent,omitempty"`    // repeating a call does no harm
	Limits       Limits   `json:"limits,omitzero"`         // requested limits; the host decides
}

// Limits are the bounds that a tool asks for. Zero means the host's default.
type Limits struct {
	Fuel        uint64 `json:"fuel,omitempty"`         // units of spec/determinism.md
	MemoryBytes uint64 `json:"memory_bytes,omitempty"` // rounded up to 64 KiB pages
	TimeoutMs   int64  `json:"timeout_ms,omitempty"`
}
