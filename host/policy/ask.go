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

// Asker asks the user of a run a question and returns the answer: [Accept] or another word with the reason for a
// refusal. An error explains why the user cannot be asked. In that case, and without an Asker, the action is denied.
type Asker func(ctx context.Context, q Question) (answer string, err error)

// Question is about a call or a request that needs the user's consent.
type Question struct {
	Tool string // its name in the run

	// Text is the text to show to the user: the question on the first line, then the details, one argument a line.
	// Invisible characters and characters that reorder text are escaped. If the details do not fit, Text is empty and
	// the user is not asked.
	Text string

	// Partial is set if Text shortens long values to their beginning, length and hash. Then an answer given without
	// thought, such as the default of a form, must be a refusal.
	Partial bool

	answered func(answer string) // keeps the answer; may be nil
}

// Bounds of a question's text, in bytes.
const (
	maxQuestion = 4 << 10 // with all values, or with long values shortened
	maxHead     = 160     // of a shortened value
)

// newQuestion returns the question whether to let a tool do something. The details are JSON texts, each with an
// optional name.
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

// callQuestion returns the question whether to call a tool with an input.
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
	case !object || err != nil: // the tool would receive it unchanged
		return newQuestion(tool, "to be called with this input?", []detail{{"", string(input)}})
	case len(details) == 0:
		return newQuestion(tool, "to be called without arguments?", nil)
	}
	return newQuestion(tool, "to be called with these arguments?", details)
}

// visible returns a text on one line with invisible characters escaped.
func visible(text string) string { return display.EscapeRunes(text, display.Visible) }

// The answers of a user, in the words of the Model Context Protocol. Accept allows the action.
const (
	Accept  = "accept"
	Decline = "decline"
	Cancel  = "cancel"
)

type askerKey struct{}

// WithAsker returns a context whose runs can ask the user.
func WithAsker(ctx context.Context, ask Asker) context.Context {
	return context.WithValue(ctx, askerKey{}, ask)
}

// confirm asks the user if a rule requires that, and returns a function that applies the answer to a decision. That
// function changes nothing unless the decision that it receives requires an answer.
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
