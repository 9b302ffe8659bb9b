package agent

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// conversation is what the model is told with each request. It is a function of
// the run's events: a live run extends it as it goes, and a run that is resumed
// finds it again in the log.
type conversation struct {
	messages []provider.Message
	turnID   string   // of the last answer
	uses     []*use   // what that answer asked for
	later    []string // what the user said before the outcomes were there
	final    string   // the last answer's text
	answered bool     // nothing was said after it, and it asks for nothing
	cache    CacheStats

	reasoning []provider.Reasoning // of the answer that is being read from the log

	tracer *observe.Tracer // of a live run; nil in a replay, which nobody watches
}

// use is a tool use and its outcome.
type use struct {
	provider.ToolUse
	callID string               // of the call that a process made for it that died; empty for none
	result *provider.ToolResult // nil as long as there is no outcome
}

// fresh is the conversation at the start of a run.
func fresh(goal string) *conversation {
	return &conversation{messages: []provider.Message{{Role: provider.RoleUser, Content: goal}}}
}

// heard adds an answer.
func (t *conversation) heard(r *provider.Response) {
	t.messages = append(t.messages, r.Message())
	t.turnID, t.final, t.uses = r.TurnID, r.Text, nil
	t.answered = len(r.ToolUses) == 0
	t.cache.add(r.Usage)
	for _, u := range r.ToolUses {
		t.uses = append(t.uses, &use{ToolUse: u})
	}
}

// pending returns the uses that are to be called: those without an outcome.
func (t *conversation) pending() []*use {
	return slices.DeleteFunc(slices.Clone(t.uses), func(u *use) bool { return u.result != nil })
}

// settle gives a use its outcome, in the words that the model reads.
func (u *use) settle(result json.RawMessage, err error) {
	u.result = &provider.ToolResult{CallID: u.CallID, Content: string(result)}
	if err != nil {
		u.result.Content, u.result.IsError = tool.ErrorText(err), true
	}
}

// settled adds the outcomes when all of them are there, in the order of the uses,
// and then what the user has said meanwhile.
func (t *conversation) settled() {
	if len(t.pending()) > 0 {
		return
	}
	for _, u := range t.uses {
		t.messages = append(t.messages, provider.Message{Role: provider.RoleTool, ToolResult: u.result})
	}
	t.uses = nil
	for _, text := range t.later {
		t.say(text)
	}
	t.later = nil
}

// say adds what the user says. A provider wants to see outcomes first.
func (t *conversation) say(text string) {
	if len(t.uses) > 0 {
		t.later = append(t.later, text)
		return
	}
	t.messages = append(t.messages, provider.Message{Role: provider.RoleUser, Content: text})
	t.answered = false
}

// recall rebuilds the conversation of a run from its events.
func recall(events []event.Event) (*conversation, error) {
	started, err := events[0].AsRunStarted()
	if err != nil {
		return nil, err
	}
	t := fresh(started.Goal)
	for _, ev := range events {
		if err := t.read(ev); err != nil {
			return nil, fmt.Errorf("starling: seq %d: %w", ev.Seq, err)
		}
	}
	return t, nil
}

// read takes one event.
func (t *conversation) read(ev event.Event) error {
	switch ev.Kind {
	case event.KindUserMessageAppended:
		p, err := ev.AsUserMessageAppended()
		t.say(p.Content)
		return err
	case event.KindTurnStarted:
		t.reasoning = nil
	case event.KindReasoningEmitted:
		p, err := ev.AsReasoningEmitted()
		t.reasoning = append(t.reasoning, provider.Reasoning{Content: p.Content, Signature: p.Signature, Redacted: p.Redacted})
		return err
	case event.KindAssistantMessageCompleted:
		return t.readAnswer(ev)
	case event.KindToolCallScheduled, event.KindToolCallCompleted, event.KindToolCallFailed:
		return t.readCall(ev)
	}
	return nil
}

func (t *conversation) readAnswer(ev event.Event) error {
	p, err := ev.AsAssistantMessageCompleted()
	if err != nil {
		return err
	}
	uses, err := step.ToolUses(p.ToolUses)
	t.heard(&provider.Response{
		TurnID: p.TurnID, Text: p.Text, Reasoning: t.reasoning, ToolUses: uses,
		Usage: provider.Usage{CacheReadTokens: p.CacheReadTokens, CacheCreateTokens: p.CacheCreateTokens},
	})
	t.reasoning = nil
	return err
}

// readCall takes an event of a call; those of calls that tools made are nobody's
// here.
func (t *conversation) readCall(ev event.Event) error {
	switch ev.Kind {
	case event.KindToolCallScheduled:
		p, err := ev.AsToolCallScheduled()
		for _, u := range t.uses {
			if p.ParentID == "" && (u.CallID == p.CallID || p.IdempKey != "" && u.CallID == p.IdempKey) {
				u.callID = p.CallID
			}
		}
		return err
	case event.KindToolCallCompleted:
		p, err := ev.AsToolCallCompleted()
		if err != nil {
			return err
		}
		result, err := canon.ToJSON(p.Result)
		t.outcome(p.CallID, result, nil)
		return err
	default:
		p, err := ev.AsToolCallFailed()
		if p.Final {
			t.outcome(p.CallID, nil, &step.CallError{Failed: p})
		}
		return err
	}
}

// outcome settles the use that a call was made for.
func (t *conversation) outcome(callID string, result json.RawMessage, err *step.CallError) {
	for _, u := range t.uses {
		if u.callID != callID || u.result != nil {
			continue
		}
		if err != nil {
			u.settle(nil, err)
		} else {
			u.settle(result, nil)
		}
		t.settled()
		return
	}
}
