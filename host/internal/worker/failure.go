package worker

import (
	"errors"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/tool"
)

// failure is an error that has been in another process: its class and its text,
// which is all that is ever recorded of an error. A refusal is there as a whole.
type failure struct {
	class   class
	text    string
	refusal *rewrite.Refusal // of classRefused
}

// class is a sentinel of package tool, or the side that has the error itself.
type class byte

const (
	classNone     class = iota // no failure
	classOwn                   // of no class: the tool's own
	classPanicked              // tool.ErrPanicked
	classFuel
	classMemory
	classEffects
	classLimit // any other
	classTimeout
	classCancelled
	classSpoiled // sandbox.ErrSpoiled, which is a tool.ErrHost as well
	classHost
	classStopped // Call.StopErr
	classEnded   // the error with which the import panicked
	classRefused // a *rewrite.Refusal
	classes      // their number
)

var sentinels = [classes]error{
	classPanicked:  tool.ErrPanicked,
	classFuel:      tool.ErrFuel,
	classMemory:    tool.ErrMemory,
	classEffects:   tool.ErrEffects,
	classLimit:     tool.ErrLimit,
	classTimeout:   tool.ErrTimeout,
	classCancelled: tool.ErrCancelled,
	classSpoiled:   sandbox.ErrSpoiled,
	classHost:      tool.ErrHost,
	classStopped:   errStopped,
	classEnded:     errEnded,
}

// Placeholders in a worker's sandbox for errors that only the host has.
var (
	errStopped = errors.New("worker: stopped as recorded")
	errEnded   = errors.New("worker: ended by the host")
)

// failureOf returns the failure for err, nil for nil.
func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{class: classOwn, text: err.Error()}
	for c, sentinel := range sentinels {
		if sentinel != nil && errors.Is(err, sentinel) {
			f.class = class(c)
			return f // spoiled code looks like a refusal, too
		}
	}
	if r, refused := errors.AsType[*rewrite.Refusal](err); refused {
		f.class, f.refusal = classRefused, r
	}
	return f
}

// Error returns the text of the error.
func (f *failure) Error() string { return f.text }

// Unwrap returns the sentinel of the class or the refusal, nil for a tool's own failure.
func (f *failure) Unwrap() error {
	if f.refusal != nil {
		return f.refusal
	}
	return sentinels[f.class]
}

func (f *failure) append(b []byte) []byte {
	if f == nil {
		return append(b, byte(classNone))
	}
	b = appendBytes(append(b, byte(f.class)), f.text)
	if r := f.refusal; r != nil {
		b = appendTexts(b, []string{r.What, r.FuncName, r.Hint})
		for _, n := range []uint64{uint64(r.Func), uint64(r.Offset), r.Limit, r.Value} {
			b = appendUint(b, n)
		}
	}
	return b
}

func (f *fields) failure() *failure {
	c := class(f.byte())
	if c == classNone {
		return nil
	}
	if c >= classes {
		f.bad = true
		return nil
	}
	failed := &failure{class: c, text: f.text()}
	if c == classRefused {
		const texts = 3
		all := append(f.texts(texts), make([]string, texts)...)
		failed.refusal = &rewrite.Refusal{
			What: all[0], FuncName: all[1], Hint: all[2], Func: int(f.uint()), Offset: int(f.uint()), Limit: f.uint(), Value: f.uint(),
		}
	}
	return failed
}
