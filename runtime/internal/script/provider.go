package script

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
)

// model is a Provider. It is never changed.
type model struct {
	steps [][]answer // for each step the alternatives, in order
}

// answer is a turn that is ready to be sent.
type answer struct {
	when    *Guard
	content []provider.StreamChunk
	usage   provider.Usage
	guess   bool // count the request as the input tokens
	end     provider.StreamChunk
	fails   error // after the content
	delay   time.Duration
}

// New returns a model that speaks the script. The error is from
// [Script.Check], or means that a text is not UTF-8.
func New(s Script) (provider.Provider, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	m := &model{}
	var step []answer
	for i := range s {
		a, err := s[i].answer(len(m.steps) + 1)
		if err != nil {
			return nil, fmt.Errorf("script: turn %d: %w", i+1, err)
		}
		step = append(step, a)
		if a.when == nil || i == len(s)-1 {
			m.steps, step = append(m.steps, step), nil
		}
	}
	return m, nil
}

// answer prepares a turn of a step.
func (t *Turn) answer(step int) (answer, error) {
	encoded, err := canon.Marshal(t)
	if err != nil {
		return answer{}, err
	}
	hash := canon.Sum(encoded)
	a := answer{when: t.When, content: t.content(step), fails: t.Error.err(), delay: t.Delay, end: provider.StreamChunk{
		Kind: provider.ChunkEnd, StopReason: t.stopReason(), RawResponseHash: hash[:], RequestID: fmt.Sprintf("script_%d", step),
	}}
	if t.Usage == nil {
		a.guess, a.usage = true, provider.Usage{OutputTokens: t.outputTokens()}
	} else {
		a.usage = provider.Usage(*t.Usage)
	}
	if t.Error != nil {
		a.content = a.content[:t.Error.AfterChunks]
	}
	return a, nil
}

// Info implements [provider.Provider].
func (*model) Info() provider.Info { return provider.Info{ID: "script", APIVersion: "v1"} }

// Capabilities implements [provider.Capabler].
func (*model) Capabilities() provider.Capabilities {
	return provider.Capabilities{
		Tools: true, ToolChoice: true, Reasoning: true, StopSequences: true, CacheControl: true, RequestID: true,
	}
}

// Stream implements [provider.Provider].
func (m *model) Stream(ctx context.Context, req *provider.Request) (provider.EventStream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := refuseParams(req.Params); err != nil {
		return nil, err
	}
	a, err := m.choose(req.Messages)
	if err != nil {
		return nil, err
	}
	if a.fails != nil && len(a.content) == 0 {
		return nil, a.fails
	}
	return newStream(ctx, a, req), nil
}

// refuseParams refuses options: a script has none.
func refuseParams(params canon.Raw) error {
	var options map[string]canon.Raw
	if len(params) == 0 {
		return nil
	}
	if err := canon.Unmarshal(params, &options); err != nil {
		return fmt.Errorf("script: Request.Params is not a CBOR map of options: %w", err)
	}
	for name := range options {
		return fmt.Errorf("script: there is no option %q: a scripted model has none", name)
	}
	return nil
}

// choose returns the answer to a conversation.
func (m *model) choose(messages []provider.Message) (*answer, error) {
	step := 0
	for _, msg := range messages {
		if msg.Role == provider.RoleAssistant {
			step++
		}
	}
	if step >= len(m.steps) {
		return nil, fmt.Errorf("script: the model is asked for the answer of step %d, and the script has %d", step+1, len(m.steps))
	}
	last := lastText(messages)
	for i := range m.steps[step] {
		if a := &m.steps[step][i]; a.when == nil || strings.Contains(last, a.when.Contains) {
			return a, nil
		}
	}
	return nil, fmt.Errorf("script: no turn of step %d is for the message %.200q: add one without a guard", step+1, last)
}

// lastText returns the text that guards look at.
func lastText(messages []provider.Message) string {
	if len(messages) == 0 {
		return ""
	}
	last := messages[len(messages)-1]
	if last.ToolResult != nil {
		return last.ToolResult.Content
	}
	return last.Content
}

var errClosed = errors.New("script: the stream is closed")

// usageFor completes the counts of tokens.
func (a *answer) usageFor(req *provider.Request) *provider.Usage {
	u := a.usage
	if a.guess {
		u.InputTokens = budget.EstimateInput(req)
	}
	return &u
}
