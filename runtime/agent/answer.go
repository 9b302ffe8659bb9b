package agent

import (
	"fmt"

	"github.com/starling-host/starling/eventlog/event"
)

// AnswerError ends a run whose model gave an answer that is no whole one. It can be gone on
// with: [Agent.Resume] says something to the model, in a copy in which the run has not ended.
type AnswerError struct {
	Type       string // [event.ErrorRefused] or [event.ErrorCut]
	StopReason string // in the provider's own word
}

// Error says what became of the answer.
func (e *AnswerError) Error() string {
	if e.Type == event.ErrorCut {
		return fmt.Sprintf("the model's answer was cut off: the provider's reason is %q", e.StopReason)
	}
	return fmt.Sprintf("the model, or a filter of its provider, refused to answer: the provider's reason is %q", e.StopReason)
}
