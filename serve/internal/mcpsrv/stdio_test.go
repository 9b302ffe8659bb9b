package mcpsrv_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// client is a client of a server over a pair of streams, line by line.
type client struct {
	t      *testing.T
	to     io.WriteCloser
	from   *bufio.Scanner
	served chan error
}

// onLines returns a client that has begun its session.
func onLines(t *testing.T, w mcpsrv.Tools, version string) *client {
	t.Helper()
	return onLinesUntil(t.Context(), t, w, version)
}

// onLinesUntil returns a client of a server that ends with ctx.
func onLinesUntil(ctx context.Context, t *testing.T, w mcpsrv.Tools, version string) *client {
	t.Helper()
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	c := &client{t, fromClient, bufio.NewScanner(toClient), make(chan error, 1)}
	go func() {
		c.served <- mcpsrv.ServeStdio(ctx, mcpsrv.View{Tools: w}, mcpsrv.Options{}, toServer, fromServer)
		fromServer.Close()
	}()
	c.say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version +
		`","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	c.hear()
	c.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

func (c *client) say(line string) {
	if _, err := fmt.Fprintln(c.to, line); err != nil {
		c.t.Error(err)
	}
}

func (c *client) hear() string { c.from.Scan(); return c.from.Text() }

// end hangs up, and expects no further answer and no error.
func (c *client) end() {
	c.to.Close()
	if c.from.Scan() {
		c.t.Errorf("there is one more answer: %s", c.from.Text())
	}
	if err := <-c.served; err != nil {
		c.t.Error(err)
	}
}

func ping(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}` }

// TestMCPStdioCancelledRequest has no response among those of its session.
func TestMCPStdioCancelledRequest(t *testing.T) {
	w := newWaiting()
	c := onLines(t, w, stateful)
	c.say(strings.Replace(cancel7, "7", "99", 1))
	c.say(wait7)
	<-w.began
	c.say(cancel7)
	if <-w.ended == nil {
		t.Error("the call was not cancelled")
	}
	c.say(ping("99"))
	if got := c.hear(); !strings.Contains(got, `"id":99`) {
		t.Errorf("the next answer is %s", got)
	}
	c.end()
}

// TestMCPStdioLastAnswers come also when the client has nothing more to say.
func TestMCPStdioLastAnswers(t *testing.T) {
	w := newWaiting()
	c := onLines(t, w, stateful)
	c.say(wait7)
	<-w.began
	c.say(ping("8"))
	c.to.Close()
	if got := c.hear(); !strings.Contains(got, `"id":8,`) {
		t.Errorf("the first answer is %s", got)
	}
	close(w.release)
	if got := c.hear(); !strings.Contains(got, `"id":7,`) || !strings.Contains(got, "released") {
		t.Errorf("the last answer is %s", got)
	}
	c.end()
}

// TestMCPServerLineThatIsNoMessage is answered with an error, and the session continues: junk,
// JSON that is not a message, invalid batches, messages that are too long, and answers to
// questions that were never asked.
func TestMCPServerLineThatIsNoMessage(t *testing.T) {
	c := onLines(t, newWaiting(), stateful)
	long := strings.Repeat("x", 17<<20)
	for _, sent := range []struct{ line, answer string }{
		{ping("1"), `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{ping("9007199254740993"), `{"id":9007199254740993,"jsonrpc":"2.0","result":{}}`},
		{ping("1.50"), `{"id":1.50,"jsonrpc":"2.0","result":{}}`},
		{`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":5}}`, `{"error":{"code":-32602,"message":"handling 'tools/call': invalid params"},"id":2,"jsonrpc":"2.0"}`},
		{"garbage", `"id":null,"error":{"code":-32700,"message":"the line is not JSON`},
		{`{"jsonrpc":"2.0","id":2,`, `"id":null,"error":{"code":-32700,`},
		{"\x00\xff", `"id":null,"error":{"code":-32700,`},
		{strings.Repeat("[", 20000) + strings.Repeat("]", 20000), `"id":null,"error":{"code":-32700,`},
		{"5", `"id":null,"error":{"code":-32600,`},
		{"[]", `"id":null,"error":{"code":-32600,"message":"the batch is empty"}`},
		{"[" + ping("3") + "," + ping("3") + "]", `"id":null,"error":{"code":-32600,"message":"the batch has an id twice"}`},
		{`{"jsonrpc":"1.0","id":4,"method":"ping"}`, `"error":{"code":-32600,`},
		{`{"jsonrpc":"2.0","id":5,"method":"ping","params":{"a":"` + long + `"}}`, `"id":5,"error":{"code":-32600,"message":"the message has 17825851 bytes, and may have 16777216"}`},
		{`{"method":"ping","params":{"a":"` + long + `","id":6},"jsonrpc":"2.0","id":"six"}`, `"id":"six","error":`},
		{`{"method":"ping","params":{"a":"` + long + `","id":6}}`, `"id":null,"error":`},
		{"\n\r\n" + `{"jsonrpc":"2.0","id":99,"result":{}}` + "\r\n" + ping("7"), `{"jsonrpc":"2.0","id":7,"result":{}}`},
	} {
		c.say(sent.line)
		if got := c.hear(); !strings.Contains(got, sent.answer) {
			t.Errorf("%.60q is answered with %s", sent.line, got)
		}
	}
	c.end()
}

// TestMCPSecondInitializeIsAnError makes a client initialize twice, with a server whose tools
// change twice.
func TestMCPSecondInitializeIsAnError(t *testing.T) {
	c := onLines(t, local{newWaiting(), make(chan struct{}), make(chan struct{})}, stateful)
	c.say(`{"jsonrpc":"2.0","id":8,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	if got := c.hear(); !strings.Contains(got, `"id":8,"error":`) {
		t.Errorf("it is answered with %s", got)
	}
	c.say(ping("9"))
	if got := c.hear(); !strings.Contains(got, `"id":9,"result":{}`) {
		t.Errorf("then a ping is answered with %s", got)
	}
	c.end()
}

// slowLists are tools of servers that wait in every request, the lists included.
type slowLists struct{ local }

func (l slowLists) Offers(string) bool { return true }

func (l slowLists) Items(ctx context.Context, method string) []json.RawMessage {
	_, _ = l.Call(ctx, mcpsrv.Call{})
	return nil
}

func (l slowLists) Call(ctx context.Context, c mcpsrv.Call) (mcpsrv.Result, error) {
	return l.waiting.Call(ctx, c)
}

// TestMCPStdioEndsItsRequests ends a server while it waits in a request of each kind.
func TestMCPStdioEndsItsRequests(t *testing.T) {
	for method, params := range map[string]string{
		"tools/call": `{"name":"wait","arguments":{}}`, "resources/list": `{}`, "resources/templates/list": `{}`, "prompts/list": `{}`,
		"resources/read": `{"uri":"a:b"}`, "prompts/get": `{"name":"p"}`,
	} {
		t.Run(method, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			l := slowLists{local{newWaiting(), make(chan struct{}), make(chan struct{})}}
			c := onLinesUntil(ctx, t, l, stateful)
			c.say(`{"jsonrpc":"2.0","id":2,"method":"` + method + `","params":` + params + `}`)
			next(t, l.began)
			end()
			c.to.Close()
			if err := next(t, l.ended); err != context.Canceled {
				t.Errorf("the request ended with %v", err)
			}
			for c.from.Scan() {
			}
			if err := <-c.served; err != context.Canceled {
				t.Error(err)
			}
		})
	}
}
