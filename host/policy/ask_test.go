package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/tool"
)

// nothing is a tool that does nothing.
type nothing struct{}

func (nothing) Name() string                                                      { return "remove" }
func (nothing) Description() string                                               { return "" }
func (nothing) Schema() json.RawMessage                                           { return json.RawMessage(`{}`) }
func (nothing) Execute(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil }

const asks = head + `permissions:
  tools: {remove: {ask: true, arguments: {type: object, properties: {path: {type: string, pattern: "^/tmp/.*$"}}}}, read: {}}
  network: {allow: [{host: a.b, ask: true}, {host: c.d}]}
`

// TestTheUserIsAsked puts every answer to the question about a call, and looks at what is
// recorded.
func TestTheUserIsAsked(t *testing.T) {
	p, err := Parse("p.yaml", []byte(asks))
	if err != nil {
		t.Fatal(err)
	}
	all, err := Parse("all.yaml", []byte(head+"permissions: {tools: {'*': {}}}"))
	if err != nil {
		t.Fatal(err)
	}
	var question Question
	answers := func(answer string, err error) context.Context {
		question = Question{}
		return WithAsker(t.Context(), func(_ context.Context, q Question) (string, error) {
			question = q
			return answer, err
		})
	}
	for name, c := range map[string]struct {
		ctx            context.Context
		denied, answer string
	}{
		"accepts":     {answers(Accept, nil), "", Accept},
		"declines":    {answers(Decline, nil), "the user was asked and declined", Decline},
		"cancels":     {answers(Cancel, nil), "the user was asked and did not answer", Cancel},
		"other words": {answers("yes!", nil), "the user was asked and did not answer", Cancel},
		"not there":   {answers("", errors.New("the client has no elicitation")), "the user must confirm it, and cannot be asked: the client has no elicitation", ""},
		"nobody":      {t.Context(), "the user must confirm it, and cannot be asked here", ""},
	} {
		for sides, run := range map[string]*Run{"operator": NewRun(p, all, nil), "tenant": NewRun(all, p, nil)} {
			_, guards := tool.Unguard(run.Guard(nothing{}))
			got := guards[0](c.ctx, "remove", json.RawMessage(`{"path":"/tmp/x"}`))
			i := slices.IndexFunc(got, func(v event.Verdict) bool { return v.Side == sides })
			if i < 0 || got[i].Denied != c.denied || got[i].Answer != c.answer || got.Allowed() != (c.denied == "") {
				t.Errorf("the user %s, asked by the %s: %+v", name, sides, got)
			}
			b, err := canon.Marshal(got)
			var again event.Verdicts
			if err != nil || canon.Unmarshal(b, &again) != nil || again[i].Answer != c.answer {
				t.Errorf("recorded as %+v, %v", again, err)
			}
		}
	}

	// What is denied anyway, or needs no answer, is not asked about.
	_, guards := tool.Unguard(NewRun(p, nil, nil).Guard(nothing{}))
	ctx := answers(Accept, nil)
	if got := guards[0](ctx, "remove", json.RawMessage(`{"path":"/etc"}`)); got.Allowed() || question.Tool != "" {
		t.Errorf("asked %+v about arguments that the policy denies: %+v", question, got)
	}
	if got := guards[0](ctx, "read", json.RawMessage(`{}`)); !got.Allowed() || question.Tool != "" {
		t.Errorf("asked %+v where no rule asks: %+v", question, got)
	}
	guards[0](ctx, "remove", json.RawMessage(`{"path":"/tmp/x"}`))
	if question.Tool != "remove" || question.Text != "Do you allow the tool remove to be called with these arguments?\n  \"path\": \"/tmp/x\"" {
		t.Errorf("the question is %+v", question)
	}
}

// TestOneAnswerForAnOrigin asks once about the requests of a tool to an origin.
func TestOneAnswerForAnOrigin(t *testing.T) {
	p, err := Parse("p.yaml", []byte(asks))
	if err != nil {
		t.Fatal(err)
	}
	var questions []string
	for _, answer := range []string{Accept, Decline} {
		run := NewRun(p, nil, nil)
		ctx := WithAsker(t.Context(), func(_ context.Context, q Question) (string, error) {
			questions = append(questions, answer+" "+strings.TrimPrefix(q.Text, "Do you allow the tool "))
			return answer, nil
		})
		for _, to := range []struct{ tool, host, path string }{
			{"read", "a.b", "/1"}, {"read", "a.b", "/2"}, {"remove", "a.b", "/3"}, {"read", "c.d", "/4"},
		} {
			x := run.Exchange(to.tool, 10)
			_, err := x.Authorize(ctx, egress.Access{Method: "GET", Scheme: "https", Host: to.host, Port: 443, Path: to.path})
			if allowed := answer == Accept || to.host == "c.d"; (err == nil) != allowed || x.Verdicts().Allowed() != allowed {
				t.Errorf("%s, %+v: %v", answer, to, err)
			}
		}
		if used := run.used[Place{Operator, 1}].Calls; used != map[string]uint64{Accept: 3, Decline: 0}[answer] {
			t.Errorf("%s: %d requests are counted", answer, used)
		}
	}
	if want := []string{
		"accept read to send requests to https://a.b?\n  the first one: GET /1", "accept remove to send requests to https://a.b?\n  the first one: GET /3",
		"decline read to send requests to https://a.b?\n  the first one: GET /1", "decline remove to send requests to https://a.b?\n  the first one: GET /3",
	}; !slices.Equal(questions, want) {
		t.Errorf("asked %q", questions)
	}
}

// TestAQuestionHidesNothing looks at questions whose arguments are too long to be shown, cannot
// be seen, or forge lines: each member has its line, and what is not shown exactly is cut with
// its length and hash, or not asked about.
func TestAQuestionHidesNothing(t *testing.T) {
	p, err := Parse("p.yaml", []byte(asks))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(input string) (asked *Question, verdicts event.Verdicts) {
		_, guards := tool.Unguard(NewRun(p, nil, nil).Guard(nothing{}))
		ctx := WithAsker(t.Context(), func(_ context.Context, q Question) (string, error) {
			asked = &q
			return Accept, nil
		})
		return asked, guards[0](ctx, "remove", json.RawMessage(input))
	}
	long, many := strings.Repeat(".", 4100), []string{}
	for i := range 400 {
		many = append(many, fmt.Sprintf(`"argument%d":1`, i))
	}
	for name, c := range map[string]struct {
		input, text string
		partial     bool
	}{
		"long":      {`{"note":"` + long + `","amount":1000000,"to":"EVE"}`, "these arguments?\n  \"note\": \"" + long[:maxHead-1] + " ... (cut: 4102 bytes, SHA-256 1acdafec6dd782931fd2bb3dada567ea944229ed45391cfe6f634a2f13d63d90)\n  \"amount\": 1000000\n  \"to\": \"EVE\"", true},
		"invisible": {"{\"to\":\"a\u200b\u202eb\u2066\ufe01\u3164\u2800\U000e0041\u00a0\"}", "these arguments?\n  \"to\": \"" + `a\u200b\u202eb\u2066\ufe01\u3164\u2800\U000e0041\u00a0"`, false},
		"escaped":   {`{"to":"a\u202e\nb","to\n":"\\u202e"}`, "these arguments?\n  " + `"to": "a\u202e\nb"` + "\n  " + `"to\n": "\\u202e"`, false},
		"many":      {"{" + strings.Join(many, ",") + "}", "", false},
		"none":      {`{}`, "without arguments?", false},
	} {
		asked, verdicts := ask(c.input)
		switch {
		case c.text == "" && (asked != nil || verdicts.Allowed() || verdicts[0].Denied != "the user must confirm it, and it is too large for a question"):
			t.Errorf("%s: asked %+v: %+v", name, asked, verdicts)
		case c.text != "" && (asked == nil || asked.Partial != c.partial || !strings.HasPrefix(asked.Text, "Do you allow the tool remove to be called ") || !strings.HasSuffix(asked.Text, c.text)):
			t.Errorf("%s: asked %+v", name, asked)
		}
	}
}
