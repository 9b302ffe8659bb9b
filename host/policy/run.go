package policy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/tool"
)

// Run applies the policies to one run. It counts the use of their rules and knows the secrets that the run may have
// sent. It is safe for concurrent use.
type Run struct {
	operator, tenant *Policy
	store            Secrets

	mu      sync.Mutex
	used    Usage                      // guarded by mu
	known   map[string][]egress.Secret // guarded by mu; values read so far, by name
	answers map[question]string        // guarded by mu; the user's answers
	sent    map[string]time.Time       // guarded by mu; secrets with placeholders in requests of earlier sessions, and the start of the first such call
}

// NewRun returns a Run that has used nothing. Nil policies are skipped; if both are nil, nothing is allowed. A nil
// store has no secrets.
func NewRun(operator, tenant *Policy, store Secrets) *Run {
	return &Run{operator: operator, tenant: tenant, store: store, used: Usage{}, answers: map[question]string{}, known: map[string][]egress.Secret{}, sent: map[string]time.Time{}}
}

type runKey struct{}

// With returns a context in which the run's policies decide about requests of the built-in tools and of every module,
// including modules loaded before the run began.
func With(ctx context.Context, run *Run) context.Context {
	return egress.WithDecider(context.WithValue(ctx, runKey{}, run), run)
}

// Decide implements [egress.Decider]. It counts the requests of a built-in tool, but not their bytes.
func (r *Run) Decide(tool string) (egress.Authorizer, func() event.Verdicts) {
	x := r.Exchange(tool, 0)
	return x, func() event.Verdicts { return x.all }
}

// From returns the run given to [With], or nil.
func From(ctx context.Context) *Run {
	run, _ := ctx.Value(runKey{}).(*Run)
	return run
}

// Identity identifies the policies, for the Sandbox of a tool in RunStarted.
func (r *Run) Identity() *event.PolicyRef {
	return &event.PolicyRef{Operator: r.operator.identity(), Tenant: r.tenant.identity()}
}

// Narrow is [Narrow] with the policies of the run.
func (r *Run) Narrow(l event.SandboxLimits) event.SandboxLimits {
	return Narrow(l, r.operator, r.tenant)
}

// Resume counts the use by recorded events of the run: each allowed exchange counts for the rules that allowed it. If
// a policy has changed since, it counts for the rules that now have those numbers. From then on, responses are
// searched for secrets that were sent, even if no policy names them any more.
func (r *Run) Resume(events []event.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, began := newCopies(), map[string]time.Time{}
	for _, ev := range events {
		if err := r.resume(seen, began, ev); err != nil {
			return fmt.Errorf("policy: event %d: %w", ev.Seq, err)
		}
	}
	return nil
}

// resume counts one event. The map began has the start of each call. The caller holds mu.
func (r *Run) resume(seen *copies, began map[string]time.Time, ev event.Event) error {
	payload, err := event.OfCall(ev)
	if call, ok := payload.(event.ToolCallScheduled); ok {
		seen.scheduled(call)
		began[call.CallID] = time.Unix(0, ev.Timestamp)
	}
	effect, ok := payload.(event.SideEffectRecorded)
	if err != nil || !ok {
		return err
	}
	r.asked(effect, began[effect.CallID])
	var value event.Exchange
	if len(effect.Request) == 0 || effect.Error != nil || canon.Unmarshal(effect.Value, &value) != nil {
		return nil // not an exchange
	}
	if !seen.copied(effect) && value.Decision.Allowed() {
		r.count(value.Decision, Used{1, uint64(len(effect.Request) + len(value.Response))})
	}
	return nil
}

// asked records the secrets whose placeholders appear in a recorded request, of a call that started at began. An
// effect that is not a request has none. The caller holds mu.
func (r *Run) asked(effect event.SideEffectRecorded, began time.Time) {
	q, _, err := requestOf(effect)
	if err != nil {
		return
	}
	access, err := q.Access()
	if err != nil {
		return
	}
	for _, p := range access.Secrets {
		if _, before := r.sent[p.Name]; !before {
			r.sent[p.Name] = began
		}
	}
}

// count adds to the use of the rules of a decision. The caller holds mu.
func (r *Run) count(verdicts event.Verdicts, more Used) {
	for _, v := range verdicts {
		place := Place{v.Side, int(v.Rule)}
		was := r.used[place]
		r.used[place] = Used{was.Calls + more.Calls, was.Bytes + more.Bytes}
	}
}

// Exchange is one exchange of a run. It authorizes the request and keeps the decision.
type Exchange struct {
	run   *Run
	tool  string
	bytes uint64

	decision Decision
	all      event.Verdicts // also about the requests before it, such as those that were redirected
}

// Exchange begins an exchange of a tool whose recorded request has the given number of bytes. It is for one
// goroutine.
func (r *Run) Exchange(tool string, bytes int) *Exchange {
	return &Exchange{run: r, tool: tool, bytes: uint64(bytes)}
}

// Verdicts returns the recorded form of the decision, or nil before there is one.
func (x *Exchange) Verdicts() event.Verdicts { return x.decision.Verdicts }

// Authorize implements [egress.Authorizer].
func (x *Exchange) Authorize(ctx context.Context, a egress.Access) (egress.Grant, error) {
	q := Request{Access: a, Tool: x.tool, Bytes: x.bytes}
	err := x.decide(q, x.confirm(ctx, q))
	if x.all = append(x.all, x.decision.Verdicts...); err != nil {
		return egress.Grant{}, err
	}
	if err := x.run.maySend(ctx, a); err != nil {
		return egress.Grant{}, err
	}
	secrets, err := x.run.secrets(ctx, a.Secrets)
	if err != nil {
		return egress.Grant{}, err
	}
	grant := x.decision.Grant
	grant.Secrets = secrets
	grant.Plain = grant.Plain || x.run.sentRemovedSecret()
	return grant, nil
}

// question identifies what a user was asked about: the requests of a tool to an origin, under a rule.
type question struct {
	side         string
	rule         uint32
	tool, origin string
}

// confirm asks the user about a request if the rule that allows it requires that. It returns a function that applies
// the answer to a decision. An answer holds for all such requests of the run.
func (x *Exchange) confirm(ctx context.Context, q Request) func(Decision) Decision {
	r := x.run
	r.mu.Lock()
	d := Decide(r.operator, r.tenant, q, r.used)
	about := question{side: d.Ask, tool: q.Tool, origin: q.Access.Origin()}
	for _, v := range d.Verdicts {
		if v.Side == d.Ask {
			about.rule = v.Rule
		}
	}
	answer := r.answers[about]
	r.mu.Unlock()
	if answer != "" {
		ctx = WithAsker(ctx, func(context.Context, Question) (string, error) { return answer, nil })
	}
	ask := newQuestion(q.Tool, "to send requests to "+visible(about.origin)+"?", []detail{{"the first one: ", q.Method + " " + q.Path}})
	ask.answered = func(answer string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.answers[about] = answer
	}
	return d.confirm(ctx, ask)
}

// decide decides about the request and counts it in one step, so that only one of two concurrent requests can be the
// last one allowed.
func (x *Exchange) decide(q Request, confirmed func(Decision) Decision) error {
	r := x.run
	r.mu.Lock()
	defer r.mu.Unlock()
	x.decision = confirmed(Decide(r.operator, r.tenant, q, r.used))
	if !x.decision.Allowed() {
		return egress.Denied("%s %s: %s", q.Method, q.Access.Origin(), x.decision.Reason())
	}
	r.count(x.decision.Verdicts, Used{1, x.bytes})
	return nil
}

// Settle counts the response. If concurrent exchanges have used up the rest in the meantime, it returns the error
// that ends this exchange.
func (x *Exchange) Settle(response []byte) error {
	r := x.run
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range sides(r.operator, r.tenant) {
		for _, v := range x.decision.Verdicts {
			if v.Side != s.name || v.Rule == 0 {
				continue
			}
			limit := s.policy.Network[v.Rule-1].MaxBytes
			if used := r.used[Place{s.name, int(v.Rule)}].Bytes; limit > 0 && used+uint64(len(response)) > limit {
				return egress.TooLarge("other requests of the run have used the bytes that were left")
			}
		}
	}
	r.count(x.decision.Verdicts, Used{0, uint64(len(response))})
	return nil
}

// maySend asks the store whether the secrets of a request's placeholders may be sent, and whether the secrets that the
// run sent in earlier sessions still have the same values: without these, the response could not be searched for them.
func (r *Run) maySend(ctx context.Context, a egress.Access) error {
	keeper, ok := r.store.(Keeper)
	if !ok {
		return nil
	}
	for _, at := range a.Secrets {
		switch allowed, err := keeper.MaySend(ctx, at, a); {
		case err != nil:
			return egress.Denied("the secret %s could not be read", at.Name)
		case !allowed:
			return egress.Denied("the secret %s is not kept for %s in %s", at.Name, a.Origin(), place(at))
		}
	}
	r.mu.Lock()
	sent := maps.Clone(r.sent)
	maps.DeleteFunc(sent, func(name string, _ time.Time) bool { return len(r.known[name]) > 0 })
	r.mu.Unlock()
	for name, at := range sent {
		switch same, err := keeper.Same(ctx, name, at); {
		case err != nil:
			return egress.Denied("the secret %s could not be read", name)
		case !same:
			return egress.Denied("the secret %s has changed since the run sent it, and the response could not be searched for what it was", name)
		}
	}
	return nil
}

// secrets returns the values that an exchange needs: those for its placeholders, fresh from the store, and those that
// could appear in the response, which are all that the policies name or the run has sent. Values that the run has
// read stay known after the store replaces them.
func (r *Run) secrets(ctx context.Context, placeholders []egress.Placeholder) ([]egress.Secret, error) {
	wanted := map[string]bool{}
	for _, p := range placeholders {
		wanted[p.Name] = true
	}
	for _, name := range r.names() {
		if err := r.read(ctx, name, wanted[name]); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []egress.Secret
	for _, values := range r.known {
		all = append(all, values...)
	}
	return all, nil
}

// names returns the secrets that the policies name, and those sent before.
func (r *Run) names() []string {
	r.mu.Lock()
	names := slices.Collect(maps.Keys(r.sent))
	r.mu.Unlock()
	for _, s := range sides(r.operator, r.tenant) {
		for _, b := range s.policy.Secrets {
			names = append(names, b.Name)
		}
	}
	return names
}

// sentRemovedSecret reports whether the run sent a secret that no policy names any more. Its receivers are unknown,
// so every response must be searchable.
func (r *Run) sentRemovedSecret() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.sent {
		named := func(b Binding) bool { return b.Name == name }
		if !slices.ContainsFunc(sides(r.operator, r.tenant), func(s side) bool { return slices.ContainsFunc(s.policy.Secrets, named) }) {
			return true
		}
	}
	return false
}

// read makes a secret known to the run. If fresh is set, it reads the current value, which must exist.
func (r *Run) read(ctx context.Context, name string, fresh bool) error {
	r.mu.Lock()
	_, known := r.known[name]
	r.mu.Unlock()
	if known && !fresh {
		return nil
	}
	var value []byte
	var ok bool
	var err error
	if r.store != nil {
		value, ok, err = r.store.Secret(ctx, name)
	}
	switch {
	case err != nil:
		return egress.Denied("the secret %s could not be read", name)
	case !ok && fresh:
		return egress.Denied("there is no secret %s", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	values := r.known[name]
	if ok {
		values = slices.DeleteFunc(values, func(s egress.Secret) bool { return bytes.Equal(s.Value, value) })
		values = append(values, egress.Secret{Name: name, Value: bytes.Clone(value)}) // the last value is the one sent
	}
	r.known[name] = values
	return nil
}

// Guard returns the tool with its calls checked by the policies, under its name and with its arguments.
func (r *Run) Guard(t tool.Tool) tool.Tool {
	return tool.Guarded(t, func(ctx context.Context, name string, input json.RawMessage) event.Verdicts {
		d, _ := DecideCall(r.operator, r.tenant, name, input)
		if d.Ask == "" {
			return d.Verdicts // without composing a question, which would contain all of the input
		}
		return d.confirm(ctx, callQuestion(name, input))(d).Verdicts
	})
}

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
