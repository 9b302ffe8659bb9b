package inspect

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
)

// Bounds of a conversation.
const (
	maxMessages     = 500
	maxMessage      = 16 << 10 // bytes of one text
	maxConversation = 1 << 20  // bytes of all texts
)

// message is one message of a conversation.
type message struct {
	Role, Name string // who speaks, and the tool of a call or a result
	Text       string
	JSON       bool
	Note       string // such as the tokens of an answer
	Class      string // with which it is drawn
	Path       string // of the event
	Current    bool
}

// conversation lists what the model was sent and what it answered. A model does not see the calls
// that tools and its programs make.
func (b *reader) conversation(r *http.Request) error {
	room, more := maxConversation, 0
	add := func(ev event.Event, m message) {
		if len(b.page.Conversation) == maxMessages || len(m.Text) > room {
			more++
			return
		}
		room -= len(m.Text)
		m.Path, m.Current = b.pathOf(ev.Seq), ev.Seq == b.selected && !b.page.Anchored
		b.drawn(ev.Seq, m.Current, m.Class == "bad")
		b.page.Conversation = append(b.page.Conversation, m)
	}
	text := func(s string) string { return display.PrintableText(display.Clip(s, maxMessage)) }
	err := b.read(r, func(ev event.Event) {
		run, in := b.did, b.did.At(ev.Seq)
		outer := in != span.None && (run.Spans[in].Parent == span.None || run.Spans[run.Spans[in].Parent].Kind == span.Turn)
		switch ev.Kind {
		case event.KindRunStarted:
			p, err := ev.AsRunStarted()
			if err != nil {
				return
			}
			if p.SystemPrompt != "" {
				add(ev, message{Role: "system", Class: "run", Text: text(p.SystemPrompt)})
			}
			m := message{Role: "user", Class: "run", Text: text(p.Goal)}
			if len(p.ToolSchemas) > 0 {
				m.Note = line("tools: " + strings.Join(lists.Map(p.ToolSchemas, func(ref event.ToolSchemaRef) string { return ref.Name }), ", "))
			}
			add(ev, m)
		case event.KindUserMessageAppended:
			if p, err := ev.AsUserMessageAppended(); err == nil {
				add(ev, message{Role: "user", Class: "run", Text: text(p.Content)})
			}
		case event.KindReasoningEmitted:
			if p, err := ev.AsReasoningEmitted(); err == nil {
				add(ev, message{Role: "reasoning", Class: "model", Text: text(p.Content)})
			}
		case event.KindAssistantMessageCompleted:
			p, err := ev.AsAssistantMessageCompleted()
			if err != nil {
				return
			}
			note := fmt.Sprintf("%s tokens in, %s out", digits(p.InputTokens), digits(p.OutputTokens))
			if p.Text != "" || len(p.ToolUses) == 0 {
				add(ev, message{Role: "model", Class: "model", Text: text(p.Text), Note: note})
			}
			for _, use := range p.ToolUses {
				v := value("", use.Args)
				if long := texts(use.Args); len(long) == 1 && strings.Count(v.Text, "\n") == 2 { // the only argument, as of run_js
					v = long[0]
				}
				add(ev, message{Role: "model calls", Class: "model", Name: line(use.ToolName), Text: v.Text, JSON: v.JSON})
			}
		case event.KindToolCallCompleted:
			if p, err := ev.AsToolCallCompleted(); err == nil && outer {
				v := value("", p.Result)
				add(ev, message{Role: "result", Class: "tool", Name: line(run.Spans[in].Name), Text: v.Text, JSON: v.JSON})
			}
		case event.KindToolCallFailed:
			if p, err := ev.AsToolCallFailed(); err == nil && outer && p.Final {
				add(ev, message{Role: "error", Class: "bad", Name: line(run.Spans[in].Name), Text: text(p.ErrorType + ": " + p.Error)})
			}
		case event.KindSideEffectRecorded:
			if p, err := ev.AsSideEffectRecorded(); err == nil {
				if f, ok := p.ModelFailure(); ok {
					add(ev, message{Role: "model", Class: "bad", Name: "did not answer", Text: text(cmp.Or(f.PartialText+"\n", "") + f.Class + ": " + f.Error)})
				}
			}
		}
	})
	if more > 0 {
		b.note(fmt.Sprintf("%s are not shown.", display.Plural(more, "more message")))
	}
	b.choose(r, viewConversation)
	return err
}
