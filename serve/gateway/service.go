package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/host/debug"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/search"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/inspect"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
	"github.com/starling-host/starling/serve/internal/web"
	"github.com/starling-host/starling/serve/queue"
)

// Database is a database whose runs one user reads.
type Database struct {
	Log      eventlog.Database
	Name     string          // as the reader names it in commands
	Receipts *receipt.Issuer // signs the receipts that an assistant asks for; nil for none
	Queue    *queue.Queue    // of the hosts that use the database; nil without
}

// view returns the view of the whole database.
func (d Database) view() eventview.View {
	view := eventview.View{
		Log: d.Log, Title: d.Name, Database: d.Name,
		Checker: func(ctx context.Context, runID string) (eventlog.Report, error) {
			v, err := starling.Over(d.Log, starling.Options{}).Validate(ctx, runID) // as the database is now
			return v.Report, cmp.Or(err, v.Err)
		},
	}
	if d.Receipts != nil {
		view.Issuer = starling.Over(d.Log, starling.Options{Receipts: d.Receipts}).Receipts
	}
	if d.Queue != nil {
		view.Jobs = d.Queue.Lookup
		view.Operator = &eventview.Operator{Queue: d.Queue, Names: func(ctx context.Context, jobs []queue.Status) map[string]string {
			names := map[string]string{}
			for _, job := range jobs {
				run := search.Read(ctx, d.Log, eventlog.RunSummary{RunID: job.RunID})
				names[job.RunID] = run.Name()
			}
			return names
		}}
	}
	return view
}

// Service is what the assistants of one user get. Its zero value is a server without tools.
type Service struct {
	Tools    *Tools       // to call; nil for none
	Database *Database    // to read; nil for none
	Version  string       // of the program; empty is "unknown"
	Logger   *slog.Logger // receives failures; nil discards
}

func (s Service) parts() (v mcpsrv.View, o mcpsrv.Options) {
	if s.Tools != nil {
		v.Open = s.Tools.Open
	}
	if s.Database != nil {
		log := s.Database.view()
		v.Log = &log
	}
	return v, mcpsrv.Options{Version: s.Version, Logger: s.Logger}
}

// Serve serves one assistant over a pair of streams, one message to a line, until the assistant
// closes its end and has been answered, or ctx ends.
func (s Service) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	v, o := s.parts()
	return mcpsrv.ServeStdio(ctx, v, o, in, out)
}

// Listen serves any number of assistants over HTTP, at /mcp of a listener on this machine, until
// ctx ends. It then cancels calls in progress. Every program that reaches the listener may call
// the tools.
func (s Service) Listen(ctx context.Context, l net.Listener) error {
	v, o := s.parts()
	return mcpsrv.ServeLocal(ctx, v, o, OriginsOf(l.Addr()), l)
}

// OriginsOf returns the origins under which browsers reach a listener over HTTP, or none if it
// listens on all addresses, which have too many names to know.
func OriginsOf(addr net.Addr) []string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return nil
	}
	return web.OriginsOf("http://"+addr.String(), addr)
}

// WebOptions configure a [WebView].
type WebOptions struct {
	// Token must come with each request; see [NewWebView]. Empty lets everyone in.
	Token string

	// Scope, unless it is nil, takes the place of the token. It returns the namespace whose runs
	// a request may read, empty for all runs, or that the request has to sign in. It is called for
	// each request.
	Scope func(*http.Request) (namespace string, ok bool)

	Prefix  string            // the path that the handler is mounted under, such as "/inspect"
	Origins []string          // under which browsers reach it, see [OriginsOf]; empty accepts every host
	Logger  *slog.Logger      // receives failures; nil discards
	Warn    func(text string) // receives warnings of the engine that executes runs again; may be nil
}

// WebView shows the runs of a database in a browser, and validates and executes them again.
type WebView struct {
	server   *inspect.Server
	replayer *starling.Replayer
}

// NewWebView returns the web view of a database. Programs send the token in the header
// Authorization, as "Bearer TOKEN". A person types it, or opens /sign-in#TOKEN. The caller must
// call Close.
func NewWebView(ctx context.Context, d Database, o WebOptions) (*WebView, error) {
	over := starling.Over(d.Log, starling.Options{})
	replayer, err := over.Replayer(ctx, starling.ReplayOptions{Engine: starling.EngineOptions{Warn: o.Warn}})
	if err != nil {
		return nil, err
	}
	view := d.view()
	view.Replayer, view.Modules = replaying(replayer), d.Log
	view.Ended = func(ctx context.Context, runID string, diverged *agent.Divergence) []string {
		left := uint64(0)
		if diverged != nil {
			left = diverged.Seq
		}
		return debug.Ended(ctx, d.Log, runID, left, debug.Options{Modules: d.Log, Native: agentfile.Offline})
	}
	view.Executor = func(ctx context.Context, e eventview.Execution) (x eventview.Executor, err error) {
		var kind starling.EngineKind
		if e.Source != nil {
			kind = starling.Machine // which alone counts
		}
		r, err := over.Replayer(ctx, starling.ReplayOptions{
			Module: e.Module, Engine: starling.EngineOptions{Kind: kind, Warn: o.Warn, Adjust: func(c *sandbox.Config) { c.Observers = e.Observers }},
		})
		if err == nil {
			x = eventview.Executor{Replay: replaying(r), Close: r.Close}
		}
		return x, err
	}
	scope := inspect.Only(view, o.Token)
	if o.Scope != nil {
		scope = func(r *http.Request) (eventview.View, error) {
			namespace, ok := o.Scope(r)
			if !ok {
				return eventview.View{}, inspect.ErrSignIn
			}
			narrow := view
			if narrow.Namespace = namespace; namespace != "" { // the queue and the name of the file tell more than these runs
				narrow.Operator, narrow.Jobs, narrow.Database, narrow.Title = nil, nil, "", namespace
			}
			return narrow, nil
		}
	}
	server, err := inspect.New(inspect.Config{Scope: scope, Prefix: o.Prefix, Origins: o.Origins, Logger: o.Logger})
	if err != nil {
		replayer.Close()
		return nil, err
	}
	return &WebView{server, replayer}, nil
}

// replaying returns a function that replays runs for a page.
func replaying(r *starling.Replayer) func(context.Context, string) (agent.Verdict, error) {
	return func(ctx context.Context, runID string) (agent.Verdict, error) {
		v, err := r.Replay(ctx, runID)
		if err == nil && v.Corrupt != nil {
			err = v.Corrupt
		} else if err == nil && v.Refused != nil {
			text := starling.PlainError(v.Refused)
			if errors.Is(v.Refused, eventlog.ErrSchemaTooNew) {
				text = eventlog.Corruption(v.Refused)
			}
			err = errors.New(text) // the run may be whole, whatever keeps it from being executed
		}
		return v.Verdict, err
	}
}

// ServeHTTP implements [http.Handler].
func (w *WebView) ServeHTTP(to http.ResponseWriter, r *http.Request) { w.server.ServeHTTP(to, r) }

// Serve answers on a listener, which it closes, until ctx ends. Requests in progress get three
// seconds to finish.
func (w *WebView) Serve(ctx context.Context, l net.Listener) error { return w.server.Serve(ctx, l) }

// Close releases the engine that executes runs again. Call it when nothing is served any more.
func (w *WebView) Close() { w.replayer.Close() }
