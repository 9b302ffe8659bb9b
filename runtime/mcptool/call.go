//go:build !js

package mcptool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/tool"
)

// defaultMaxOutputBytes replaces a zero Options.MaxOutputBytes. An event has at most twice
// as much.
const defaultMaxOutputBytes = 8 << 20

// call asks the server. It checks the input itself, because a program may have written it.
func (t *remoteTool) call(ctx context.Context, arguments *canon.Doc) (answer, error) {
	if err := t.CheckInput(arguments); err != nil {
		return answer{}, err
	}
	through, _ := ctx.Value(assistantKey{}).(*Assistant)
	got, err := t.client.call(ctx, t, arguments.JSON, through)
	if err != nil {
		if may := t.client.options.Transient; may != nil && ctx.Err() == nil && may(err) {
			err = fmt.Errorf("%w: %w", tool.ErrTransient, err)
		}
		return answer{}, t.client.options.clean(err)
	}
	if most := cmp.Or(t.client.options.MaxOutputBytes, defaultMaxOutputBytes); len(got.Result)+len(got.Refused) > most {
		return answer{}, fmt.Errorf("%w: the result has %d bytes, at most %d are allowed", tool.ErrLimit, len(got.Result)+len(got.Refused), most)
	}
	if through != nil && through.Answered != nil {
		through.Answered(json.RawMessage(got.Result), json.RawMessage(got.Refused))
	}
	return got, nil
}

// call makes one request to the server.
func (c *Client) call(ctx context.Context, t *remoteTool, arguments json.RawMessage, through *Assistant) (answer, error) {
	ctx, release := c.within(ctx)
	defer release()
	conn, err := c.connected(ctx)
	if err == nil && t.method == "" && c.changed(t) {
		err = errors.New("the server describes the tool differently now than when it was listed")
	}
	params := map[string]mcp.RequestParams{
		"": &mcp.CallToolParams{Name: t.remote, Arguments: arguments}, "resources/read": &mcp.ReadResourceParams{}, "prompts/get": &mcp.GetPromptParams{},
	}[t.method]
	if err == nil && t.method != "" {
		err = json.Unmarshal(arguments, params)
	}
	var result, refused json.RawMessage
	if err == nil {
		leave := conn.calls.enter(ctx, params, through)
		result, refused, err = conn.exact(ctx, params)
		leave()
		if isLost(err) {
			conn.lost.Store(true)
			err = fmt.Errorf("the server went away: %w", err)
			if said := c.LastWords(); said != "" && c.closing.Err() == nil {
				err = fmt.Errorf("%w; the server wrote:\n%s", err, said)
			}
		}
	}
	if len(result) > 0 && result[0] != '{' && string(result) != "null" { // null counts as empty
		err = fmt.Errorf("the server answered with %.200q, which is not a result: it must be an object", result)
	}
	switch {
	case refused != nil && err != nil && ctx.Err() == nil:
		return answer{Refused: strings.ToValidUTF8(string(refused), "\uFFFD")}, nil
	case err == nil:
		if result == nil {
			result = json.RawMessage("{}")
		}
		return answer{Result: strings.ToValidUTF8(string(result), "\uFFFD")}, nil // other bytes are not JSON
	case c.closing.Err() != nil:
		return answer{}, errClosed
	case ctx.Err() != nil:
		return answer{}, context.Cause(ctx)
	}
	return answer{}, err
}

// exact makes a request and returns the result or the error as the server wrote it.
func (c *connection) exact(ctx context.Context, params mcp.Params) (result, refused json.RawMessage, err error) {
	return c.wire.exact(ctx, func(ctx context.Context) (err error) {
		switch p := params.(type) {
		case *mcp.CallToolParams:
			_, err = c.session.CallTool(ctx, p)
		case *mcp.ReadResourceParams:
			_, err = c.session.ReadResource(ctx, p)
		case *mcp.GetPromptParams:
			_, err = c.session.GetPrompt(ctx, p)
		case *mcp.ListToolsParams:
			_, err = c.session.ListTools(ctx, p)
		case *mcp.ListResourcesParams:
			_, err = c.session.ListResources(ctx, p)
		case *mcp.ListResourceTemplatesParams:
			_, err = c.session.ListResourceTemplates(ctx, p)
		case *mcp.ListPromptsParams:
			_, err = c.session.ListPrompts(ctx, p)
		}
		return err
	})
}

// Method returns a tool that sends the request "resources/read" or "prompts/get". Tools does not
// list it. Its input has the parameters, and its name is the prefix and the method, with an
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

// isLost reports whether a call failed because its session has ended.
func isLost(err error) bool {
	return errors.Is(err, mcp.ErrConnectionClosed) || errors.Is(err, mcp.ErrSessionMissing) || errors.Is(err, io.EOF)
}

// Assistant is the client on whose behalf a tool is called. Its functions receive the
// server's messages beside the result; any may be nil. They are called one after another.
type Assistant struct {
	Progress func(progress, total float64, message string)
	Log      func(level, logger string, data any)

	// Elicit asks the user, with the parameters and the result of the protocol.
	Elicit func(ctx context.Context, params json.RawMessage) (json.RawMessage, error)

	// Answered gets the result, or the error, as the server wrote it.
	Answered func(result, refused json.RawMessage)
}

type assistantKey struct{}

// For returns a context for calls on behalf of an assistant.
func For(ctx context.Context, a *Assistant) context.Context {
	return context.WithValue(ctx, assistantKey{}, a)
}

// inFlight are the calls of a session with an assistant, the newest last. Requests and log
// messages of a server do not name their call, so they go to the newest.
type inFlight struct {
	mu    sync.Mutex
	next  int
	calls []*assisted // guarded by mu
}

// assisted is a call of an assistant.
type assisted struct {
	*Assistant
	ctx   context.Context
	token string
	heard chan func() // messages of the server; lossy, because a server may send more than an assistant reads
}

// enter adds a call. Call leave after the answer; it returns once the assistant has received
// the earlier messages of the server.
func (f *inFlight) enter(ctx context.Context, params mcp.RequestParams, a *Assistant) (leave func()) {
	if a == nil {
		return func() {}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	c := &assisted{a, ctx, fmt.Sprint("call-", f.next), make(chan func(), 64)}
	if a.Progress != nil {
		params.SetProgressToken(c.token)
	}
	f.calls = append(f.calls, c)
	var hearing sync.WaitGroup
	hearing.Go(func() {
		for say := range c.heard {
			say()
		}
	})
	return func() {
		f.mu.Lock()
		f.calls = slices.DeleteFunc(f.calls, func(other *assisted) bool { return other == c })
		close(c.heard)
		f.mu.Unlock()
		hearing.Wait()
	}
}

// tell sends a message to the assistant of the call with this token, or of the newest call
// for "".
func (f *inFlight) tell(token string, say func(*assisted) func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.calls) - 1; i >= 0; i-- {
		if c := f.calls[i]; token == "" || c.token == token {
			if heard := say(c); heard != nil {
				select {
				case c.heard <- heard:
				default:
				}
			}
			return
		}
	}
}

func (f *inFlight) progress(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
	token, _ := r.Params.ProgressToken.(string)
	if token == "" {
		return
	}
	f.tell(token, func(c *assisted) func() {
		if c.Progress == nil {
			return nil
		}
		return func() { c.Progress(r.Params.Progress, r.Params.Total, r.Params.Message) }
	})
}

func (f *inFlight) log(_ context.Context, r *mcp.LoggingMessageRequest) {
	f.tell("", func(c *assisted) func() {
		if c.Log == nil {
			return nil
		}
		return func() { c.Log(string(r.Params.Level), r.Params.Logger, r.Params.Data) }
	})
}

// elicit passes a question of the server to the assistant.
func (f *inFlight) elicit(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	var asks *assisted
	f.tell("", func(c *assisted) func() { asks = c; return nil })
	if asks == nil || asks.Elicit == nil {
		return nil, errors.New("there is no assistant to ask that takes questions")
	}
	params, err := json.Marshal(r.Params)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(asks.ctx, func() { cancel(context.Cause(asks.ctx)) })()
	answer, err := asks.Elicit(ctx, params)
	if err != nil {
		return nil, err
	}
	result := &mcp.ElicitResult{}
	return result, json.Unmarshal(answer, result)
}
