package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// conversation is the history in each request to the model. It is a function of the run's
// events: a live run extends it, and a resumed run rebuilds it from the log.
//
// A direct run has no model, and one use, which the caller requests.
type conversation struct {
	direct   bool
	messages []provider.Message
	turnID   string   // of the last answer
	uses     []*use   // the uses in that answer
	later    []string // messages of the user that wait for outcomes
	final    string   // the last answer's text
	answered bool     // it is the last message, without uses
	cache    CacheStats

	stopReason string // of the last answer
	paused     bool   // the model continues that answer
	incomplete *AnswerError

	reasoning []provider.Reasoning // of the answer being read from the log
}

// use is a tool use and its outcome.
type use struct {
	provider.ToolUse
	doc    *canon.Doc // the arguments, if they are parsed
	callID string     // id of its last call by a process that died; may be empty
	done   bool       // it has an outcome: output or err
	output json.RawMessage
	err    error
}

// begin is the conversation at the start of a run.
func (a *Agent) begin(goal string) *conversation {
	if a.direct {
		call := provider.ToolUse{Name: a.Tools[0].Name(), Args: a.input}
		return &conversation{direct: true, turnID: DirectTurn, uses: []*use{{ToolUse: call, doc: a.doc}}}
	}
	return &conversation{messages: []provider.Message{{Role: provider.RoleUser, Content: goal}}}
}

// addAnswer adds an answer. Uses in an answer that was cut off or refused are ignored: the
// last may be incomplete.
func (t *conversation) addAnswer(r *provider.Response) {
	final := r.Text
	if t.paused {
		final = t.final + final
	}
	t.stopReason, t.paused, t.incomplete = r.StopReason, r.Outcome == event.AnswerPaused, nil
	if r.Outcome == event.ErrorCut || r.Outcome == event.ErrorRefused {
		t.incomplete, r.ToolUses = &AnswerError{r.Outcome, r.StopReason}, nil
	}
	t.messages = append(t.messages, r.Message())
	t.turnID, t.final, t.uses = r.TurnID, final, nil
	t.answered = len(r.ToolUses) == 0 && !t.paused
	t.cache.add(r.Usage)
	for _, u := range r.ToolUses {
		t.uses = append(t.uses, &use{ToolUse: u})
	}
}

// pending returns the uses without an outcome, which must be called.
func (t *conversation) pending() []*use {
	return slices.DeleteFunc(slices.Clone(t.uses), func(u *use) bool { return u.done })
}

// settle adds the outcomes, in the order of the uses, once all are known, and then the
// waiting messages of the user.
func (t *conversation) settle() {
	if len(t.pending()) > 0 {
		return
	}
	if t.direct {
		t.answered = true
		return
	}
	for _, u := range t.uses {
		told := &provider.ToolResult{CallID: u.CallID, Content: string(u.output)}
		if u.err != nil {
			told.Content, told.IsError = tool.ErrorText(u.err), true
		}
		t.messages = append(t.messages, provider.Message{Role: provider.RoleTool, ToolResult: told})
	}
	t.uses = nil
	for _, text := range t.later {
		t.say(text)
	}
	t.later = nil
}

// say adds a message of the user. Providers require outcomes before it.
func (t *conversation) say(text string) {
	if len(t.uses) > 0 {
		t.later = append(t.later, text)
		return
	}
	t.messages = append(t.messages, provider.Message{Role: provider.RoleUser, Content: text})
	t.answered, t.paused, t.incomplete = false, false, nil
}

// recall rebuilds the conversation of a run from its events.
func (a *Agent) recall(events []event.Event) (*conversation, error) {
	started, err := events[0].AsRunStarted()
	if err != nil {
		return nil, err
	}
	t := a.begin(started.Goal)
	for _, ev := range events {
		if err := t.read(ev); err != nil {
			return nil, fmt.Errorf("starling: seq %d: %w", ev.Seq, err)
		}
	}
	return t, nil
}

// read adds one event.
func (t *conversation) read(ev event.Event) error {
	switch ev.Kind {
	case event.KindUserMessageAppended:
		return event.On(ev, func(p event.UserMessageAppended) { t.say(p.Content) })
	case event.KindTurnStarted:
		t.reasoning = nil
	case event.KindReasoningEmitted:
		return event.On(ev, func(p event.ReasoningEmitted) {
			t.reasoning = append(t.reasoning, provider.Reasoning{Content: p.Content, Signature: p.Signature, Redacted: p.Redacted})
		})
	case event.KindAssistantMessageCompleted:
		return t.readAnswer(ev)
	}
	return t.readCall(ev)
}

func (t *conversation) readAnswer(ev event.Event) error {
	p, err := ev.AsAssistantMessageCompleted()
	if err != nil {
		return err
	}
	uses, err := step.ToolUses(p.ToolUses)
	t.addAnswer(&provider.Response{
		TurnID: p.TurnID, Text: p.Text, Reasoning: t.reasoning, ToolUses: uses, StopReason: p.StopReason, Outcome: p.Outcome,
		Usage: provider.Usage{CacheReadTokens: p.CacheReadTokens, CacheCreateTokens: p.CacheCreateTokens},
	})
	t.reasoning = nil
	return err
}

// readCall adds an event of a call. It ignores nested calls.
func (t *conversation) readCall(ev event.Event) error {
	payload, err := event.OfCall(ev)
	if err != nil {
		return err
	}
	switch p := payload.(type) {
	case event.ToolCallScheduled:
		for _, u := range t.uses {
			switch {
			case p.ParentID != "":
			case t.direct:
				u.CallID = cmp.Or(u.CallID, p.CallID)
				u.callID = p.CallID
				u.doc, err = canon.DocOf(p.Args)
			case u.CallID == p.CallID, p.IdempKey != "" && u.CallID == p.IdempKey:
				u.callID = p.CallID
			}
		}
	case event.ToolCallCompleted:
		var result json.RawMessage
		result, err = canon.ToJSON(p.Result)
		t.outcome(p.CallID, result, nil)
	case event.ToolCallFailed:
		if p.Final {
			t.outcome(p.CallID, nil, &step.CallError{Failed: p})
		}
	}
	return err
}

// outcome stores the outcome of a call in its use.
func (t *conversation) outcome(callID string, output json.RawMessage, failed *step.CallError) {
	for _, u := range t.uses {
		if u.callID != callID || u.done {
			continue
		}
		u.done, u.output = true, output
		if failed != nil {
			u.err = failed
		}
		t.settle()
		return
	}
}
