package starling

import (
	"strconv"
	"unicode/utf8"
)

// MaxDescription is the largest description of a tool, in bytes.
const MaxDescription = 4096

// maxName is the largest name of a tool, in bytes.
const maxName = 64

// Tool is one tool of a module. Name and Execute are required.
type Tool struct {
	// Name is the name that the model calls: a small letter, then at most 63
	// small letters, digits, hyphens and underscores.
	Name string

	// Description tells the model the purpose of the tool and when to use it, in
	// at most [MaxDescription] bytes.
	Description string

	// InputSchema is the JSON Schema (draft 2020-12) of the input. It must describe
	// an object. The host refuses a module with an invalid schema, and checks every
	// input against it before the call. Empty: any object.
	InputSchema string

	// OutputSchema is the JSON Schema of the output. Empty: any JSON value.
	OutputSchema string

	// Effects lists the hosts that the tool wants to reach, as HOST or
	// HOST:PORT. It is a wish: the operator's policy decides. Empty: none.
	Effects []string

	// Idempotent means that repeating a call does no harm, so that the host may
	// retry it after a [Transient] failure.
	Idempotent bool

	// Limits are the bounds that the tool asks for; the host decides.
	Limits Limits

	// Execute does the work. Input is the JSON object that the caller sent and
	// may be kept or changed. The output is one JSON value; empty means null.
	// [Error] describes how the host reacts to an error.
	Execute func(call *Call, input []byte) (output []byte, err error)
}

// Limits are bounds on one call. Zero means the host's default.
type Limits struct {
	Fuel        uint64 // units of the host's cost table, about one per instruction
	MemoryBytes uint64 // linear memory, rounded up to 64 KiB
	TimeoutMs   int64  // wall time in milliseconds
}

// Call identifies the call that a tool is part of. The record holds all of
// it, so it may influence the output.
type Call struct {
	RunID   string // the run
	CallID  string // the call; the same for every attempt
	Attempt uint32 // from 1

	// Variables is the JSON object of values that the caller of the run
	// passes to its tools, such as a tenant's name. Nil: none.
	Variables []byte
}

// tools is the registry of the module. It is filled by init functions and not
// changed afterwards. It is global because a module has no main: the exports
// have nowhere else to find it.
var tools []Tool

// Register adds tools to the module. Call it from init. It panics when a tool
// is not valid or its name is taken, so that the module fails when it is loaded
// and not in the middle of a run.
func Register(added ...Tool) {
	for _, t := range added {
		if reason := t.invalid(); reason != "" {
			panic("starling: tool \"" + t.Name + "\": " + reason)
		}
		if find(t.Name) != nil {
			panic("starling: tool \"" + t.Name + "\": the name is taken")
		}
		tools = append(tools, t)
	}
}

func find(name string) *Tool {
	for i := range tools {
		if tools[i].Name == name {
			return &tools[i]
		}
	}
	return nil
}

// invalid returns the reason why t cannot be registered, or "".
func (t *Tool) invalid() string {
	switch {
	case !validName(t.Name):
		return "the name must match ^[a-z][a-z0-9_-]{0,63}$"
	case len(t.Description) > MaxDescription:
		return "the description has " + strconv.Itoa(len(t.Description)) + " bytes, the limit is " + strconv.Itoa(MaxDescription)
	case !utf8.ValidString(t.Description):
		return "the description is not UTF-8"
	case t.Limits.TimeoutMs < 0:
		return "the limit TimeoutMs is negative"
	case t.Execute == nil:
		return "Execute is nil"
	}
	return ""
}

func validName(name string) bool {
	if name == "" || len(name) > maxName || name[0] < 'a' || name[0] > 'z' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
