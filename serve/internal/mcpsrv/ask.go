package mcpsrv

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/policy"
)

// answerTime is how long a question waits for its answer. Then it counts as closed by
// the user.
const answerTime = 10 * time.Minute

// asking returns the handler of a tool whose calls can ask the client's user, where a policy
// requires that.
//
// With a protocol version that has sessions, the question is a request of the server. With a later
// version, the question is the result of the client's request, and the client repeats the request
// with the answer; in the meantime the call waits here.
func asking(v View, call mcp.ToolHandler) mcp.ToolHandler {
	q := &questions{life: v.life, waiting: map[string]waitingCall{}}
	return func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		takes := takesQuestions(r.Session)
		if !isSessionless(r.Session) {
			return call(withAsker(ctx, takes, func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
				return v.wire.ask(ctx, r.Session, method, params)
			}), r)
		}
		c, err := q.enter(ctx, r, takes, call)
		if err != nil {
			return failed(err.Error()), nil
		}
		defer context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })()
		select {
		case <-c.done:
			return c.result, c.err
		case asked := <-c.asked:
			state := rand.Text()
			q.mu.Lock()
			defer q.mu.Unlock()
			select {
			case <-c.done: // and will not take its questions away again
				return c.result, c.err
			default:
			}
			q.waiting[state] = waitingCall{c, asked}
			asks := members{"inputRequests": canon.Join(members{confirm: asked.request()}), "requestState": canon.Quote(state), "resultType": canon.Quote("input_required")}
			return &mcp.CallToolResult{Content: []mcp.Content{}, Meta: mcp.Meta{asksKey: json.RawMessage(canon.Join(asks))}}, nil
		}
	}
}

// isSessionless reports whether the client speaks a version of the protocol without sessions.
func isSessionless(s *mcp.ServerSession) bool {
	client := s.InitializeParams()
	return client != nil && client.ProtocolVersion >= sessionless
}

// takesQuestions reports whether the client's user can be asked.
func takesQuestions(s *mcp.ServerSession) bool {
	client := s.InitializeParams()
	return client != nil && client.Capabilities != nil && client.Capabilities.Elicitation != nil
}

// asker sends a client a request, and returns its answer as the client wrote it.
type asker func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)

type askerKey struct{}

// withAsker returns a context in which other servers can ask the client, and the policy its user if
// the client takes such questions.
func withAsker(ctx context.Context, takes bool, ask asker) context.Context {
	return policy.WithAsker(context.WithValue(ctx, askerKey{}, ask), func(ctx context.Context, q policy.Question) (string, error) {
		if !takes {
			return "", errors.New("this client does not support elicitation")
		}
		given, err := ask(ctx, "elicitation/create", confirmation(q))
		if err != nil {
			return "", err
		}
		return answerOf(q, given), nil
	})
}

// confirm is the id of a question.
const confirm = "confirm"

// questions are the questions of a tool that wait for their answers.
type questions struct {
	life    context.Context // of the session: nobody answers later
	mu      sync.Mutex
	waiting map[string]waitingCall // by the state that the client returns; guarded by mu
}

// waitingCall is a call with the question whose answer it waits for.
type waitingCall struct {
	*askedCall
	question
}

// askedCall is a call of the later protocol, which may continue over several requests.
type askedCall struct {
	cancel context.CancelCauseFunc
	asked  chan question // taken by the request that the client waits for
	done   chan struct{} // closed when the next two are set
	result *mcp.CallToolResult
	err    error
}

// question is a question with the channel for its answer, of capacity one.
type question struct {
	method string
	params json.RawMessage
	answer chan json.RawMessage
}

// request is the question as the result of a request has it.
func (q question) request() json.RawMessage {
	return canon.Join(members{"method": canon.Quote(q.method), "params": canon.Join(canon.Split(q.params))})
}

// wait waits for the answer. When it is late, the question counts as closed by the user.
func (q question) wait(ctx context.Context, late <-chan time.Time) (json.RawMessage, error) {
	select {
	case given := <-q.answer:
		return given, nil
	case <-late:
		return closed, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// enter begins a call, or takes the call that waits for the answer of a request.
func (q *questions) enter(ctx context.Context, r *mcp.CallToolRequest, takes bool, call mcp.ToolHandler) (*askedCall, error) {
	if state := r.Params.RequestState; state != "" {
		q.mu.Lock()
		c, ok := q.waiting[state]
		delete(q.waiting, state)
		q.mu.Unlock()
		if !ok {
			return nil, errors.New("no call waits for this answer")
		}
		given, ok := canon.Split(canon.Split(paramsOf(r))["inputResponses"])[confirm]
		if !ok {
			given = closed
		}
		c.answer <- given // the only one
		return c.askedCall, nil
	}
	c := &askedCall{asked: make(chan question), done: make(chan struct{})}
	// The request may end with a question, and the call continues.
	ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	ctx = withAsker(ctx, takes, c.ask)
	go func() {
		defer c.cancel(nil)
		defer context.AfterFunc(q.life, func() { c.cancel(errCancelled) })()
		c.result, c.err = call(ctx, r)
		q.mu.Lock()
		defer q.mu.Unlock()
		maps.DeleteFunc(q.waiting, func(_ string, w waitingCall) bool { return w.askedCall == c }) // nobody answers them any more
		close(c.done)
	}()
	return c, nil
}

// ask asks with the result of the request that the client waits for. A client that went away after an
// earlier question has none: then, too, the question counts as closed by the user after a while.
func (c *askedCall) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	q, late := question{method, params, make(chan json.RawMessage, 1)}, time.After(answerTime)
	select {
	case c.asked <- q:
	case <-late:
		return closed, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return q.wait(ctx, late)
}

// allow is the member of an answer to a question that does not show all.
const allow = "allow"

// closed is the answer of a user who gives none.
var closed = json.RawMessage(`{"action":"cancel"}`)

// confirmation is the question as the protocol has it. Accepting is the answer, unless the
// user does not see all: then it takes a mark in a box that is empty.
func confirmation(q policy.Question) json.RawMessage {
	properties := map[string]any{}
	if q.Partial {
		properties[allow] = map[string]any{
			"type": "boolean", "default": false, "title": "Allow it",
			"description": "Long values are shown by their beginning, length and hash. Allow it only if you know the rest of them.",
		}
	}
	doc, _ := json.Marshal(map[string]any{"mode": "form", "message": q.Text, "requestedSchema": map[string]any{"type": "object", "properties": properties}}) // texts cannot fail
	return doc
}

// answerOf returns the user's answer to a question.
func answerOf(q policy.Question, given json.RawMessage) string {
	var said struct {
		Action  string         `json:"action"`
		Content map[string]any `json:"content"`
	}
	if json.Unmarshal(given, &said) != nil {
		return policy.Cancel
	}
	if said.Action == policy.Accept && q.Partial && said.Content[allow] != true {
		return policy.Decline
	}
	return said.Action
}
