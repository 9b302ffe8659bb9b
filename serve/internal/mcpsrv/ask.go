package mcpsrv

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

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
func asking(call mcp.ToolHandler) mcp.ToolHandler {
	q := &questions{waiting: map[string]waitingCall{}}
	return func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		client := r.Session.InitializeParams()
		if client == nil || client.Capabilities == nil || client.Capabilities.Elicitation == nil {
			ctx = policy.WithAsker(ctx, func(context.Context, policy.Question) (string, error) {
				return "", errors.New("this client does not support elicitation")
			})
			return call(ctx, r)
		}
		if client.ProtocolVersion < sessionless {
			return call(withElicitor(ctx, r.Session.Elicit), r)
		}
		c, err := q.enter(ctx, r, call)
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
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{confirm: asked.params}, RequestState: state}, nil
		}
	}
}

// elicitor asks the user of a client.
type elicitor func(ctx context.Context, params *mcp.ElicitParams) (*mcp.ElicitResult, error)

type elicitorKey struct{}

// withElicitor returns a context in which the policy and other servers can ask the user.
func withElicitor(ctx context.Context, elicit elicitor) context.Context {
	return policy.WithAsker(context.WithValue(ctx, elicitorKey{}, elicit), func(ctx context.Context, q policy.Question) (string, error) {
		answer, err := elicit(ctx, confirmation(q))
		if err != nil {
			return "", err
		}
		return answerOf(q, answer), nil
	})
}

// confirm is the id of a question.
const confirm = "confirm"

// questions are the questions of a tool that wait for their answers.
type questions struct {
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
	params *mcp.ElicitParams
	answer chan *mcp.ElicitResult
}

// enter begins a call, or takes the call that waits for the answer of a request.
func (q *questions) enter(ctx context.Context, r *mcp.CallToolRequest, call mcp.ToolHandler) (*askedCall, error) {
	if state := r.Params.RequestState; state != "" {
		q.mu.Lock()
		c, ok := q.waiting[state]
		delete(q.waiting, state)
		q.mu.Unlock()
		if !ok {
			return nil, errors.New("no call waits for this answer")
		}
		given, ok := r.Params.InputResponses[confirm].(*mcp.ElicitResult)
		if !ok {
			given = &mcp.ElicitResult{Action: policy.Cancel}
		}
		c.answer <- given // the only one
		return c.askedCall, nil
	}
	c := &askedCall{asked: make(chan question), done: make(chan struct{})}
	// The request may end with a question, and the call continues.
	ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	ctx = withElicitor(ctx, c.ask)
	go func() {
		defer c.cancel(nil)
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
func (c *askedCall) ask(ctx context.Context, params *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	answer, late := make(chan *mcp.ElicitResult, 1), time.NewTimer(answerTime)
	defer late.Stop()
	select {
	case c.asked <- question{params, answer}:
	case <-late.C:
		return &mcp.ElicitResult{Action: policy.Cancel}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case given := <-answer:
		return given, nil
	case <-late.C:
		return &mcp.ElicitResult{Action: policy.Cancel}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// allow is the member of an answer to a question that does not show all.
const allow = "allow"

// confirmation is the question as the protocol has it. Accepting is the answer, unless the
// user does not see all: then it takes a mark in a box that is empty.
func confirmation(q policy.Question) *mcp.ElicitParams {
	schema := map[string]any{"type": "object", "properties": map[string]any{}}
	if q.Partial {
		schema["properties"] = map[string]any{allow: map[string]any{
			"type": "boolean", "default": false, "title": "Allow it",
			"description": "Long values are shown by their beginning, length and hash. Allow it only if you know the rest of them.",
		}}
	}
	return &mcp.ElicitParams{Mode: "form", Message: q.Text, RequestedSchema: schema}
}

// answerOf returns the user's answer to a question.
func answerOf(q policy.Question, given *mcp.ElicitResult) string {
	if given.Action == policy.Accept && q.Partial && given.Content[allow] != true {
		return policy.Decline
	}
	return given.Action
}
