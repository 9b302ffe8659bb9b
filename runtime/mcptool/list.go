package mcptool

import (
	"cmp"
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
	"github.com/starling-host/starling/runtime/tool"
)

// maxNameBytes bounds the name of a tool.
const maxNameBytes = 1 << 10

// Definition is what a server says about one of its tools. It is plain data and
// survives a way through JSON.
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
}

// Canonical returns all that the server says of the tool to a model as canonical JSON. It is
// an error if there is none, for a schema that is nested too deep.
func (d Definition) Canonical() ([]byte, error) {
	d.Meta, d.Icons = nil, nil
	doc, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return canon.JSON(doc)
}

// Hash returns the BLAKE3 hash of all that the server says of the tool, in canonical JSON:
// it is the same exactly if a model is told the same. Without a canonical form, the order of
// members counts as well.
func (d Definition) Hash() canon.Hash {
	doc, err := d.Canonical()
	if err != nil {
		doc = fmt.Appendf(nil, "%q %q %q %q %q %q", d.Name, d.Title, d.Description, d.Schema, d.Output, d.Hints)
	}
	return canon.Sum(doc)
}

// Options say how a [Client] presents its server. Names of tools are the server's.
type Options struct {
	Prefix  string   // before the names of all tools, so that an agent can have several servers
	Include []string // the only tools that are presented; nil presents all
	Exclude []string // tools that are left out

	// Timeout bounds how long one call may take. Zero leaves that to its context.
	Timeout time.Duration

	// TextOnly makes every result a JSON string, the texts joined by newlines. A result
	// with anything other than text in it is an error.
	TextOnly bool

	// MaxOutputBytes bounds the result of a call, as the server wrote it. What is larger is an
	// error and never shortened. Zero means 8 MiB.
	MaxOutputBytes int

	// Rename has other names for tools, by the server's. They get no prefix.
	Rename map[string]string

	// ClientName and ClientVersion are what the server learns of the client. Empty means
	// "starling" and "1".
	ClientName, ClientVersion string

	// HTTP is the transport of requests over HTTP. Nil means [http.DefaultTransport].
	HTTP http.RoundTripper

	// Transient reports whether a call that the server has not answered may succeed when it
	// is made again. Its failure wraps tool.ErrTransient then. Nil says so of none.
	Transient func(error) bool

	// Headers are sent in each request over HTTP.
	Headers map[string]string

	// Tokens is the file with the OAuth token for a server over HTTP, which is refreshed there.
	// Empty, or with a header Authorization, there is no OAuth. A Login gets the token.
	Tokens string
	Login  *Login

	// Secrets are texts that no error and no last words of the server contain.
	Secrets []string

	// Changed is called when the tools, resources or prompts may have changed, since the server said so or was
	// started again. Nil is not called.
	Changed func()

	moreSecrets func() []string // that came later; nil for none
}

// Login is how a user lets this client use a server.
type Login struct {
	// Show shows the user the address to open in a browser on this machine.
	Show func(address string)

	// ClientID and ClientSecret are those of a client that the user has registered with the
	// authorization server. Without an ID, one is registered.
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

// loginError is why a server cannot be used without the user.
type loginError struct{ why, endpoint string }

// Error has the command that helps.
func (e *loginError) Error() string {
	return "the server asks for a login, and " + e.why + "; hint: starling-host mcp login " + e.endpoint
}

// clean returns an error whose text has no secrets, and no types of Go. It stays what it is.
func (o *Options) clean(err error) error {
	if login, ok := errors.AsType[*loginError](err); ok {
		err = login // the SDK says around it what it was doing
	}
	text := err.Error()
	if odd, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		kinds := map[reflect.Kind]string{reflect.String: "a string", reflect.Slice: "an array", reflect.Bool: "a bool", reflect.Int: "a number", reflect.Float64: "a number"}
		said, _ := strconv.Unquote(odd.Value) // the JSON itself, from the SDK
		is := map[byte]string{'"': "a string", '[': "an array", '{': "an object", 't': "a bool", 'f': "a bool", ' ': "another " + odd.Value}[(said + " ")[0]]
		_, method, _ := strings.Cut(text, "calling ") // as the SDK says it
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

// Refusal is why a tool of a server is not presented.
type Refusal struct {
	Tool string // the server's name of it
	Why  error
}

// presented are the tools of a server as an agent has them.
type presented struct {
	options Options

	mu      sync.Mutex
	tools   []tool.Tool // replaced as a whole; guarded by mu, and so are the next ones
	refused []Refusal
	now     map[string]canon.Hash // of all that the server lists, by its name
}

// Tools returns the tools as they were listed last, in the order of their names.
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

// Offline presents tools that were listed before, with the same options, where
// their server does not exist. They are for replaying a run; executed in a live
// run, each of them fails. It is an error if the definitions cannot be presented.
func Offline(definitions []Definition, o Options) ([]tool.Tool, error) {
	c := newClient(o)
	err := c.present(c, definitions)
	for _, r := range c.refused {
		err = errors.Join(err, fmt.Errorf("mcptool: the server's tool %q: %w", r.Tool, r.Why))
	}
	return c.tools, err
}

// present makes tools of definitions, and leaves out those that cannot be tools.
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
			err = errors.New("the server lists it twice, and the first one is taken")
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

// newTool checks a definition. The schema becomes canonical, so that its hash in
// the log does not depend on how a server orders its members today.
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
		return nil, fmt.Errorf(`its schema is not one of type "object": %.100s`, schema)
	}
	t := &remoteTool{client: c, remote: d.Name, name: p.options.Prefix + d.Name, schema: schema, said: d, hash: d.Hash()}
	if other, ok := p.options.Rename[d.Name]; ok {
		t.name = other
	}
	t.input = sync.OnceValue(func() *tool.Schema { // which can take long
		input, _ := tool.CompileSchema(schema) // nil for one that is not understood: the server checks its input itself
		return input
	})
	return t, nil
}
