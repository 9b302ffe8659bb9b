package mcpsrv

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessionHeader is what a client of the older protocol is told apart by from others
// of the same owner, whose requests may have the same ids. It is random, there is no
// list of those that were given out, and none gives rights: what may be done is decided
// for each request by its credential.
const sessionHeader = "Mcp-Session-Id"

// The methods that cancelling has to do with.
const (
	methodInitialize = "initialize"
	methodCancelled  = "notifications/cancelled"
)

// errCancelled is the cause with which a request's context ends that its client has
// cancelled.
var errCancelled = errors.New("mcpsrv: cancelled by the client")

// peeked returns the message that a request has, nil if it has none or several, and
// leaves the body as it was, with the error at which it ends. One that could not be
// answered is refused.
func peeked(w http.ResponseWriter, r *http.Request) (asked *jsonrpc.Request, refused json.RawMessage) {
	if r.Method != http.MethodPost {
		return nil, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
	if err != nil {
		return nil, nil
	}
	msg, err := decode(body)
	if errors.Is(err, errID) {
		return nil, refusal(body, err.Error())
	}
	asked, _ = msg.(*jsonrpc.Request)
	return asked, nil
}

// failing is the end of a body.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}

// cancelledID returns the id of the request that a notification cancels.
func cancelledID(r *jsonrpc.Request) (id jsonrpc.ID, ok bool) {
	var p mcp.CancelledParams
	if r.Method != methodCancelled || json.Unmarshal(r.Params, &p) != nil {
		return id, false
	}
	id, err := jsonrpc.MakeID(p.RequestID)
	return id, err == nil && id.IsValid()
}

// pending are the requests over HTTP that are being served. The notification that
// cancels one comes in a request of its own, and on a server of its own.
type pending struct {
	mu sync.Mutex
	of map[pendingKey][]*context.CancelCauseFunc // guarded by mu
}

type pendingKey struct {
	owner, session string
	id             jsonrpc.ID
}

func keyOf(v View, r *http.Request, id jsonrpc.ID) pendingKey {
	return pendingKey{v.Owner, r.Header.Get(sessionHeader), id}
}

// ticket names the request among those of its owner, also for other processes. Without
// a session nothing does.
func (k pendingKey) ticket() string {
	id, err := json.Marshal(k.id.Raw())
	if k.session == "" || err != nil {
		return ""
	}
	return k.session + " " + string(id)
}

// ticketKey is where the ticket of a request is.
type ticketKey struct{}

func ticketOf(ctx context.Context) string {
	ticket, _ := ctx.Value(ticketKey{}).(string)
	return ticket
}

// enter notes a request until leave is called. Its context ends with errCancelled
// when the client cancels it.
func (p *pending) enter(ctx context.Context, k pendingKey) (_ context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[k] = append(p.of[k], &cancel)
	return ctx, func() { p.leave(k, &cancel); cancel(nil) }
}

func (p *pending) leave(k pendingKey, cancel *context.CancelCauseFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[k] = slices.DeleteFunc(p.of[k], func(c *context.CancelCauseFunc) bool { return c == cancel })
	if len(p.of[k]) == 0 {
		delete(p.of, k)
	}
}

// cancel ends a request, if it is one that is served here. If there are several of the
// key, nobody knows which one is meant, and all go on.
func (p *pending) cancel(k pendingKey) (here bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	made := p.of[k]
	if len(made) == 1 {
		(*made[0])(errCancelled)
	}
	return len(made) > 0
}

// serve has a request served, and cancelled if its client says so. Whoever has
// cancelled a request is sent no response to it, but the status of a message that has
// none.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, v View, asked *jsonrpc.Request) {
	switch {
	case asked == nil:
	case asked.Method == methodInitialize:
		w.Header().Set(sessionHeader, rand.Text())
	case asked.IsCall():
		key := keyOf(v, r, asked.ID)
		ctx, leave := h.pending.enter(r.Context(), key)
		defer leave()
		ctx = context.WithValue(ctx, cancelKey{}, ctx)
		r = r.WithContext(context.WithValue(ctx, ticketKey{}, key.ticket()))
	default:
		if id, ok := cancelledID(asked); ok {
			h.cancel(r.Context(), v, keyOf(v, r, id))
		}
	}
	out := &answer{ResponseWriter: w, asked: r.Context()}
	h.inner.ServeHTTP(out, r)
	if !out.begun && out.cancelled() {
		w.Header().Del("Content-Type")
		w.WriteHeader(http.StatusAccepted)
	}
}

// cancel ends a request, wherever it is served.
func (h *handler) cancel(ctx context.Context, v View, k pendingKey) {
	ticket := k.ticket()
	if h.pending.cancel(k) || ticket == "" || v.Tools == nil {
		return
	}
	if err := v.Tools.Cancel(ctx, ticket); err != nil {
		h.options.Logger.WarnContext(ctx, "mcpsrv: call not cancelled", "error", err)
	}
}

// answer is what the client is sent, unless it has cancelled the request before the
// answer began: the SDK may still answer with the error that the call has ended with.
type answer struct {
	http.ResponseWriter
	asked context.Context // of the request
	begun bool
}

func (a *answer) cancelled() bool { return context.Cause(a.asked) == errCancelled }

// drops reports whether what comes now is for nobody. The client is told nothing of
// what it has cancelled, and all of what has begun.
func (a *answer) drops() bool {
	if !a.begun && a.cancelled() {
		return true
	}
	a.begun = true
	return false
}

func (a *answer) WriteHeader(status int) {
	if !a.drops() {
		a.ResponseWriter.WriteHeader(status)
	}
}

func (a *answer) Write(p []byte) (int, error) {
	if a.drops() {
		return len(p), nil
	}
	return a.ResponseWriter.Write(p)
}

// Flush implements [http.Flusher].
func (a *answer) Flush() {
	if !a.drops() {
		_ = http.NewResponseController(a.ResponseWriter).Flush()
	}
}

// cancelKey is where the context is that ends when a request is cancelled. The SDK
// passes on what a request's context has, and of the older protocol not its end: who
// loses the connection has cancelled nothing there.
type cancelKey struct{}

// cancellable has requests end that their clients have cancelled.
func cancellable(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		asked, ok := ctx.Value(cancelKey{}).(context.Context)
		if !ok {
			return next(ctx, method, r)
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(asked, func() {
			if context.Cause(asked) == errCancelled {
				cancel(errCancelled)
			}
		})()
		return next(ctx, method, r)
	}
}
