package mcptool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/tool"
)

// maxNameBytes bounds the name of a tool.
const maxNameBytes = 1 << 10

// Definition is a server's definition of a tool. It is plain data that survives a round
// trip through JSON.
type Definition struct {
	Name        string          `json:"name"` // the server's
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema"`                  // JSON Schema of the input
	Output      json.RawMessage `json:"output_schema,omitempty"` // JSON Schema of structured content; nil if the server has none
	Hints       json.RawMessage `json:"annotations,omitempty"`   // the annotations, as the protocol writes them; nil for none

	// For the client, and not for the model. Nil for none.
	Meta  json.RawMessage `json:"_meta,omitempty"`
	Icons json.RawMessage `json:"icons,omitempty"`

	// Of the server's list: the definition as the server wrote it, and its place.
	Exact json.RawMessage `json:"-"`
	At    int             `json:"-"`
}

// Canonical returns everything in the definition that a model reads, as canonical JSON. It
// fails if the schema is nested too deeply.
func (d Definition) Canonical() ([]byte, error) {
	d.Meta, d.Icons = nil, nil
	doc, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return canon.JSON(doc)
}

// Hash returns the BLAKE3 hash of the definition in canonical JSON: it changes exactly if
// the text for a model does. Without a canonical form, the order of members counts as well.
func (d Definition) Hash() canon.Hash {
	doc, err := d.Canonical()
	if err != nil {
		doc = fmt.Appendf(nil, "%q %q %q %q %q %q", d.Name, d.Title, d.Description, d.Schema, d.Output, d.Hints)
	}
	return canon.Sum(doc)
}

// Options configure how a [Client] presents its server. Tools have the server's names here.
type Options struct {
	Prefix  string   // prefix of all names, so that an agent can use several servers
	Include []string // the only tools that are presented; nil presents all
	Exclude []string // tools that are left out

	// Timeout bounds each call. Zero leaves that to its context.
	Timeout time.Duration

	// TextOnly makes every result a JSON string, the texts joined by newlines. A result
	// with other content is an error.
	TextOnly bool

	// MaxOutputBytes bounds the result of a call, as the server wrote it. A larger result is
	// an error, not truncated. Zero means 8 MiB.
	MaxOutputBytes int

	// Rename maps the server's names to other names. These get no prefix.
	Rename map[string]string

	// OneAtATime makes calls wait for one another. Then a message of the server over standard input and
	// output belongs to the call that is made, which such a server does not say.
	OneAtATime bool

	// Strict refuses arguments that do not match the schema of their tool. Otherwise the server decides.
	Strict bool

	// Assistant is the client that the server is connected for. Nil for none.
	Assistant *Assistant

	// ClientName and ClientVersion identify the client to the server. Empty means
	// "starling" and "1".
	ClientName, ClientVersion string

	// HTTP is the transport of requests over HTTP. Nil means the one of
	// package egress for what an operator names.
	HTTP http.RoundTripper

	// Transient reports whether an unanswered call may succeed if repeated. Its failure
	// then wraps tool.ErrTransient. Nil means never.
	Transient func(error) bool

	// Headers are sent in each request over HTTP.
	Headers map[string]string

	// Tokens is the file with the OAuth token for a server over HTTP; refreshed tokens are
	// stored there. If empty, or with a header Authorization, OAuth is not used. A Login
	// obtains the token.
	Tokens string
	Login  *Login

	// Secrets are texts that are removed from errors and from the server's last output.
	Secrets []string

	// Changed, unless nil, is called when the tools, resources or prompts may have changed, because
	// the server announced it or was restarted.
	Changed func()

	moreSecrets func() []string // set later; may be nil
}

// Login lets a user authorize this client at a server.
type Login struct {
	// Show shows the user the address to open in a browser on this machine.
	Show func(address string)

	// ClientID and ClientSecret identify a client that the user has registered with the
	// authorization server. Without an ID, a client is registered.
	ClientID, ClientSecret string
}

// hide returns a text without the secrets.
func (o *Options) hide(text string) string {
	secrets := o.Secrets
	if o.moreSecrets != nil {
		secrets = append(o.moreSecrets(), secrets...)
	}
	for _, secret := range secrets {
		if len(secret) > 3 {
			text = strings.NewReplacer(secret, "[hidden]", url.QueryEscape(secret), "[hidden]", url.PathEscape(secret), "[hidden]").Replace(text)
		}
	}
	return text
}

// loginError is returned when a server needs a login by the user.
type loginError struct{ why, endpoint string }

// Error includes the command to run.
func (e *loginError) Error() string {
	return "the server asks for a login, and " + e.why + "; hint: starling-host mcp login " + e.endpoint
}

// clean wraps an error in a text without secrets and Go types.
func (o *Options) clean(err error) error {
	if login, ok := errors.AsType[*loginError](err); ok {
		err = login // the SDK wraps it in a description of its own
	}
	text := err.Error()
	if odd, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		kinds := map[reflect.Kind]string{reflect.String: "a string", reflect.Slice: "an array", reflect.Bool: "a bool", reflect.Int: "a number", reflect.Float64: "a number"}
		said, _ := strconv.Unquote(odd.Value) // the JSON itself, from the SDK
		is := map[byte]string{'"': "a string", '[': "an array", '{': "an object", 't': "a bool", 'f': "a bool", ' ': "another " + odd.Value}[(said + " ")[0]]
		_, method, _ := strings.Cut(text, "calling ") // in the SDK's words
		method, _, _ = strings.Cut(method, ":")
		text = fmt.Sprintf("the server's answer to %s is not of the protocol: %s must be %s, and is %s", cmp.Or(strings.Trim(method, `"`), "a request"),
			cmp.Or(odd.Field, "the result"), cmp.Or(kinds[odd.Type.Kind()], "an object"), cmp.Or(is, "a number"))
	}
	if o.hide(text) != err.Error() {
		return &cleaned{o.hide(text), err}
	}
	return err
}

type cleaned struct {
	text string
	err  error
}

// Error returns the text that clean made.
func (c *cleaned) Error() string { return c.text }

// Unwrap implements the interface that [errors.Is] uses.
func (c *cleaned) Unwrap() error { return c.err }

// Refusal is a tool that is not presented, and why.
type Refusal struct {
	Tool string // the server's name for it
	Why  error
}

// presented are the tools of a server in the form for an agent.
type presented struct {
	options Options

	mu      sync.Mutex
	tools   []tool.Tool // replaced as a whole; mu guards it and the fields below
	refused []Refusal
	now     map[string]canon.Hash // of all listed tools, by the server's name
}

// Tools returns the tools of the last listing, sorted by name.
func (p *presented) Tools() []tool.Tool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tools
}

// Refused returns the tools that cannot be presented.
func (p *presented) Refused() []Refusal {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// Offline presents tools from earlier definitions, with the same options, without their
// server. They are for replays; in a live run each of them fails. It fails if the
// definitions cannot be presented.
func Offline(definitions []Definition, o Options) ([]tool.Tool, error) {
	c := newClient(o)
	err := c.present(c, definitions)
	for _, r := range c.refused {
		err = errors.Join(err, fmt.Errorf("mcptool: the server's tool %q: %w", r.Tool, r.Why))
	}
	return c.tools, err
}

// present makes tools from definitions, and leaves out invalid ones.
func (p *presented) present(c *Client, all []Definition) error {
	tools, now := []tool.Tool{}, make(map[string]canon.Hash, len(all))
	var refused []Refusal
	all = slices.SortedStableFunc(slices.Values(all), func(a, b Definition) int { return cmp.Compare(a.Name, b.Name) })
	for _, d := range all {
		_, twice := now[d.Name]
		if o := p.options; !twice && (o.Include != nil && !slices.Contains(o.Include, d.Name) || slices.Contains(o.Exclude, d.Name)) {
			now[d.Name] = canon.Hash{}
			continue
		}
		t, err := p.newTool(c, d)
		if twice {
			err = errors.New("the server lists it twice; the first is used")
		} else {
			now[d.Name] = d.Hash()
		}
		switch {
		case err == nil:
			tools = append(tools, t)
		case slices.Contains(p.options.Include, d.Name) && !twice:
			return fmt.Errorf("the included tool %q of the server: %w", d.Name, err)
		default:
			refused = append(refused, Refusal{d.Name, err})
		}
	}
	for _, name := range p.options.Include {
		if _, ok := now[name]; !ok {
			return fmt.Errorf("the server does not have the included tool %q", name)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tools, p.refused, p.now = tools, refused, now
	return nil
}

// newTool checks a definition. The schema becomes canonical, so that its hash in the log
// does not depend on the server's order of members.
func (p *presented) newTool(c *Client, d Definition) (*remoteTool, error) {
	switch {
	case d.Name == "":
		return nil, errors.New("its name is empty")
	case len(d.Name) > maxNameBytes || !utf8.ValidString(d.Name):
		return nil, fmt.Errorf("its name is not UTF-8 of at most %d bytes", maxNameBytes)
	}
	schema, err := canon.JSON(d.Schema)
	if err != nil {
		return nil, fmt.Errorf("its schema is not JSON: %w", err)
	}
	var object struct{ Type any }
	if err := json.Unmarshal(schema, &object); err != nil || object.Type != "object" {
		schema = []byte(`{"type":"object"}`) // the protocol has no other arguments, and the server decides
	}
	t := &remoteTool{client: c, remote: d.Name, name: p.options.Prefix + d.Name, schema: schema, said: d, hash: d.Hash()}
	if other, ok := p.options.Rename[d.Name]; ok {
		t.name = other
	}
	t.input = sync.OnceValue(func() *tool.Schema { // which can take long
		input, _ := tool.CompileSchema(work.For(context.Background(), len(schema)), schema) // nil for an unsupported schema: the server checks the input itself
		return input
	})
	return t, nil
}
