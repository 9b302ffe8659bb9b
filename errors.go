package starling

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/display"
)

// NotFoundError says that a database, a tool or a run was not found.
type NotFoundError struct {
	What   string // "database", "tool" or "run"
	Name   string // as it was given
	Reason string // empty if there is no more to say
	Hint   string // or empty
}

// Error says what was not found.
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

// Unwrap returns [eventlog.ErrRunNotFound] for a run.
func (e *NotFoundError) Unwrap() error {
	if e.What == "run" {
		return eventlog.ErrRunNotFound
	}
	return fs.ErrNotExist
}

// OpenError says that a database could not be opened.
type OpenError struct {
	Where string
	Err   error
}

// Error names the database, without its password.
func (e *OpenError) Error() string { return DatabaseName(e.Where) + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *OpenError) Unwrap() error { return e.Err }

// AllowError says why a host cannot be allowed.
type AllowError struct {
	Host string
	Err  error
}

// Error names the host.
func (e *AllowError) Error() string { return fmt.Sprintf("%q: %v", e.Host, e.Err) }

// Unwrap returns the cause.
func (e *AllowError) Unwrap() error { return e.Err }

// InputError says that an input is too large.
type InputError = guest.InputError

// CallError says that a call did not complete. It wraps the error of the tool, which
// errors.Is compares with those of package runtime/tool.
type CallError struct {
	Run     *Run
	Denied  *Denied // what was refused, if that was the last thing that the tool asked for
	Unnamed bool    // the policy has no rules for the tool

	err error
}

// Error returns the first line of the recorded reason. Behind it, in Run.Failure, may be what
// the tool wrote before it ended, such as the stacks of its language.
func (e *CallError) Error() string {
	if f := e.Run.Failure; f != nil && f.Message != "" {
		reason, _, _ := strings.Cut(f.Message, "\n")
		return e.Run.Tool + ": " + reason
	}
	return e.Run.Tool + ": the call was " + e.Run.Status
}

// Unwrap returns the error of the tool, or nil if it was not called.
func (e *CallError) Unwrap() error { return e.err }

// UnreadError means that a run, or a module of it, could not be read, so that nothing is
// known of the run. The same call may succeed later.
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

// ErrReplayTimeout: a replay took longer than [ReplayOptions.Timeout].
var ErrReplayTimeout = errors.New("given up after the timeout")

// PlainError returns an error's text on one line, without the name of the package that it
// comes from, which says nothing to a user.
func PlainError(err error) string {
	text := display.OneLine(err.Error())
	if name, rest, ok := strings.Cut(text, ": "); ok && !strings.ContainsAny(name, " /.\"") {
		return rest
	}
	return text
}

// Corruption returns what is wrong with a log without the words that every such error
// begins with.
func Corruption(err error) string {
	if corrupt := (*eventlog.CorruptError)(nil); errors.As(err, &corrupt) {
		err = corrupt
	}
	text := strings.TrimPrefix(err.Error(), eventlog.ErrLogCorrupt.Error()+": ")
	return strings.TrimPrefix(text, eventlog.ErrSchemaTooNew.Error()+": ")
}
