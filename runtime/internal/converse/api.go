package converse

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/provider"
)

// Config configures how a vendor's server is reached. Empty fields are the vendor's defaults.
type Config struct {
	APIKey     string
	BaseURL    string // for proxies and gateways: the part before the vendor's own path
	APIVersion string
	Region     string            // of AWS
	Headers    map[string]string // for all requests, if the vendor knows them
	ID         string            // of the provider in the log
	HTTP       *http.Client      // follows redirections only if it has a CheckRedirect

	// Getenv reads the region and the credentials of AWS, see os.Getenv. Nil has none.
	Getenv func(string) string
}

// Complete fills in the defaults of a vendor, and returns the base URL as well. It fails without a
// key, or with an invalid base URL.
func (c Config) Complete(defaults Config) (Config, *url.URL, error) {
	c.ID, c.BaseURL, c.APIVersion = cmp.Or(c.ID, defaults.ID), cmp.Or(c.BaseURL, defaults.BaseURL), cmp.Or(c.APIVersion, defaults.APIVersion)
	if c.APIKey == "" {
		return c, nil, fmt.Errorf("%s: no API key", defaults.ID)
	}
	base, err := ParseBase(defaults.ID, c.BaseURL)
	return c, base, err
}

// API is a vendor's endpoint that takes JSON and answers with events. It implements [provider.Capabler].
type API struct {
	Config
	Name string // of the provider, which begins every error
	Key  string // is kept out of every error; may be empty

	// Translate returns what to send for a request.
	Translate func(req *provider.Request) (*Call, error)

	// Caches is whether the vendor caches prompts at marks that a request sets.
	Caches bool

	// Fault reads an error response. It returns nil for a response that is not the
	// vendor's, such as the page of a proxy.
	Fault func(status int, header http.Header, body []byte) *Fault

	// RequestID returns the vendor's name for an exchange, or "".
	RequestID func(http.Header) string

	// Events reads the events of a body. Nil is for server-sent events.
	Events func(body io.Reader) Events

	// Untyped takes a response for events unless its type says JSON or HTML. Without
	// it the type must be that of events, or absent.
	Untyped bool
}

// Call is a request as it is sent, and the reader of the response.
type Call struct {
	URL    string
	Header http.Header
	Body   []byte // an object of JSON
	Reader Reader
}

// Info implements [provider.Provider].
func (a *API) Info() provider.Info { return provider.Info{ID: a.ID, APIVersion: a.APIVersion} }

// Capabilities implements [provider.Capabler].
func (a *API) Capabilities() provider.Capabilities {
	return provider.Capabilities{Tools: true, ToolChoice: true, Reasoning: true, StopSequences: true, CacheControl: a.Caches, RequestID: true}
}

// Events reads the events of a body, see [EventReader.Next].
type Events interface{ Next() (ServerEvent, error) }

// Reader makes chunks of the events of one response.
type Reader interface {
	// Event takes an event into m.
	Event(m *Message, ev ServerEvent) error

	// Complete reports whether the response may end here. The body has ended, cleanly
	// or because the connection broke.
	Complete(cleanly bool) bool
}

// Fault is a vendor's report of a failed request, in place of a response or
// in the middle of one.
type Fault struct {
	Status    int    // gives the error its class; 0 for no class
	Title     string // "status N" if it is empty
	Message   string
	RequestID string
}

// Error returns the vendor's message, without the name of the provider.
func (f *Fault) Error() string {
	text := cmp.Or(f.Title, fmt.Sprint("status ", f.Status)) + ": " + cmp.Or(f.Message, "no message")
	if f.RequestID != "" {
		text += fmt.Sprintf(" (request %s)", f.RequestID)
	}
	return text
}

// maxFault bounds the part read of an error response.
const maxFault = 64 << 10

// post returns a response that has events.
func (a *API) post(ctx context.Context, c *Call) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(c.Body))
	if err != nil {
		return nil, err
	}
	req.Header = c.Header
	req.Header.Set("Content-Type", "application/json")
	resp, err := Client(a.HTTP).Do(req)
	if err != nil {
		return nil, err
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	isEvents := media == "" || media == "text/event-stream" || a.Untyped && media != "application/json" && media != "text/html"
	if resp.StatusCode == http.StatusOK && isEvents {
		return resp, nil
	}
	defer resp.Body.Close()
	// What cannot be read of an error is not worth another error.
	said, _ := io.ReadAll(io.LimitReader(resp.Body, maxFault))
	fault := a.Fault(resp.StatusCode, resp.Header, said)
	switch {
	case fault == nil && resp.StatusCode == http.StatusOK:
		return nil, Malformed("its type is %q, and not that of events", media)
	case fault == nil:
		fault = &Fault{Status: resp.StatusCode, Message: string(said)}
	}
	fault.RequestID = a.RequestID(resp.Header)
	return nil, fault
}

// Decode reads an event, or a part of one, as JSON. Its errors describe the fault
// in words, and repeat nothing of the event.
func Decode(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return Malformed("an event is not the JSON that it should be: %w", inWords(err))
	}
	return nil
}

// inWords returns an error of package json without the Go type that it names.
func inWords(err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	found, _, _ := strings.Cut(wrong.Value, " ") // which may quote a number
	return fmt.Errorf("%s cannot be of the type %s", cmp.Or(wrong.Field, "it"), found)
}

// IDs gives calls without an id one that is a function of the request, so that it
// differs between turns: a later request has a longer history.
type IDs struct {
	prefix string
	used   map[string]bool
}

// NewIDs returns the ids for the response to a request.
func NewIDs(req *provider.Request) (*IDs, error) {
	h, err := req.Hash()
	if err != nil {
		return nil, err
	}
	return &IDs{prefix: "call_" + h.String()[:16], used: map[string]bool{}}, nil
}

// Unique returns an id that no other call of the response has: the server's, if it is
// one.
func (s *IDs) Unique(id string) string {
	if id == "" || s.used[id] {
		id = fmt.Sprintf("%s_%d", s.prefix, len(s.used))
	}
	s.used[id] = true
	return id
}

// ParseBase reads the base URL of a vendor. The error does not repeat text, which may contain a
// password. A password is refused as well: net/http would send it beside the key and put the user into
// its errors, which are recorded.
func ParseBase(vendor, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Host == "", u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New(vendor + ": the base URL is not an http or https URL")
	case u.User != nil:
		return nil, errors.New(vendor + ": the base URL has a user or a password in it")
	}
	return u, nil
}

// Client returns c through [provider.HashBodies], with bodies whose errors wrap
// [provider.ErrNetwork]. Nothing else tells a broken connection from a malformed body:
// many read errors have no type of their own. Nil means [http.DefaultClient].
//
// It does not follow redirects unless c has a CheckRedirect: they would take the prompt
// to another place, and the key as well, since net/http drops only the headers
// Authorization and cookies.
func Client(c *http.Client) *http.Client {
	c = provider.HashBodies(c)
	c.Transport = marking{c.Transport}
	if c.CheckRedirect == nil {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return c
}

type marking struct{ inner http.RoundTripper }

// mostSilence is how long a server may send nothing at all, before its response or in it: a
// model that thinks is silent, and a connection that is gone is too.
const mostSilence = 5 * time.Minute

var errSilent = fmt.Errorf("%w: the server has sent nothing for %v", provider.ErrNetwork, mostSilence)

// RoundTrip implements [http.RoundTripper].
func (m marking) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	watch := time.AfterFunc(mostSilence, func() { cancel(errSilent) })
	resp, err := m.inner.RoundTrip(req.WithContext(ctx))
	watch.Stop()
	if err != nil {
		defer cancel(nil)
		if context.Cause(ctx) == errSilent {
			err = errSilent
		}
		return nil, err
	}
	resp.Body = markingBody{resp.Body, ctx, cancel, watch}
	return resp, nil
}

type markingBody struct {
	io.ReadCloser
	ctx    context.Context // ends when the server was silent for too long
	cancel context.CancelCauseFunc
	watch  *time.Timer
}

// Read implements [io.Reader].
func (b markingBody) Read(p []byte) (int, error) {
	b.watch.Reset(mostSilence)
	n, err := b.ReadCloser.Read(p)
	b.watch.Stop()
	if err != nil && err != io.EOF {
		if context.Cause(b.ctx) == errSilent {
			return n, errSilent
		}
		err = fmt.Errorf("%w: %w", provider.ErrNetwork, err)
	}
	return n, err
}

// Close implements [io.Closer].
func (b markingBody) Close() error {
	b.watch.Stop()
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// Malformed is an error of the vendor's protocol. It has no class: the same request
// would meet the same server, or the same gateway, again.
func Malformed(format string, args ...any) error {
	err := fmt.Errorf("malformed response: "+format, args...)
	return &Error{Text: err.Error(), Err: err}
}

// maxErrorText bounds an error's text, because it is recorded, and a proxy may
// answer with a page of any length.
const maxErrorText = 2048

// Error is an error in words that are fit to be recorded.
type Error struct {
	Text string
	Err  error
}

// Error returns the text on one line, without control characters, and shortened if it
// is long.
func (e *Error) Error() string {
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(e.Text, ""))
	return display.Clip(strings.Join(strings.Fields(text), " "), maxErrorText)
}

// Unwrap returns the error behind the text.
func (e *Error) Unwrap() error { return e.Err }
