package rewrite

import (
	"errors"
	"fmt"
	"strings"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// Refusal is the reason why a module is not accepted. It is the only kind of
// error that [Rewrite] returns before their budget's context ends.
type Refusal struct {
	What     string // the refused thing: "locals", "ref.func", "malformed module: ..."
	Func     int    // index of the function it is in, imports counted; -1 outside of functions
	FuncName string // its name in the module, or ""
	Offset   int    // of the byte in question, from the start of the module; -1 without a single byte
	Limit    uint64 // the accepted maximum; with Value, zero when no number is exceeded
	Value    uint64 // the module's number
	Hint     string // advice for its author, or ""
}

// Error returns the refusal in one line, without the hint.
func (r *Refusal) Error() string {
	var b strings.Builder
	b.WriteString("rewrite: ")
	if r.Func >= 0 {
		fmt.Fprintf(&b, "function %d", r.Func)
		if r.FuncName != "" {
			fmt.Fprintf(&b, " %q", r.FuncName)
		}
		b.WriteString(": ")
	}
	b.WriteString(r.What)
	if r.Value > r.Limit {
		fmt.Fprintf(&b, ": %d, the limit is %d", r.Value, r.Limit)
	}
	if r.Offset >= 0 {
		fmt.Fprintf(&b, " (at byte %#x)", r.Offset)
	}
	return b.String()
}

// Advice implements [hint.Hinted].
func (r *Refusal) Advice() string { return r.Hint }

// refuse makes a refusal of something that is not allowed at all.
func refuse(offset int, hint, format string, args ...any) *Refusal {
	return &Refusal{What: fmt.Sprintf(format, args...), Func: -1, Offset: offset, Hint: hint}
}

// atMost refuses value when it is over limit.
func atMost(what string, offset int, value, limit uint64) error {
	if value <= limit {
		return nil
	}
	return &Refusal{What: "too many or too large: " + what, Func: -1, Offset: offset, Limit: limit, Value: value}
}

// hinted adds a hint for the module's author to a refusal.
func hinted(err error, hint string) error {
	var r *Refusal
	if errors.As(err, &r) {
		r.Hint = hint
	}
	return err
}

// Malformed turns the error of a decoder, or of a budget that is used up, into a refusal.
func Malformed(err error) error {
	if errors.Is(err, work.ErrExceeded) {
		return refuse(-1, "remove what repeats: the same few bytes, again and again, become many more", "%v", err)
	}
	var f *wasm.FormatError
	if err == nil || !errors.As(err, &f) {
		return err
	}
	what := f.Msg
	if f.Feature == "" {
		what = "malformed module: " + what
	}
	return &Refusal{What: what, Func: -1, Offset: f.Offset, Hint: cureOfFeature(f.Feature)}
}

// inFunc adds to a refusal which function it is in. The budget has to suffice for the names.
func inFunc(w *work.Budget, err error, m *wasm.Module, index int) error {
	var r *Refusal
	if errors.As(err, &r) {
		r.Func = index
		if names := m.Custom("name"); names != nil && w.Spend(len(names.Body)) == nil {
			r.FuncName = m.FuncName(index)
		}
	}
	return err
}
