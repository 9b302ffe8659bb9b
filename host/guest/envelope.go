package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// maxMessageBytes bounds the recorded part of a guest's error message.
const maxMessageBytes = 8 << 10

// Error is a failure reported by the guest.
type Error struct {
	Kind       abi.ErrorKind
	Message    string
	RetryAfter time.Duration // for abi.ErrorSnooze; zero otherwise
}

// Error returns the guest's message.
func (e *Error) Error() string { return e.Message }

// FailureKind returns the guest's advice to tool.KindOf.
func (e *Error) FailureKind() (abi.ErrorKind, time.Duration) { return e.Kind, e.RetryAfter }

// Is makes a transient failure match tool.ErrTransient, so that an idempotent call is
// retried.
func (e *Error) Is(target error) bool {
	return target == tool.ErrTransient && e.Kind == abi.ErrorTransient
}

// envelope makes the document for starling_execute: an [abi.Input] in the form of
// json.Marshal, which escapes HTML characters. The escapes count: guests see them and spend
// fuel on them.
func envelope(name string, input []byte, call step.Call) ([]byte, error) {
	tool, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	context, err := json.Marshal(abi.Context{RunID: call.RunID, CallID: call.CallID, Attempt: call.Attempt, Variables: abi.JSON(call.Variables)})
	if err != nil {
		return nil, err
	}
	var doc bytes.Buffer
	doc.Grow(len(input) + len(tool) + len(context) + 64)
	fmt.Fprintf(&doc, `{"tool":%s,"input":`, tool)
	json.HTMLEscape(&doc, input) // canonical, so nothing else needs escaping
	fmt.Fprintf(&doc, `,"context":%s}`, context)
	return doc.Bytes(), nil
}

// openOutput reads the document that starling_execute returned: the output, or
// the failure that the guest reports.
func openOutput(doc []byte) (*canon.Doc, error) {
	clean, err := canon.Parse(doc)
	if err != nil {
		return nil, fmt.Errorf("guest: the tool returned no JSON document: %w", err)
	}
	members, _ := clean.Members()
	output, failure := members["output"], members["error"]
	switch {
	case len(members) == 1 && output != nil:
		return output, nil
	case len(members) == 1 && failure != nil:
		return nil, reported(failure.JSON)
	}
	return nil, errors.New(`guest: the tool returned a document that is neither {"output": ...} nor {"error": ...}`)
}

// NotJSON is the prefix of the error for a command whose output is not JSON. Do not change
// it: logs contain it, and replays compare it.
const NotJSON = "guest: the command wrote no JSON document to its standard output: "

// printed reads the standard output of a command, which has no envelope.
func printed(doc []byte) (*canon.Doc, error) {
	clean, err := canon.Parse(doc)
	if err != nil {
		return nil, fmt.Errorf(NotJSON+"%w", err)
	}
	return clean, nil
}

// reported reads the guest's own error. An unknown kind is an ordinary
// failure: the caller needs the message.
func reported(doc []byte) error {
	var e abi.Error
	if err := json.Unmarshal(doc, &e); err != nil {
		return fmt.Errorf("guest: the tool returned an error that cannot be read: %w", err)
	}
	failure := &Error{Kind: abi.ErrorTool, Message: display.Clip(e.Message, maxMessageBytes)}
	switch e.Kind {
	case abi.ErrorTransient, abi.ErrorCancel, abi.ErrorDiscard:
		failure.Kind = e.Kind
	case abi.ErrorSnooze:
		failure.Kind = e.Kind
		failure.RetryAfter = time.Duration(min(max(e.RetryAfterMs, 0), int64(24*time.Hour/time.Millisecond))) * time.Millisecond
	}
	if failure.Message == "" {
		failure.Message = "the tool failed and gave no reason"
	}
	return failure
}
