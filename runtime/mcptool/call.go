//go:build !js

package mcptool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/runtime/tool"
)

// defaultMaxOutputBytes replaces a zero Options.MaxOutputBytes. An event has at most twice
// as much.
const defaultMaxOutputBytes = 8 << 20

// conversation is one call: the request, questions of the server to its client, and the answer. Each
// part is an effect of the run, so that a replay meets them in their order.
type conversation struct {
	ctx     context.Context
	tool    *remoteTool
	params  members
	through *Call         // nil for no client
	left    time.Duration // of the server's time, which does not pass while the client is asked

	conn    *connection // nil before the first request
	lost    bool        // the conversation began in another process
	during  *assisted
	cancel  context.CancelFunc
	ended   chan outcome // of the request
	waiting *question    // unanswered

	// An answer may ask for input: then the request is repeated with the client's answers.
	input, inputs members // what is asked, and the answers, by their names
	rounds        int
}

// outcome is the end of a request.
type outcome struct {
	result, refused json.RawMessage
	err             error
}

// converse begins a conversation. The server is not contacted before the first next.
func (t *remoteTool) converse(ctx context.Context, arguments *canon.Doc) *conversation {
	c := &conversation{ctx: ctx, tool: t, params: members{}, left: t.client.options.Timeout, ended: make(chan outcome, 1)}
	if c.through, _ = ctx.Value(callKey{}).(*Call); c.through != nil && len(c.through.Meta) > 0 {
		c.params["_meta"] = canon.Join(c.through.Meta)
	}
	if t.method != "" {
		maps.Copy(c.params, canon.Split(arguments.JSON))
		return c
	}
	if c.through != nil {
		maps.Copy(c.params, c.through.Other)
	}
	c.params["name"] = canon.Quote(t.remote)
	c.params["arguments"] = arguments.JSON
	return c
}

// next returns the answer of the server, or its next question.
func (c *conversation) next(arguments *canon.Doc) (answer, error) {
	got, err := c.hear(arguments)
	o := &c.tool.client.options
	if err != nil && c.tool.client.closing.Err() != nil {
		return answer{}, errClosed
	}
	if err != nil {
		if may := o.Transient; may != nil && c.ctx.Err() == nil && may(err) {
			err = fmt.Errorf("%w: %w", tool.ErrTransient, err)
		}
		return answer{}, o.clean(err)
	}
	if most := cmp.Or(o.MaxOutputBytes, defaultMaxOutputBytes); len(got.Result)+len(got.Refused) > most {
		return answer{}, fmt.Errorf("%w: the result has %d bytes, at most %d are allowed", tool.ErrLimit, len(got.Result)+len(got.Refused), most)
	}
	return got, nil
}

// answered passes on the answer, live or from the log.
func (c *conversation) answered(got answer) {
	if c.through != nil && c.through.Answered != nil {
		c.through.Answered(json.RawMessage(got.Result), json.RawMessage(got.Refused))
	}
}

// hear waits for the next that the server says.
func (c *conversation) hear(arguments *canon.Doc) (answer, error) {
	client := c.tool.client
	ctx, release := client.within(c.ctx, c.left)
	defer release()
	began := time.Now()
	defer func() { c.left -= time.Since(began) }()
	if c.lost { // to send the request again could do twice what it does
		return answer{}, errAskedBefore
	}
	if c.conn == nil {
		if client.options.Strict { // a log and the caller bound the size of the input
			if bad := tool.CheckInput(c.tool.input(), arguments, math.MaxInt, false); bad != nil {
				return answer{}, bad
			}
		}
		conn, err := client.connected(ctx)
		if err == nil && c.tool.method == "" && client.changed(c.tool) {
			err = errors.New("the server describes the tool differently now than when it was listed")
		}
		if err != nil {
			return answer{}, cmp.Or(context.Cause(ctx), err)
		}
		if c.during, err = conn.calls.enter(ctx, c.through); err != nil {
			return answer{}, err
		}
		c.conn = conn
		c.request()
	}
	for {
		if len(c.input) > 0 {
			return c.askForInput()
		}
		select {
		case c.waiting = <-c.during.asked:
			return answer{Asked: &asked{"", c.waiting.method, strings.ToValidUTF8(string(c.waiting.params), "\uFFFD")}}, nil
		case end := <-c.ended:
			got, err := c.end(end)
			if err != nil || c.input == nil {
				return got, err
			}
			if len(c.input) == 0 { // the server asks for patience only
				c.request()
			}
		case <-ctx.Done():
			return answer{}, context.Cause(ctx)
		}
	}
}

// maxRounds bounds how often one call asks for input.
const maxRounds = 32

// request sends the request, in the background.
func (c *conversation) request() {
	ctx, cancel := context.WithCancel(c.ctx)
	c.cancel = cancel
	x := &exchange{params: canon.Join(c.params)}
	c.conn.calls.setRequest(c.during, x)
	params := map[string]mcp.Params{
		"": &mcp.CallToolParams{Name: c.tool.remote}, "resources/read": &mcp.ReadResourceParams{}, "prompts/get": &mcp.GetPromptParams{},
	}[c.tool.method]
	if params == nil { // which the SDK has not
		x.method = c.tool.method
	} else if c.tool.method == "" {
		params.(*mcp.CallToolParams).Arguments = c.params["arguments"] // for headers that a schema asks for
	} else {
		plain := maps.Clone(c.params)
		delete(plain, "_meta")                        // whose numbers the SDK would round
		_ = json.Unmarshal(canon.Join(plain), params) // likewise; the server checks them
	}
	go func() {
		defer cancel()
		result, refused, err := c.conn.exact(ctx, x, params)
		c.ended <- outcome{result, refused, err}
	}()
}

// end reads the end of a request. If the answer asks for input, it sets input.
func (c *conversation) end(o outcome) (answer, error) {
	client, err := c.tool.client, o.err
	if errors.Is(err, mcp.ErrConnectionClosed) || errors.Is(err, mcp.ErrSessionMissing) || errors.Is(err, io.EOF) { // the session has ended
		c.conn.lost.Store(true)
		err = fmt.Errorf("the server went away: %w", err)
		if said := client.LastWords(); said != "" && client.closing.Err() == nil {
			err = fmt.Errorf("%w; the server wrote:\n%s", err, said)
		}
	}
	c.input = nil
	if o.refused != nil && err != nil {
		return answer{Refused: strings.ToValidUTF8(string(o.refused), "\uFFFD"), Whole: true}, nil
	}
	if len(o.result) > 0 && o.result[0] != '{' && string(o.result) != "null" { // null counts as empty
		err = fmt.Errorf("the server answered with %.200q, which is not a result: it must be an object", o.result)
	}
	if err != nil {
		return answer{}, cmp.Or(context.Cause(c.ctx), err)
	}
	if said := canon.Split(o.result); string(said["resultType"]) == `"input_required"` {
		if c.rounds++; c.rounds > maxRounds {
			return answer{}, fmt.Errorf("the server asks for input more than %d times", maxRounds)
		}
		c.input, c.inputs = canon.Split(said["inputRequests"]), members{}
		delete(c.params, "inputResponses")
		if c.params["requestState"] = said["requestState"]; said["requestState"] == nil {
			delete(c.params, "requestState")
		}
		return answer{}, nil
	}
	if o.result == nil {
		o.result = json.RawMessage("{}")
	}
	return answer{Result: strings.ToValidUTF8(string(o.result), "\uFFFD"), Whole: true}, nil // other bytes are not JSON
}

// askForInput returns the next question of an answer that asks for input.
func (c *conversation) askForInput() (answer, error) {
	name := slices.Sorted(maps.Keys(c.input))[0]
	var q struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(c.input[name], &q); err != nil {
		return answer{}, fmt.Errorf("the server asks for input that is not a request: %w", err)
	}
	return answer{Asked: &asked{name, q.Method, strings.ToValidUTF8(string(q.Params), "\uFFFD")}}, nil
}

// ask asks the client what the server asks.
func (c *conversation) ask(q *asked) (answer, error) {
	if c.conn == nil {
		return answer{}, errAskedBefore
	}
	if c.through == nil || c.through.Ask == nil {
		return refusal(ErrNoMethod), nil
	}
	given, err := c.through.Ask(c.ctx, c.tool.remote, q.Method, json.RawMessage(q.Params))
	if _, refused := errors.AsType[*jsonrpc.Error](err); refused {
		return refusal(err), nil
	}
	return answer{Result: strings.ToValidUTF8(string(given), "\uFFFD")}, err
}

// reply gives the server the client's answer to its question.
func (c *conversation) reply(q *asked, given answer, err error) {
	if c.through != nil && c.through.Replied != nil {
		failure := &jsonrpc.Error{}
		if err == nil && json.Unmarshal([]byte(given.Refused), failure) == nil {
			c.through.Replied(q.Method, nil, failure)
		} else {
			c.through.Replied(q.Method, json.RawMessage(given.Result), err)
		}
	}
	switch c.lost = c.conn == nil; {
	case c.lost:
	case q.Input == "":
		c.waiting.reply(given, err)
		select { // so that the next answer comes after it
		case <-c.waiting.sent:
		case <-c.conn.wire.cut:
		case <-c.ctx.Done():
		}
	default:
		delete(c.input, q.Input)
		if c.inputs[q.Input] = json.RawMessage(given.Result); len(c.input) == 0 {
			c.params["inputResponses"], c.input = canon.Join(c.inputs), nil
			c.request()
		}
	}
}

// close ends the conversation, and cancels a request that has no answer.
func (c *conversation) close() {
	if c.conn == nil {
		return
	}
	c.cancel()
	c.conn.calls.leave(c.during)
}

var errAskedBefore = errors.New("the server asked before this program was started again, and its call is lost")

// ErrNoMethod is the answer to a request that nobody can answer.
var ErrNoMethod = &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found"}

// refusal is an error as the answer to a question.
func refusal(err error) answer {
	failure, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		failure = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	}
	doc, _ := json.Marshal(failure) // it has valid JSON
	return answer{Refused: string(doc)}
}

// exact makes a request and returns the result or the error as the server wrote it. The SDK makes
// headers from the params.
func (c *connection) exact(ctx context.Context, x *exchange, params mcp.Params) (result, refused json.RawMessage, err error) {
	_, err = await.Do(ctx, func() (_ any, err error) { // until the line is cut
		defer tool.Recover(&err)
		ctx := context.WithValue(ctx, exchangeKey{}, x)
		switch p := params.(type) {
		case *mcp.CallToolParams:
			_, err = c.session.CallTool(ctx, p)
		case *mcp.ReadResourceParams:
			_, err = c.session.ReadResource(ctx, p)
		case *mcp.GetPromptParams:
			_, err = c.session.GetPrompt(ctx, p)
		case *mcp.ListToolsParams:
			var list *mcp.ListToolsResult
			if list, err = c.session.ListTools(ctx, p); err == nil {
				x.kept = list.Tools
			}
		case *mcp.ListResourcesParams:
			_, err = c.session.ListResources(ctx, p)
		case *mcp.ListResourceTemplatesParams:
			_, err = c.session.ListResourceTemplates(ctx, p)
		case *mcp.ListPromptsParams:
			_, err = c.session.ListPrompts(ctx, p)
		default:
			_, err = c.session.Complete(ctx, &mcp.CompleteParams{})
		}
		return nil, err
	})
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	delete(c.wire.waiting, x.id)
	return x.result, x.refused, cmp.Or(x.failed, err)
}

// Request sends a request of the client's, and returns the result as the server wrote it. An error of
// the server is a [*jsonrpc.Error]. It is not recorded.
func (c *Client) Request(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	ctx, release := c.within(ctx, c.options.Timeout)
	defer release()
	conn, err := c.connected(ctx)
	if err != nil {
		return nil, c.options.clean(err)
	}
	result, refused, err := conn.exact(ctx, &exchange{method: method, params: params}, nil)
	failure := &jsonrpc.Error{}
	if refused != nil && json.Unmarshal(refused, failure) == nil {
		return nil, failure
	}
	if err != nil {
		return nil, c.options.clean(err)
	}
	return result, nil
}

// Notify sends a notification of the client's.
func (c *Client) Notify(ctx context.Context, method string, params json.RawMessage) error {
	conn, err := c.connected(ctx)
	if err != nil {
		return err
	}
	return conn.session.NotifyProgress(context.WithValue(ctx, exchangeKey{}, &exchange{method: method, params: params}), &mcp.ProgressNotificationParams{})
}

// Method returns a tool that sends the request "resources/read", "prompts/get", "tasks/get", "tasks/result"
// or "tasks/update". Tools does not list it. Its input has the parameters, and its name is the prefix and the method, with an
// underscore for the slash.
func (c *Client) Method(method string) tool.Tool {
	t, err := c.newTool(c, Definition{Name: method, Schema: methods[method]})
	if err != nil {
		panic("mcptool: there is no tool for the method " + method)
	}
	t.method, t.name = method, c.options.Prefix+strings.ReplaceAll(method, "/", "_")
	return t
}

// changed reports whether the server describes a tool differently now.
func (c *Client) changed(t *remoteTool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now[t.remote] != t.hash
}

// inFlight are the calls of a session, the newest last. Over standard input and output, a server does
// not say to which of them a message belongs.
type inFlight struct {
	otherwise *Assistant    // gets what belongs to no call; may be nil
	turn      chan struct{} // capacity 1: held by the only call; nil for any number

	mu    sync.Mutex
	calls []*assisted // guarded by mu
}

// assisted is a call in flight.
type assisted struct {
	*Call
	x     *exchange      // of its last request; guarded by mu of the calls
	asked chan *question // in the order in which they came, of capacity maxAsked
	gone  chan struct{}  // closed when it has ended
}

// reply answers the server.
func (q *question) reply(given answer, err error) {
	if err != nil {
		given = refusal(err)
	}
	q.answer <- given
}

func (f *inFlight) enter(ctx context.Context, c *Call) (*assisted, error) {
	c = cmp.Or(c, &Call{})
	if f.turn != nil {
		select {
		case f.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	a := &assisted{c, nil, make(chan *question, maxAsked), make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, a)
	return a, nil
}

// setRequest sets the request that a call waits for.
func (f *inFlight) setRequest(a *assisted, x *exchange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a.x = x
}

func (f *inFlight) leave(a *assisted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = slices.DeleteFunc(f.calls, func(other *assisted) bool { return other == a })
	close(a.gone)
	if f.turn != nil {
		<-f.turn
	}
}

// of returns the call that a message belongs to: the one in whose stream it came, or whose progress
// it is, or else the newest; nil without calls.
func (f *inFlight) of(x *exchange, params json.RawMessage) (of *assisted) {
	token := canon.Split(params)["progressToken"]
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.calls {
		if x != nil && a.x == x || token != nil && string(a.Meta["progressToken"]) == string(token) {
			return a
		}
		of = a
	}
	return of
}

// hear passes on a notification.
func (f *inFlight) hear(x *exchange, method string, params json.RawMessage) {
	switch a := f.of(x, params); {
	case a != nil && a.Hear != nil:
		a.Hear(method, params)
	case f.otherwise != nil && f.otherwise.Hear != nil:
		f.otherwise.Hear(method, params)
	}
}

// arrived takes a request of the server, for the call that it belongs to.
func (f *inFlight) arrived(q *question) {
	a := f.of(q.during, nil)
	if a == nil || a.Ask == nil {
		return
	}
	q.of = a
	select {
	case a.asked <- q:
	default: // it has too many that were given up
		q.reply(answer{}, ErrNoMethod)
	}
}

// answer answers a request of the server: in the run of the call that it belongs to, or without a
// record if there is none.
func (f *inFlight) answer(ctx context.Context, q *question) (json.RawMessage, error) {
	switch {
	case q.of != nil:
	case f.otherwise != nil && f.otherwise.Ask != nil:
		return f.otherwise.Ask(ctx, q.method, q.params)
	default:
		return nil, ErrNoMethod
	}
	select {
	case given := <-q.answer:
		if given.Refused != "" {
			failure := &jsonrpc.Error{}
			if err := json.Unmarshal([]byte(given.Refused), failure); err != nil {
				return nil, err
			}
			return nil, failure
		}
		return json.RawMessage(given.Result), nil
	case <-q.of.gone:
		return nil, ErrNoMethod
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
