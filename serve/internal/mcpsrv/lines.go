package mcpsrv

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/starling-host/starling/internal/rpcline"
)

// lines filters a client's input so that no line ends its session: lines that are not
// messages, or too long, are answered with an error instead.
type lines struct {
	in   *bufio.Reader
	out  io.Writer // safe for concurrent use
	wire *wire     // replaces messages
	rest []byte    // of the message that is being read
}

// Read implements [io.Reader].
func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		line, size, err := rpcline.Read(l.in, maxMessage)
		id, why, code := "null", "", jsonrpc.CodeParseError
		switch {
		case size > maxMessage:
			id, why, code = idOf(line), fmt.Sprintf("the message has %d bytes, and may have %d", size, maxMessage), jsonrpc.CodeInvalidRequest
		case len(bytes.TrimSpace(line)) == 0:
			if err != nil {
				return 0, err
			}
			continue
		case !json.Valid(line):
			why = "the line is not JSON: a message is one line"
		default:
			if err := checkMessages(line); err != nil {
				id, why, code = idOf(line), err.Error(), jsonrpc.CodeInvalidRequest
			}
		}
		if why == "" {
			l.rest = append(l.wire.incoming("", bytes.TrimRight(line, "\r\n")), '\n')
			break
		}
		text, _ := json.Marshal(why) // a string cannot fail
		if _, err := fmt.Fprintf(l.out, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`+"\n", id, code, text); err != nil {
			return 0, err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// checkMessages returns an error if a JSON document is neither a message nor a batch of them.
func checkMessages(doc []byte) error {
	var batch []json.RawMessage
	if !bytes.HasPrefix(bytes.TrimSpace(doc), []byte("[")) {
		batch = append(batch, doc)
	} else if err := json.Unmarshal(doc, &batch); err != nil || len(batch) == 0 {
		return errors.New("the batch is empty")
	}
	ids := map[jsonrpc.ID]bool{}
	for _, one := range batch {
		msg, err := jsonrpc.DecodeMessage(one)
		if err != nil {
			return err
		}
		if asked, ok := msg.(*jsonrpc.Request); ok && asked.IsCall() {
			if ids[asked.ID] {
				return errors.New("the batch has an id twice")
			}
			ids[asked.ID] = true
		}
	}
	return nil
}

// idOf is the id of a message that is not one, or null.
func idOf(line []byte) string { return cmp.Or(string(rpcline.ID(line)), "null") }

// lockedWriter serialises writes. Its owner closes the underlying writer.
type lockedWriter struct {
	wire *wire // replaces messages

	mu sync.Mutex
	to io.Writer // guarded by mu
}

// Write implements [io.Writer].
func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.to.Write(w.wire.outgoing("", p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close implements [io.Closer].
func (*lockedWriter) Close() error { return nil }
