package policy

import (
	"context"
	"slices"
)

// Asker puts a question to the user for whom a run is made, and returns the answer: [Accept]
// or another word for why not. An error says why the user cannot be asked. Then, and without
// an Asker, what was to be confirmed is denied.
type Asker func(ctx context.Context, q Question) (answer string, err error)

// Question is about a call or a request that the policies allow if the user does.
type Question struct {
	Tool string // as it is called in the run
	Asks string // what it wants: "to be called with ..." or "to send requests to ..."

	answered func(answer string) // keeps the answer; nil for none
}

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
		if ask, ok := ctx.Value(askerKey{}).(Asker); ok {
			var err error
			if answer, err = ask(ctx, q); err != nil {
				answer, why = "", "the user must confirm it, and cannot be asked: "+err.Error()
			} else if q.answered != nil {
				q.answered(answer)
			}
		}
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
			v.Answer = answer
			switch answer {
			case Accept:
				return d
			case "":
			case Decline:
				why = "the user was asked and declined"
			default:
				answer, why = Cancel, "the user was asked and did not answer"
				v.Answer = Cancel
			}
			v.Denied, v.Rule, d.Verdicts = why, 0, d.Verdicts[:i+1]
			break
		}
		return Decision{Verdicts: d.Verdicts, File: d.File, Line: d.Line}
	}
}
