// Package hint lets an error say what to do about it. The package that makes the error knows best;
// a command or an API prints it below the error.
package hint

import "errors"

// Hinted is an error that says what to do about it: a command, or advice in a few words. The names
// of arguments in a command, such as DB, stand for those of the caller.
type Hinted interface {
	error
	Advice() string // empty if there is none
}

type hinted struct {
	error
	advice string
}

func (h *hinted) Advice() string { return h.advice }
func (h *hinted) Unwrap() error  { return h.error }

// New returns an error with a text and a hint.
func New(text, advice string) error { return &hinted{errors.New(text), advice} }

// Of returns the hint of an error, or of the first one in its chain that is [Hinted].
func Of(err error) string {
	if h, ok := errors.AsType[Hinted](err); ok {
		return h.Advice()
	}
	return ""
}
