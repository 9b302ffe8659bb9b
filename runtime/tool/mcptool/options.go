package mcptool

import (
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// defaultMaxOutputBytes is what [WithMaxOutputBytes] starts from.
const defaultMaxOutputBytes = 1 << 20

// Option changes how a [Client] presents its server.
type Option func(*config)

type config struct {
	info           mcp.Implementation
	prefix         string
	include        map[string]bool // nil for every tool
	exclude        map[string]bool
	callTimeout    time.Duration
	maxOutputBytes int
	textOnly       bool
	transient      func(error) bool
}

func newConfig(opts []Option) config {
	c := config{
		info:           mcp.Implementation{Name: "starling", Version: "1"},
		maxOutputBytes: defaultMaxOutputBytes,
		transient:      func(error) bool { return false },
	}
	for _, option := range opts {
		option(&c)
	}
	return c
}

// WithClientInfo sets what the client calls itself when it connects. The default
// is "starling", version "1".
func WithClientInfo(name, version string) Option {
	return func(c *config) { c.info = mcp.Implementation{Name: name, Version: version} }
}

// WithToolNamePrefix puts a prefix before the name of every tool, so that an
// agent can have the tools of several servers. The default is none.
func WithToolNamePrefix(prefix string) Option {
	return func(c *config) { c.prefix = prefix }
}

// WithIncludeTools presents only the tools with these names, which are the
// server's. It is an error if the server does not have one of them. No names
// mean no tools. The default is all tools.
func WithIncludeTools(names ...string) Option {
	return func(c *config) { c.include = set(names) }
}

// WithExcludeTools leaves out the tools with these names, which are the server's.
func WithExcludeTools(names ...string) Option {
	return func(c *config) { c.exclude = set(names) }
}

// WithCallTimeout bounds how long one call may take. Zero, the default, leaves
// that to the context of the call.
func WithCallTimeout(d time.Duration) Option {
	return func(c *config) { c.callTimeout = d }
}

// WithMaxOutputBytes bounds the result of a call, encoded as JSON. What is
// larger is an error and never shortened. The default is 1 MiB, as is anything
// below one.
func WithMaxOutputBytes(n int) Option {
	return func(c *config) {
		if n < 1 {
			n = defaultMaxOutputBytes
		}
		c.maxOutputBytes = n
	}
}

// WithTextOnly makes every result a JSON string, the texts joined by newlines. A
// result with anything other than text in it is an error. The default is false.
func WithTextOnly(only bool) Option {
	return func(c *config) { c.textOnly = only }
}

// WithTransientErrorClassifier marks those failures of a call as
// [tool.ErrTransient] for which transient returns true. It is not asked about a
// [*ToolError]. The default is that no failure is transient.
func WithTransientErrorClassifier(transient func(error) bool) Option {
	return func(c *config) {
		if transient != nil {
			c.transient = transient
		}
	}
}

func set(names []string) map[string]bool {
	s := make(map[string]bool, len(names))
	for _, name := range names {
		s[name] = true
	}
	return s
}
