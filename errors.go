package starling

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/tool"
)

// NotFoundError is returned when a database, a tool or a run is not found.
type NotFoundError struct {
	What   string // "database", "tool" or "run"
	Name   string // as given by the caller
	Reason string // may be empty
	Hint   string // may be empty
}

// Error names the missing thing.
func (e *NotFoundError) Error() string {
	switch {
	case e.Reason != "" && e.Name != "" && e.What == "database":
		return e.Name + ": " + e.Reason
	case e.Reason != "":
		return e.Reason
	case e.What == "database":
		return e.Name + ": no such database"
	}
	return fmt.Sprintf("no %s %q", e.What, e.Name)
}

// Advice implements [hint.Hinted].
func (e *NotFoundError) Advice() string { return e.Hint }

// Unwrap returns [eventlog.ErrRunNotFound] for a run.
func (e *NotFoundError) Unwrap() error {
	if e.What == "run" {
		return eventlog.ErrRunNotFound
	}
	return fs.ErrNotExist
}

// OpenError is returned when a database cannot be opened.
type OpenError struct {
	Where string
	Err   error
}

// Error names the database, without its password.
func (e *OpenError) Error() string { return store.Name(e.Where) + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *OpenError) Unwrap() error { return e.Err }

// AllowError is returned for a host that cannot be allowed.
type AllowError struct {
	Host string
	Err  error
}

// Error names the host.
func (e *AllowError) Error() string { return fmt.Sprintf("%q: %s", e.Host, PlainError(e.Err)) }

// Unwrap returns the cause.
func (e *AllowError) Unwrap() error { return e.Err }

// InputError is returned for an input that a tool does not take.
type InputError = tool.InputError

// CallError is returned when a call did not complete. It wraps the error of the tool;
// compare it with the errors of package runtime/tool by errors.Is.
type CallError struct {
	Run     *Run
	Denied  *Denied // the tool's last request, if it was refused
	Unnamed bool    // the policy has no rules for the tool

	err error
}

// Error returns the first line of the recorded reason. Run.Failure may have more lines, such
// as a stack trace that the tool wrote.
func (e *CallError) Error() string {
	if f := e.Run.Failure; f != nil && f.Message != "" {
		reason, _, _ := strings.Cut(f.Message, "\n")
		return e.Run.Tool + ": " + reason
	}
	return e.Run.Tool + ": the call was " + e.Run.Status
}

// Unwrap returns the error of the tool, or why it was not called.
func (e *CallError) Unwrap() error { return e.err }

// UnreadError is returned when a run, or one of its modules, cannot be read, so that the
// run can be neither valid nor invalid. The same call may succeed later.
type UnreadError struct {
	RunID string
	Err   error
}

// Error names the run and the cause.
func (e *UnreadError) Error() string {
	return fmt.Sprintf("run %s could not be read: %s", e.RunID, PlainError(e.Err))
}

// Unwrap returns the cause.
func (e *UnreadError) Unwrap() error { return e.Err }

// ErrReplayTimeout is returned when a replay takes longer than [ReplayOptions.Timeout].
var ErrReplayTimeout = errors.New("given up after the timeout")

// PlainError returns an error's text on one line, without the name of its package, which
// means nothing to a user.
func PlainError(err error) string {
	text := display.OneLine(err.Error())
	if name, rest, ok := strings.Cut(text, ": "); ok && !strings.ContainsAny(name, " /.\"") {
		return rest
	}
	return text
}
