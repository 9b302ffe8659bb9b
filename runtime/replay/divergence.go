package replay

import (
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/step"
)

// ErrNonDeterminism is what every [*Divergence] is.
var ErrNonDeterminism = errors.New("replay: the run is not the recorded one")

// Divergence is the first difference between a run and its recording. As an
// error it is [ErrNonDeterminism] and unwraps to the [*step.MismatchError].
type Divergence struct {
	RunID        string
	Seq          uint64     // of the recorded event; one past the last if there is none
	Kind         event.Kind // what the replay did; zero if it did nothing more
	ExpectedKind event.Kind // what is recorded; zero if nothing more is
	Class        step.MismatchClass
	Field        string // dotted path of the first payload field that differs, or empty
	Expected     string // the recorded value of Field
	Got          string // the replayed value of Field
	Reason       string // one sentence
}

func newDivergence(runID string, m *step.MismatchError) *Divergence {
	return &Divergence{
		RunID: runID, Seq: m.Seq, Kind: m.Kind, ExpectedKind: m.ExpectedKind, Class: m.Class,
		Field: m.Field, Expected: m.Expected, Got: m.Got, Reason: m.Reason,
	}
}

// mismatch returns the difference without the run.
func (d *Divergence) mismatch() *step.MismatchError {
	return &step.MismatchError{
		Seq: d.Seq, Kind: d.Kind, ExpectedKind: d.ExpectedKind, Class: d.Class,
		Field: d.Field, Expected: d.Expected, Got: d.Got, Reason: d.Reason,
	}
}

// Error names the run and the difference.
func (d *Divergence) Error() string {
	return fmt.Sprintf("%v: run %q: %v", ErrNonDeterminism, d.RunID, d.mismatch())
}

// Is reports whether target is [ErrNonDeterminism].
func (d *Divergence) Is(target error) bool { return target == ErrNonDeterminism }

// Unwrap returns a [*step.MismatchError].
func (d *Divergence) Unwrap() error { return d.mismatch() }
