package mcpsrv_test

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/mcpsrv"
)

// client is one of a server over a pair of streams, line by line.
type client struct {
	t      *testing.T
	to     io.WriteCloser
	from   *bufio.Scanner
	served chan error
}

// onLines returns a client that has begun its session.
func onLines(t *testing.T, w waiting, version string) *client {
	t.Helper()
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	c := &client{t, fromClient, bufio.NewScanner(toClient), make(chan error, 1)}
	go func() {
		c.served <- mcpsrv.ServeStdio(t.Context(), mcpsrv.View{Tools: w}, mcpsrv.Options{}, toServer, fromServer)
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

// end hangs up, after which there is no further answer and no error.
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

// TestACancelledRequestOverStdio has no response among those of its session.
func TestACancelledRequestOverStdio(t *testing.T) {
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

// TestTheLastAnswersOverStdio come also when the client has nothing more to say.
func TestTheLastAnswersOverStdio(t *testing.T) {
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

// TestEveryAnswerHasItsID asks with numbers that the SDK would answer under other ones.
func TestEveryAnswerHasItsID(t *testing.T) {
	c := onLines(t, newWaiting(), stateful)
	for _, id := range []string{"0", "-9007199254740991", "9007199254740991", "1152921504606846976", `"9007199254740993"`} {
		c.say(ping(id))
		if got := c.hear(); !strings.Contains(got, `"id":`+id+`,"result"`) {
			t.Errorf("ping %s: %s", id, got)
		}
	}
	for _, id := range []string{"9007199254740993", "1700000000000000001", "1.5", "1e300", "-12345678901234567890123"} {
		c.say(ping(id))
		if got := c.hear(); !strings.Contains(got, `"id":`+id+`,`) || !strings.Contains(got, `"code":-32600`) {
			t.Errorf("ping %s: %s", id, got)
		}
	}
	c.say(ping("2.0"))
	if got := c.hear(); !strings.Contains(got, `"id":2,"result"`) {
		t.Errorf("ping 2.0: %s", got)
	}
	c.end()
}

// TestBatchesOverStdio have the responses to what was not cancelled, in one line, or none.
func TestBatchesOverStdio(t *testing.T) {
	w := newWaiting()
	c := onLines(t, w, "2025-03-26")
	const note = `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`
	c.say("[" + note + "," + ping("2") + "," + note + "," + ping(`"3"`) + "]")
	if got := c.hear(); !strings.HasPrefix(got, "[{") || !strings.Contains(got, `"id":2,`) || !strings.Contains(got, `"id":"3",`) {
		t.Errorf("a batch with notifications: %s", got)
	}
	c.say("[" + wait7 + "," + ping("8") + "]")
	<-w.began
	c.say(cancel7)
	if got := c.hear(); got != `[{"jsonrpc":"2.0","id":8,"result":{}}]` {
		t.Errorf("a batch with a cancelled call: %s", got)
	}
	<-w.ended
	c.say("[" + wait7 + "]")
	<-w.began
	c.say("[" + cancel7 + "," + note + "]")
	<-w.ended
	c.say(ping("9"))
	if got := c.hear(); !strings.Contains(got, `"id":9,`) {
		t.Errorf("after a batch of which all was cancelled: %s", got)
	}
	c.end()
}

// TestLinesThatAreNoMessages are answered, and end nothing.
func TestLinesThatAreNoMessages(t *testing.T) {
	c := onLines(t, newWaiting(), stateful)
	for line, want := range map[string]string{
		"garbage":                       `"code":-32700,.*"id":null`,
		`{"jsonrpc":"2.0","id":5`:       `"code":-32700,.*"id":null`,
		strings.Repeat("a", 5<<20):      `"code":-32700,"message":"a line has more than 4194304 bytes"},"id":null`,
		"[]":                            `"code":-32600,.*"id":null`,
		`{"jsonrpc":"1.0","id":"x"}`:    `"code":-32600,.*"id":"x"`,
		`{"id":{},"method":"ping"}`:     `"code":-32600,.*"id":null`,
		"[1," + ping("2") + "]":         `^\[{"error":{"code":-32600,.*"id":null.*},{"jsonrpc":"2.0","id":2,"result":{}}\]$`,
		ping("3") + "\r":                `^{"jsonrpc":"2.0","id":3,"result":{}}$`,
		"\n\r\n " + ping("4") + " ":     `"id":4,"result"`,
		`[{"jsonrpc":"2.0","id":true}]`: `^\[{"error":{"code":-32600,.*}\]$`,
	} {
		c.say(line)
		if got := c.hear(); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%.40q: %s", line, got)
		}
	}
	c.end()
}
