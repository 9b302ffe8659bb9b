//go:build !js

package mcptool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/internal/rpcline"
)

// endTime is the time in which a program must exit by itself, and again after SIGTERM.
const endTime = 5 * time.Second

// tail keeps the last bytes written to it.
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

// String returns the last bytes as text, from the beginning of a line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := string(t.bytes)
	if len(t.bytes) == maxTail {
		_, text, _ = strings.Cut(text, "\n")
	}
	return strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
}

// program is a server in a separate process, with one message per line on its standard input
// and output. Other lines, from loggers, build tools and launchers, are kept like standard
// error.
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
	stdout, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.Cmd.Stdout, p.Cmd.Stderr, p.WaitDelay = theirs, p.told, time.Second
	leads(p.Cmd)
	err = p.Start()
	theirs.Close()
	if err != nil {
		stdout.Close()
		return nil, err
	}
	c := &processConn{program: p, stdin: stdin, messages: make(chan jsonrpc.Message), ended: make(chan struct{})}
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.read(stdout)
		c.end() // without a reader the server cannot go on
	}()
	go func() {
		release := guard(p.Process.Pid)
		if c.err = c.Wait(); errors.Is(c.err, exec.ErrWaitDelay) { // standard error is open in the group
			c.err = nil
		}
		endGroup(p.Process) // a launcher may leave its server behind
		release()
		late := time.AfterFunc(time.Second, func() { stdout.Close() }) // held by a process that has left the group
		<-read
		late.Stop()
		stdout.Close()
		close(c.ended)
	}()
	return c, nil
}

type processConn struct {
	program
	stdin    io.WriteCloser
	writing  sync.Mutex // a message is written whole
	messages chan jsonrpc.Message
	ended    chan struct{} // closed when the process has ended
	err      error         // its exit; set before ended is closed
	closing  sync.Once
}

// read reads messages until the output of the server ends.
func (c *processConn) read(stdout io.Reader) {
	in := bufio.NewReaderSize(stdout, 64<<10)
	for {
		line, size, err := rpcline.Read(in, maxMessageBytes)
		for _, m := range c.decode(line, size) {
			select {
			case c.messages <- m:
			case <-c.cut:
			}
		}
		if err != nil {
			break
		}
	}
}

// end ends the process: by the end of its input, then by SIGTERM, then by SIGKILL.
func (c *processConn) end() {
	c.closing.Do(func() {
		c.wire.close()
		c.stdin.Close()
		go func() {
			for _, kill := range []bool{false, true} {
				select {
				case <-c.ended:
					return
				case <-time.After(endTime):
					signalGroup(c.Process, kill)
				}
			}
		}()
	})
}

// decode returns the messages of a line, or of both ends of one that is too long.
func (c *processConn) decode(line []byte, size int) (all []jsonrpc.Message) {
	line = bytes.TrimPrefix(line, []byte("\ufeff")) // some runtimes write it first
	if len(strings.TrimSpace(string(line))) == 0 {
		return nil
	}
	var batch []json.RawMessage // of the protocol of March 2025
	switch {
	case size > maxMessageBytes:
		batch = []json.RawMessage{c.unreadable(line, tooLong)}
	case json.Unmarshal(line, &batch) != nil:
		batch = []json.RawMessage{c.incoming(line, nil)}
	default:
		for i := range batch {
			batch[i] = c.incoming(batch[i], nil)
		}
	}
	for _, data := range batch {
		m, err := jsonrpc.DecodeMessage(data)
		if err != nil && data != nil {
			m, err = jsonrpc.DecodeMessage(c.unreadable(data, err.Error()))
		}
		if err == nil {
			all = append(all, m)
		}
	}
	return all
}

// Read implements [mcp.Connection].
func (c *processConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-c.messages:
		return m, nil
	case <-c.cut:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select { // to read its last output
	case <-c.ended:
	case <-time.After(time.Second / 4):
	}
	return nil, io.EOF
}

// Write implements [mcp.Connection].
func (c *processConn) Write(ctx context.Context, m jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	data, sent := c.outgoing(ctx, data)
	defer sent()
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err = c.stdin.Write(append(data, '\n'))
	return err
}

// SessionID implements [mcp.Connection].
func (c *processConn) SessionID() string { return "" }

// Close implements [mcp.Connection].
func (c *processConn) Close() error {
	c.end()
	<-c.ended
	return c.err
}
