package inspect

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/queue"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// templates are the pages by name, each with the frame around it. They are parsed for the
// first page: most commands show none, and each process of a sandbox starts this program.
var templates = sync.OnceValue(func() map[string]*template.Template {
	pages := map[string]*template.Template{}
	frame := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/frame.html", "templates/parts.html", "templates/task.html"))
	for _, name := range []string{"list", "run", "event", "diff", "signin", "message", "queue", "usage", "tools", "tool", "change"} {
		pages[name] = template.Must(template.Must(frame.Clone()).ParseFS(templateFiles, "templates/"+name+".html"))
	}
	return pages
})

// functions format values in templates. The texts of a log pass through text or line.
var functions = template.FuncMap{
	"text":      display.Printable,
	"line":      line,
	"arguments": arguments,
	"digits":    digits,
	"size":      size,
	"ns":        duration,
	"of":        display.SizeOf,
	"moment":    func(at time.Time) moment { return newMoment(at.UnixNano(), time.Now()) },
	"state":     func(word any) state { return stateOf(fmt.Sprint(word)) },
	"when":      whenOfJob,
	"took":      took,
	"kindName":  agent.KindName,
	"kind":      event.Kind.Short,
	"group":     event.Kind.Family,
	"facts":     func(ev event.Event) string { return event.Line(ev, maxLine) },
	"plural":    func(n any, noun string) string { return display.Plural(number(n), noun) },
	"relation": func(r eventview.Relation) state {
		return stateOf(map[eventview.Relation]string{eventview.Match: "match", eventview.Diff: "differ", eventview.OnlyA: "only A", eventview.OnlyB: "only B"}[r])
	},
	"cost": cost,
	"fuel": display.Fuel,
}

// line is the beginning of a text as one printable line.
func line(s string) string {
	return display.Shorten(display.Printable(s[:min(len(s), 4*maxLine)]), maxLine)
}

// program is the first line of a program that is the argument of a call, after empty ones.
var program = lazy.Regexp(`^\{"code":"(?:\\n)*((?:[^"\\]|\\[^n])*)`)

// arguments returns the arguments of a call, or their beginning, as one line: of a program its first.
func arguments(input string) string {
	var first string
	if m := program().FindStringSubmatch(input); m != nil && json.Unmarshal([]byte(`"`+m[1]+`"`), &first) == nil {
		return line(first)
	}
	return line(input)
}

// number returns a count or a size of any type. A log may claim that it is negative.
func number(n any) uint64 {
	if v := reflect.ValueOf(n); v.CanInt() {
		return uint64(max(v.Int(), 0))
	}
	return reflect.ValueOf(n).Uint()
}

func digits(n any) string { return display.Digits(number(n)) }

func size(n any) string { return display.Size(number(n)) }

// status is an error with the code and the words that the browser gets.
type status struct {
	code int
	text string
}

func (s *status) Error() string { return s.text }

// answer calls Scope before the page of a route, and answers its errors.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, route Route) {
	var v eventview.View
	var err error
	if !route.Open {
		r = s.credited(r)
		v, err = s.config.Scope(r)
	}
	switch {
	case errors.Is(err, ErrSignIn):
		err = s.askToSignIn(w, r)
	case err != nil:
	case route.Open, v.Log != nil, strings.HasPrefix(r.URL.Path, s.path("queue")), r.URL.Path == s.path("usage"):
		err = route.page(s, w, r, v)
	case r.URL.Path == s.path(): // an operator's
		http.Redirect(w, r, s.path("queue"), http.StatusSeeOther)
	default:
		err = eventlog.ErrRunNotFound
	}
	if err != nil {
		s.fail(w, r, v, err)
	}
}

// fail answers a failed request. A missing run and another tenant's run get the
// same answer, which does not repeat the request.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, v eventview.View, err error) {
	var known *status
	unreadable := eventview.Unreadable(err)
	switch {
	case unreadable != "":
		s.refuse(w, r, v, http.StatusConflict, "This run cannot be read here: "+unreadable+".")
	case errors.As(err, &known):
		s.refuse(w, r, v, known.code, known.text)
	case errors.Is(err, eventlog.ErrRunNotFound), errors.Is(err, eventview.ErrEventNotFound):
		if v.Operator == nil {
			v = eventview.View{} // a path without a route gets the same answer
		}
		s.refuse(w, r, v, http.StatusNotFound, "Not found.")
	case errors.Is(err, share.ErrBusy):
		w.Header().Set("Retry-After", "2")
		s.refuse(w, r, v, http.StatusTooManyRequests, "Too many requests. Try again in a moment.")
	case errors.Is(err, eventlog.ErrUnavailable):
		s.config.Logger.WarnContext(r.Context(), "inspect: request failed", "path", r.URL.Path, "error", err)
		s.refuse(w, r, v, http.StatusServiceUnavailable, "The database is temporarily unavailable.")
	case errors.Is(err, context.Canceled):
	case errors.Is(err, eventlog.ErrLogCorrupt):
		s.refuse(w, r, v, http.StatusInternalServerError, "The log cannot be read here. Validate the run to find the cause.")
	default:
		s.config.Logger.ErrorContext(r.Context(), "inspect: request failed", "path", r.URL.Path, "error", err)
		s.refuse(w, r, v, http.StatusInternalServerError, "Internal error. See the server's log.")
	}
}

// refuse answers with a page of one sentence, which has the navigation of the view.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, v eventview.View, code int, text string) {
	if err := s.render(w, r, code, "message", http.StatusText(code), v, text); err != nil {
		s.config.Logger.ErrorContext(r.Context(), "inspect: page failed", "error", err)
		http.Error(w, "this page cannot be shown", http.StatusInternalServerError)
	}
}

// frame is the part around every page.
type frame struct {
	Title    string
	View     eventview.View
	SignedIn bool
	Body     any

	server *Server
}

// Path is the path of a page.
func (f frame) Path(parts ...string) string { return f.server.path(parts...) }

// Asset is the path of a file with its version, so that a browser may keep it.
func (f frame) Asset(name string) string {
	return f.Path("assets", name) + "?v=" + assets()[name].version
}

// Home is the path of the first page, which for a reader whose runs are not known is the queue.
func (f frame) Home() string {
	if f.View.Log == nil && f.View.Operator != nil {
		return f.Path("queue")
	}
	return f.Path()
}

// render writes a page. The page is complete before its first byte leaves, so that
// a failing page is never sent in half.
func (s *Server) render(w http.ResponseWriter, r *http.Request, code int, name, title string, v eventview.View, body any) error {
	_, err := r.Cookie(sessionName(r))
	f := frame{display.Printable(title), v, err == nil, body, s}
	var b bytes.Buffer
	if share.Step(r.Context()) != nil {
		return nil // the browser went away
	}
	if err := templates()[name].ExecuteTemplate(&b, "frame", f); err != nil {
		return fmt.Errorf("page %s: %w", name, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	write(w, r, code, b.Bytes(), !neverCompressed[name])
	return nil
}

// neverCompressed are the pages on which texts of several parties meet, or that repeat the request.
// The length of a compressed page would tell one party of another's texts: see RATIONALE.md.
var neverCompressed = map[string]bool{"queue": true, "usage": true, "signin": true, "message": true}

// minCompressed is the number of bytes from which compression saves packets.
const minCompressed = 1400

// write answers with something complete, compressed if that is allowed and the browser accepts it.
func write(w http.ResponseWriter, r *http.Request, code int, content []byte, compress bool) {
	w.Header().Add("Vary", "Accept-Encoding")
	if compress && len(content) >= minCompressed && acceptsGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		content = compressed(content)
	}
	if share.Of(r.Context()).Cover(int64(len(content))) != nil {
		w.Header().Del("Content-Encoding")
		w.Header().Set("Retry-After", "2")
		http.Error(w, "Too many requests. Try again in a moment.", http.StatusTooManyRequests)
		return
	}
	w.WriteHeader(code)
	_, _ = w.Write(content) // the browser went away
}

func compressed(content []byte) []byte {
	var b bytes.Buffer
	packed := gzip.NewWriter(&b)
	_, _ = packed.Write(content) // into memory
	_ = packed.Close()
	return b.Bytes()
}

func acceptsGzip(r *http.Request) bool {
	for one := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(one, " ", ""), ";")
		if strings.EqualFold(name, "gzip") {
			return strings.Trim(strings.TrimPrefix(weight, "q="), "0.") != "" || weight == ""
		}
	}
	return false
}

// asset is a file of the pages, which all requests share.
type asset struct {
	kind, version   string
	content, packed []byte
}

// assets are the files of the pages by name.
var assets = sync.OnceValue(func() map[string]asset {
	files := map[string]asset{}
	for name, kind := range map[string]string{"style.css": "text/css; charset=utf-8", "script.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		content, _ := assetFiles.ReadFile("assets/" + name) // embedded, so they are there
		sum := canon.Sum(content)
		files[name] = asset{kind, hex.EncodeToString(sum[:8]), content, compressed(content)}
	}
	return files
})

func (s *Server) asset(w http.ResponseWriter, r *http.Request, _ eventview.View) error {
	file, ok := assets()[r.PathValue("name")]
	if !ok {
		return eventlog.ErrRunNotFound
	}
	h, content := w.Header(), file.content
	if r.URL.Query().Get("v") == file.version {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Content-Type", file.kind)
	h.Add("Vary", "Accept-Encoding")
	if len(content) >= minCompressed && acceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		content = file.packed
	}
	share.WriteStatic(w, content)
	return nil
}

// address is a path with those parameters that have a value.
func address(path string, q url.Values) string {
	maps.DeleteFunc(q, func(_ string, values []string) bool { return values[0] == "" })
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// unless writes a number for an address, and nothing if it is the standard one.
func unless[N int | int64 | uint64](standard, n N) string {
	if n == standard {
		return ""
	}
	return fmt.Sprint(n)
}

// state is the word for a state, and the class that it is drawn with.
type state struct{ Word, Class string }

func stateOf[S ~string](word S) state {
	return state{string(word), cmp.Or(classes[string(word)], "open")}
}

// classes are how states are drawn that are not open.
var classes = map[string]string{
	eventlog.StatusCompleted: "good", eventlog.StatusFailed: "bad", eventlog.StatusCancelled: "warn", // of runs
	string(queue.Running): "good", string(queue.Sleeping): "warn", string(queue.Cancelling): "warn", // of jobs
	queue.HostWorking: "good", queue.HostDraining: "warn", queue.HostDrained: "warn", queue.HostSilent: "bad", queue.HostGone: "bad", // of hosts
	"valid": "good", "invalid": "bad", "newer": "warn", "identical": "good", "diverged": "bad", "not replayed": "warn", // of checks
	"the same": "good", "different": "warn", "match": "good", "differ": "warn", // of two runs
}

// moment is a point in time: for machines, for people, and how long ago it was.
type moment struct{ ISO, Date, Ago string }

func newMoment(unixNano int64, now time.Time) moment {
	t := time.Unix(0, unixNano).UTC()
	return moment{t.Format(time.RFC3339Nano), t.Format("2006-01-02 15:04:05.000 UTC"), ago(now.Sub(t))}
}

func ago(d time.Duration) string {
	switch {
	case d < 0:
		return "in the future"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}

// took is how long a run was in progress, if it is over.
func took(run eventlog.RunSummary) string {
	if run.TerminalKind == 0 {
		return ""
	}
	if run.DurationMs == 0 {
		return "<1ms"
	}
	return display.Duration(time.Duration(run.DurationMs) * time.Millisecond)
}

func cost(usd float64) string {
	switch {
	case usd == 0:
		return ""
	case usd < 0.01:
		return fmt.Sprintf("$%.4f", usd)
	}
	return fmt.Sprintf("$%.2f", usd)
}
