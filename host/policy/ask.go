package policy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-host/starling/internal/display"
)

// Asker puts a question to the user for whom a run is made, and returns the answer: [Accept]
// or another word for why not. An error says why the user cannot be asked. Then, and without
// an Asker, what was to be confirmed is denied.
type Asker func(ctx context.Context, q Question) (answer string, err error)

// Question is about a call or a request that the policies allow if the user does.
type Question struct {
	Tool string // as it is called in the run

	// Text is what the user must see: the question on the first line, then what it is about,
	// one argument a line. Characters that are invisible or reorder text are escaped. It is
	// empty if all of it does not fit; then the user is not asked.
	Text string

	// Partial says that Text gives long values by their beginning, length and hash. Then an
	// answer that takes no thought, such as the default of a form, must be a refusal.
	Partial bool

	answered func(answer string) // keeps the answer; nil for none
}

// Bounds of a question, in bytes of its text.
const (
	maxQuestion = 4 << 10 // whole, or with its long values cut
	maxHead     = 160     // of a value that is cut
)

// newQuestion returns the question whether a tool may do something. The details are JSON
// texts, each with a name or without.
func newQuestion(tool, what string, details []detail) Question {
	q := Question{Tool: tool}
	for _, most := range []int{maxQuestion, maxHead} {
		q.Text, q.Partial = "Do you allow the tool "+visible(tool)+" "+what, most < maxQuestion
		for _, d := range details {
			value := visible(d.value)
			if len(value) > most {
				head := strings.ToValidUTF8(value[:most], "")
				value = fmt.Sprintf("%s ... (cut: %d bytes, SHA-256 %x)", head, len(d.value), sha256.Sum256([]byte(d.value)))
			}
			if q.Text += "\n  " + visible(d.name) + value; len(q.Text) > maxQuestion {
				break
			}
		}
		if len(q.Text) <= maxQuestion {
			return q
		}
	}
	return Question{Tool: tool}
}

type detail struct{ name, value string }

// callQuestion returns the question whether a tool may be called with an input.
func callQuestion(tool string, input json.RawMessage) Question {
	var details []detail
	members := json.NewDecoder(bytes.NewReader(input))
	first, err := members.Token()
	object := err == nil && first == json.Delim('{')
	for object && err == nil && members.More() && len(details) < maxQuestion {
		var name json.Token
		var value json.RawMessage
		if name, err = members.Token(); err == nil {
			err = members.Decode(&value)
		}
		quoted, _ := json.Marshal(name) // a string cannot fail
		details = append(details, detail{string(quoted) + ": ", string(value)})
	}
	switch {
	case !object || err != nil: // the tool would get it as it is
		return newQuestion(tool, "to be called with this input?", []detail{{"", string(input)}})
	case len(details) == 0:
		return newQuestion(tool, "to be called without arguments?", nil)
	}
	return newQuestion(tool, "to be called with these arguments?", details)
}

// visible returns a text on one line with every character escaped that cannot be seen.
func visible(text string) string { return display.EscapeRunes(text, display.Visible) }

// Accept is the answer of a user who allows it. These are the words of the Model Context
// Protocol.
const (
	Accept  = "accept"
	Decline = "decline"
	Cancel  = "cancel"
)

type askerKey struct{}

// WithAsker returns a context in whose runs the user can be asked.
func WithAsker(ctx context.Context, ask Asker) context.Context {
	return context.WithValue(ctx, askerKey{}, ask)
}

// confirm asks the user, if a rule wants that, and returns what makes a decision of the
// answer. If there is nothing to ask it changes nothing, unless a rule wants to ask by then.
func (d Decision) confirm(ctx context.Context, q Question) func(Decision) Decision {
	answer, why := "", "the user must confirm it, and cannot be asked here"
	if d.Allowed() && d.Ask != "" {
		if q.Text == "" {
			why = "the user must confirm it, and it is too large for a question"
		} else if ask, ok := ctx.Value(askerKey{}).(Asker); ok {
			var err error
			if answer, err = ask(ctx, q); err != nil {
				answer, why = "", "the user must confirm it, and cannot be asked: "+err.Error()
			} else if q.answered != nil {
				q.answered(answer)
			}
		}
	}
	switch answer {
	case "", Accept:
	case Decline:
		why = "the user was asked and declined"
	default:
		answer, why = Cancel, "the user was asked and did not answer"
	}
	return func(d Decision) Decision {
		if !d.Allowed() || d.Ask == "" {
			return d
		}
		d.Verdicts = slices.Clone(d.Verdicts)
		for i := range d.Verdicts {
			v := &d.Verdicts[i]
			if v.Side != d.Ask {
				continue
			}
			if v.Answer = answer; answer == Accept {
				return d
			}
			v.Denied, v.Rule, d.Verdicts = why, 0, d.Verdicts[:i+1]
			break
		}
		return Decision{Verdicts: d.Verdicts, File: d.File, Line: d.Line}
	}
}
