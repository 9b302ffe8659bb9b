package tool

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/event"
)

// Tool is a function that an agent can call. Implementations must be safe for concurrent
// use.
type Tool interface {
	// Name identifies the tool within one agent and in the log.
	Name() string

	// Description describes the purpose of the tool to a model.
	Description() string

	// Schema is the JSON Schema of the input.
	Schema() json.RawMessage

	// Execute runs the tool. The input is canonical JSON and belongs to the tool, which may
	// modify it without affecting the log. An empty result stands for null. A tool that reads
	// a clock, draws randomness or touches the world does so through package step, with this
	// ctx.
	Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error)
}

// Sandboxed is a tool that can reach the world only through recorded effects.
// The runtime relies on that: it lets a sandboxed tool start before the log is
// known to be durable, because the first effect waits for it.
type Sandboxed interface {
	Tool

	// Sandbox returns everything that determines the tool's output beside its input and its
	// effects. It must not change while the tool is in use. Nil means that the tool is not
	// sandboxed.
	Sandbox() *event.Sandbox
}

// Wrapper is a tool around another tool.
type Wrapper interface {
	Tool

	// Unwrap returns the inner tool.
	Unwrap() Tool
}

// SandboxOf returns the sandbox of t, or of the tool that t wraps, or nil.
func SandboxOf(t Tool) *event.Sandbox {
	if s, ok := Inside[Sandboxed](t); ok {
		return s.Sandbox()
	}
	return nil
}

// Inside returns t, or the outermost of the tools that it wraps, that is a T.
func Inside[T Tool](t Tool) (found T, ok bool) {
	for t != nil {
		if found, ok = t.(T); ok {
			return found, true
		}
		w, wraps := t.(Wrapper)
		if !wraps {
			break
		}
		t = w.Unwrap()
	}
	return found, false
}

// The classes of failure are those of package abi, which the sandbox shares.
var (
	ErrPanicked  = abi.ErrPanicked
	ErrTransient = abi.ErrTransient
	ErrTimeout   = abi.ErrTimeout
	ErrCancelled = abi.ErrCancelled
	ErrFuel      = abi.ErrFuel
	ErrLimit     = abi.ErrLimit
	ErrMemory    = abi.ErrMemory
	ErrEffects   = abi.ErrEffects
	ErrLost      = abi.ErrLost
	ErrHost      = abi.ErrHost
)

// Recover turns a panic into an error that wraps [ErrPanicked], and the
// panic's value when that is an error. The text has no stack, so that the same
// panic is the same text on replay. It must be deferred directly:
//
//	defer tool.Recover(&err)
func Recover(err *error) {
	switch v := recover().(type) {
	case nil:
	case error:
		*err = fmt.Errorf("%w: %w", ErrPanicked, v)
	default:
		*err = fmt.Errorf("%w: %v", ErrPanicked, v)
	}
}

// Sourced is a tool with a recorded name by which a replay can find it, even where the tool
// was never set up.
type Sourced interface {
	Tool

	// Source is a kind and a name, such as "builtin:fetch" or "mcp:search".
	Source() string
}

// SourceOf returns the source of t, or of the tool that t wraps, or "".
func SourceOf(t Tool) string {
	if s, ok := Inside[Sourced](t); ok {
		return s.Source()
	}
	return ""
}

// WithSource returns t with a source.
func WithSource(t Tool, source string) Tool { return sourced{t, source} }

type sourced struct {
	Tool
	source string
}

// Source implements [Sourced].
func (s sourced) Source() string { return s.source }

// Unwrap implements [Wrapper].
func (s sourced) Unwrap() Tool { return s.Tool }

// SourceExport begins the source of a tool that has another name in its module.
const SourceExport = "export:"

// Rename returns t under another name. If t has no source, its source becomes its old name.
func Rename(t Tool, name string) Tool {
	source := SourceOf(t)
	if source == "" {
		source = SourceExport + t.Name()
	}
	return renamed{sourced{t, source}, name}
}

type renamed struct {
	sourced
	name string
}

// Name implements [Tool].
func (r renamed) Name() string { return r.name }
