package mcpsrv

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/canon"
)

// wire sits between clients and the SDK, whose types drop unknown members and round large integers.
// So what has to arrive word for word goes past it: what a client asks is also a text in the _meta of
// its request, and what another server says replaces a message of the SDK's on its way out.
type wire struct {
	mu    sync.Mutex
	out   map[string]*message // by the token in the SDK's message; guarded by mu
	asked map[string]*message // by session and id of the request to the client; likewise
}

// maxMessage bounds a message of one user's client, in bytes.
const maxMessage = 16 << 20

// message is one that is sent in place of the SDK's.
type message struct {
	method string
	params json.RawMessage // nil for none
	answer chan clientAnswer
}

// clientAnswer is what a client answers, as it wrote it.
type clientAnswer struct{ result, refused json.RawMessage }

func newWire() *wire { return &wire{out: map[string]*message{}, asked: map[string]*message{}} }

// Members that only this package and the SDK see: the params of a request of a client, and the token
// of a message to it.
const (
	paramsKey  = "starling/params"
	tokenKey   = "starling/token"
	refusedKey = "starling/refused" // in a result: an error that the SDK would reword
	idKey      = "starling/id "     // begins an id in place of a number that the SDK would round
)

// oddID reports whether an id is a number that the SDK would round.
func oddID(id json.RawMessage) bool {
	n, err := strconv.ParseFloat(string(id), 64)
	return err == nil && strconv.FormatFloat(n, 'f', -1, 64) != string(id) || err == nil && n != math.Trunc(n)
}

// members are those of a JSON object, as they were written.
type members = map[string]json.RawMessage

// membersOf returns those of a value that JSON describes as an object.
func membersOf(v any) (members, error) {
	doc, err := json.Marshal(v)
	return canon.Split(doc), err
}

// set sets a member, of members of members, and returns the members.
func set(of members, value json.RawMessage, path ...string) members {
	if len(path) > 1 {
		value = canon.Join(set(canon.Split(of[path[0]]), value, path[1:]...))
	}
	of[path[0]] = value
	return of
}

// incoming returns the message for the SDK in place of the client's.
func (w *wire) incoming(session string, data []byte) []byte {
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '[' { // a batch of the earlier protocol
		var batch []json.RawMessage
		if json.Unmarshal(data, &batch) == nil {
			for i := range batch {
				batch[i] = w.incoming(session, batch[i])
			}
			data, _ = json.Marshal(batch) // they were read as JSON
		}
		return data
	}
	m := canon.Split(data)
	if m["method"] != nil {
		if oddID(m["id"]) {
			m["id"] = canon.Quote(idKey + string(m["id"]))
			data = canon.Join(m)
		}
		written := bytes.TrimSpace(m["params"])
		if len(written) > 0 && written[0] != '{' && string(written) != "null" { // the SDK refuses it
			return data
		}
		if string(m["method"]) == `"notifications/cancelled"` {
			if id := canon.Split(written)["requestId"]; oddID(id) {
				set(m, canon.Quote(idKey+string(id)), "params", "requestId")
			}
		}
		return canon.Join(set(m, canon.Quote(string(written)), "params", "_meta", paramsKey))
	}
	w.mu.Lock()
	asked := w.asked[session+" "+string(m["id"])]
	delete(w.asked, session+" "+string(m["id"]))
	w.mu.Unlock()
	if asked == nil {
		return data
	}
	asked.answer <- clientAnswer{m["result"], m["error"]}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m["id"])
}

// outgoing returns what is sent in place of a message of the SDK, or of the event that carries it.
func (w *wire) outgoing(session string, data []byte) []byte {
	if !slices.ContainsFunc([]string{idKey, tokenKey, refusedKey, paramsKey}, func(key string) bool { return bytes.Contains(data, []byte(key)) }) {
		return data
	}
	before, text := []byte(nil), data
	if at := bytes.Index(data, []byte("data: ")); at >= 0 && data[0] != '{' {
		before, text = data[:at+len("data: ")], data[at+len("data: "):]
	}
	doc := bytes.TrimRight(text, "\n")
	m := canon.Split(doc)
	if len(m) == 0 { // a batch of answers
		return data
	}
	if m["method"] == nil { // an answer
		var id string
		if json.Unmarshal(m["id"], &id) == nil && strings.HasPrefix(id, idKey) {
			m["id"] = json.RawMessage(id[len(idKey):])
		}
		if refused := canon.Split(m["result"])[refusedKey]; refused != nil {
			delete(m, "result")
			m["error"] = refused
		}
		failure, why := canon.Split(m["error"]), ""
		_ = json.Unmarshal(failure["message"], &why) // otherwise it is no error
		if what, cited, ok := strings.Cut(why, ": unmarshaling "); ok && strings.Contains(cited, paramsKey) {
			m["error"] = canon.Join(set(failure, canon.Quote(what), "message"))
		}
		return slices.Concat(before, canon.Join(m), text[len(doc):])
	}
	params := canon.Split(m["params"])
	var token string
	_ = json.Unmarshal(canon.Split(params["_meta"])[tokenKey], &token) // otherwise it is not ours
	w.mu.Lock()
	defer w.mu.Unlock()
	ours := w.out[token]
	if ours == nil {
		return data
	}
	delete(w.out, token)
	if m["method"] = canon.Quote(ours.method); len(ours.params) == 0 {
		delete(m, "params")
	} else {
		m["params"] = ours.params
	}
	if m["id"] != nil {
		w.asked[session+" "+string(m["id"])] = ours
	}
	var one bytes.Buffer // an event is one line
	if json.Compact(&one, canon.Join(m)) != nil {
		return data
	}
	return append(append(bytes.Clone(before), one.Bytes()...), text[len(doc):]...)
}

// put keeps a message until it is sent, and returns the _meta of the SDK's.
func (w *wire) put(m *message) (meta mcp.Meta, drop func()) {
	token := rand.Text()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out[token] = m
	return mcp.Meta{tokenKey: token}, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.out, token)
		for id, asked := range w.asked {
			if asked == m {
				delete(w.asked, id)
			}
		}
	}
}

// notify sends a client a notification.
func (w *wire) notify(ctx context.Context, to *mcp.ServerSession, method string, params json.RawMessage) {
	meta, drop := w.put(&message{method: method, params: params})
	defer drop()
	_ = to.NotifyProgress(ctx, &mcp.ProgressNotificationParams{Meta: meta}) // a client that has gone needs none
}

// ask sends a client of the protocol with sessions a request, and returns its answer. An error of
// the client is a [*jsonrpc.Error].
func (w *wire) ask(ctx context.Context, to *mcp.ServerSession, method string, params json.RawMessage) (json.RawMessage, error) {
	m := &message{method, params, make(chan clientAnswer, 1)}
	meta, drop := w.put(m)
	defer drop()
	if err := to.Ping(ctx, &mcp.PingParams{Meta: meta}); err != nil {
		return nil, err
	}
	select {
	case given := <-m.answer:
		failure := &jsonrpc.Error{}
		if given.refused != nil && json.Unmarshal(given.refused, failure) == nil {
			return nil, failure
		}
		return given.result, nil
	default:
		return nil, fmt.Errorf("the client did not answer %s", method)
	}
}

// paramsOf returns the params of a request as the client wrote them, of which there may be none. The SDK's
// are never nil, because incoming adds to them.
func paramsOf(r mcp.Request) json.RawMessage {
	text, _ := r.GetParams().GetMeta()[paramsKey].(string)
	return json.RawMessage(text)
}

// writtenKey is the context key of the params of a tenant's request.
type writtenKey struct{}

// writtenBy returns the params of a request of either kind of client as it wrote them.
func writtenBy(ctx context.Context, r mcp.Request) json.RawMessage {
	if params, ok := ctx.Value(writtenKey{}).(json.RawMessage); ok {
		return params
	}
	return paramsOf(r)
}

// handler returns a handler whose messages pass the wire.
func (w *wire) handler(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		session := r.Header.Get(sessionHeader)
		if r.Method == http.MethodPost {
			rest := http.MaxBytesReader(to, r.Body, maxMessage)
			body, err := io.ReadAll(rest)
			if err == nil {
				body = w.incoming(session, body)
			}
			r.Body, r.ContentLength = io.NopCloser(io.MultiReader(bytes.NewReader(body), rest)), -1 // which keeps failing
		}
		inner.ServeHTTP(&wiredWriter{to, w, session}, r)
	})
}

// wiredWriter is a response that passes the wire. The SDK writes each message with one call.
type wiredWriter struct {
	http.ResponseWriter
	wire    *wire
	session string
}

// Write implements [io.Writer].
func (w *wiredWriter) Write(p []byte) (int, error) {
	if _, err := w.ResponseWriter.Write(w.wire.outgoing(w.session, p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Unwrap lets an [http.ResponseController] flush.
func (w *wiredWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
