//go:build !js

package mcptool

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// endTime is what a program gets to end by itself, and again after SIGTERM.
const endTime = 5 * time.Second

// tail keeps the last bytes that were written to it.
type tail struct {
	mu    sync.Mutex
	bytes []byte // guarded by mu
}

// maxTail bounds a tail, in bytes.
const maxTail = 4 << 10

// Write implements [io.Writer].
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes = append(t.bytes, p[max(0, len(p)-maxTail):]...)
	t.bytes = t.bytes[max(0, len(t.bytes)-maxTail):]
	return len(p), nil
}

// note keeps the beginning of a line that the server wrote between its messages.
func (t *tail) note(text []byte) {
	_, _ = fmt.Fprintf(t, "%.200s\n", strings.TrimSpace(string(text)))
}

// String returns the last bytes as text, from the beginning of a line on.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := string(t.bytes)
	if len(t.bytes) == maxTail {
		_, text, _ = strings.Cut(text, "\n")
	}
	return strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
}

// program is a server in a process of its own, over whose standard input and output there is
// one message to a line. A line that is no message is kept like standard error, and skipped:
// loggers, build tools and launchers write there.
type program struct {
	*exec.Cmd
	*wire
}

// Connect implements [mcp.Transport].
func (p program) Connect(context.Context) (mcp.Connection, error) {
	stdin, err := p.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.Cmd.Stderr, p.WaitDelay = p.told, time.Second
	leads(p.Cmd)
	if err := p.Start(); err != nil {
		return nil, err
	}
	c := &processConn{program: p, stdin: stdin, messages: make(chan jsonrpc.Message), ended: make(chan struct{}), release: guard(p.Process.Pid)}
	go c.read(stdout)
	return c, nil
}

type processConn struct {
	program
	stdin    io.WriteCloser
	writing  sync.Mutex // a message is written whole
	messages chan jsonrpc.Message
	ended    chan struct{} // closed when the process has ended
	err      error         // how it has; set before ended is closed
	release  func()        // ends what ends the group with this process
	closing  sync.Once
}

// read reads messages until the output of the server ends, and waits for the process, whose
// group it ends: a launcher may leave the server that it started behind.
func (c *processConn) read(stdout io.Reader) {
	in := bufio.NewReaderSize(stdout, 64<<10)
	for {
		first, last, size, err := readLine(in)
		for _, m := range c.decode(first, last, size) {
			select {
			case c.messages <- m:
			case <-c.cut:
			}
		}
		if err != nil {
			break
		}
	}
	// The server has closed its output. Without a reader it cannot go on.
	c.stdin.Close()
	late := time.AfterFunc(endTime, func() { signalGroup(c.Process, false) })
	later := time.AfterFunc(2*endTime, func() { signalGroup(c.Process, true) })
	c.err = c.Wait()
	late.Stop()
	later.Stop()
	endGroup(c.Process)
	c.release()
	close(c.ended)
}

// decode returns the messages of a line.
func (c *processConn) decode(first, last []byte, size int) (all []jsonrpc.Message) {
	if len(strings.TrimSpace(string(first))) == 0 {
		return nil
	}
	var batch []json.RawMessage // of the protocol of March 2025
	switch {
	case size > maxMessageBytes:
		batch = []json.RawMessage{c.unreadable(first, last, tooLong)}
	case json.Unmarshal(first, &batch) != nil:
		batch = []json.RawMessage{c.incoming(first)}
	default:
		for i := range batch {
			batch[i] = c.incoming(batch[i])
		}
	}
	for _, data := range batch {
		if data == nil {
			continue
		}
		m, err := jsonrpc.DecodeMessage(data)
		if err != nil {
			if data = c.unreadable(data, data, err.Error()); data == nil {
				continue
			}
			if m, err = jsonrpc.DecodeMessage(data); err != nil {
				continue
			}
		}
		all = append(all, m)
	}
	return all
}

// Read implements [mcp.Connection].
func (c *processConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-c.messages:
		return m, nil
	case <-c.ended:
	case <-c.cut:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return nil, io.EOF
}

// Write implements [mcp.Connection].
func (c *processConn) Write(ctx context.Context, m jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	c.outgoing(ctx, data)
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err = c.stdin.Write(append(data, '\n'))
	return err
}

// SessionID implements [mcp.Connection].
func (c *processConn) SessionID() string { return "" }

// Close implements [mcp.Connection]. It ends the process: by the end of its input, then by
// SIGTERM, then by SIGKILL.
func (c *processConn) Close() error {
	c.closing.Do(func() {
		c.wire.close()
		c.stdin.Close()
		late := time.AfterFunc(endTime, func() { signalGroup(c.Process, false) })
		later := time.AfterFunc(2*endTime, func() { signalGroup(c.Process, true) })
		defer late.Stop()
		defer later.Stop()
		<-c.ended
	})
	<-c.ended
	return c.err
}
