package policy

import (
	"cmp"
	"fmt"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/runtime/egress"
)

// Rule allows requests. An empty list restricts nothing.
type Rule struct {
	Host     string   `yaml:"host" cbor:"host"` // a name, ".suffix" for the names below it, an address, or "*"
	Schemes  []string `yaml:"schemes" cbor:"schemes"`
	Ports    []uint16 `yaml:"ports" cbor:"ports,omitempty"` // if empty, the default port of the scheme
	Methods  []string `yaml:"methods" cbor:"methods,omitempty"`
	Paths    []string `yaml:"paths" cbor:"paths,omitempty"`     // see ParsePattern
	Headers  []string `yaml:"headers" cbor:"headers,omitempty"` // that a rule with methods or paths allows beside the ordinary ones
	Tools    []string `yaml:"tools" cbor:"tools,omitempty"`
	MaxCalls uint64   `yaml:"max_calls" cbor:"max_calls,omitempty"` // per run; zero means no bound
	MaxBytes uint64   `yaml:"max_bytes" cbor:"max_bytes,omitempty"` // of requests and responses per run; zero means no bound
	Private  bool     `yaml:"private" cbor:"private,omitempty"`     // the name may resolve to private addresses
	Ask      bool     `yaml:"ask" cbor:"ask,omitempty"`             // the user must confirm the first request of a run to each origin, see [Asker]

	// Bounds of one exchange; zero is the default of package egress.
	TimeoutMs   int64 `cbor:"timeout_ms,omitempty"`
	MaxRequest  int64 `yaml:"max_request" cbor:"max_request,omitempty"`   // bytes of its body
	MaxResponse int64 `yaml:"max_response" cbor:"max_response,omitempty"` // bytes of its body

	// Line is where the rule begins in its file.
	Line int `cbor:"-"`

	host     egress.Rule
	patterns []Pattern
}

// isFor reports whether the rule applies to the requests of a tool.
func (r *Rule) isFor(tool string) bool { return len(r.Tools) == 0 || slices.Contains(r.Tools, tool) }

// limits returns the bounds of one exchange. If another policy is asked after this one, bounds that the rule does not
// set are the defaults, so that the other policy cannot raise them.
func (r *Rule) limits(before bool) egress.Limits {
	l := egress.Limits{Timeout: time.Duration(r.TimeoutMs) * time.Millisecond, Request: r.MaxRequest, Response: r.MaxResponse}
	if before {
		l.Timeout, l.Request, l.Response = cmp.Or(l.Timeout, egress.DefaultTimeout), cmp.Or(l.Request, egress.DefaultMaxRequestBytes), cmp.Or(l.Response, egress.DefaultMaxResponseBytes)
	}
	return l
}

// compile brings a rule from a file into its canonical form.
func (r *Rule) compile(n *config.Node) {
	r.Line = n.Line()
	r.host, _ = egress.ParseRule(r.Host) // the schema has accepted it, and the paths
	r.Host = r.host.String()
	for i, name := range r.Headers {
		r.Headers[i] = textproto.CanonicalMIMEHeaderKey(name)
	}
	for _, list := range []*[]string{&r.Schemes, &r.Methods, &r.Tools, &r.Paths, &r.Headers} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	slices.Sort(r.Ports)
	r.Ports = slices.Compact(r.Ports)
	if r.Schemes == nil {
		r.Schemes = []string{"https"}
	}
	for _, path := range r.Paths {
		p, _ := ParsePattern(path)
		r.patterns = append(r.patterns, p)
	}
}

// String returns the rule in a few words.
func (r Rule) String() string {
	var b strings.Builder
	if len(r.Methods) > 0 {
		b.WriteString(strings.Join(r.Methods, ", ") + " ")
	}
	fmt.Fprintf(&b, "%s://%s", strings.Join(r.Schemes, "|"), r.Host)
	for i, port := range r.Ports {
		fmt.Fprintf(&b, "%c%d", ":,"[min(i, 1)], port)
	}
	b.WriteString(strings.Join(r.Paths, ", "))
	if r.Ask {
		b.WriteString(", if the user confirms it")
	}
	return b.String()
}

var methodPattern = lazy.Regexp(`^[A-Z][A-Z-]{0,31}$`)
