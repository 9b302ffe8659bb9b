package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/runtime/config"
	"github.com/starling-host/starling/runtime/egress"
)

// Rule allows requests. A list that is empty restricts nothing.
type Rule struct {
	Host     string   `cbor:"host"` // a name, ".suffix" for the names below one, an address, or "*"
	Schemes  []string `cbor:"schemes"`
	Ports    []uint16 `cbor:"ports,omitempty"` // none: that of the scheme
	Methods  []string `cbor:"methods,omitempty"`
	Paths    []string `cbor:"paths,omitempty"` // see ParsePattern
	Tools    []string `cbor:"tools,omitempty"`
	MaxCalls uint64   `cbor:"max_calls,omitempty"` // of a run; zero: no bound
	MaxBytes uint64   `cbor:"max_bytes,omitempty"` // of requests and responses of a run; zero: no bound
	Private  bool     `cbor:"private,omitempty"`   // the name may lead to private addresses
	Ask      bool     `cbor:"ask,omitempty"`       // the user must confirm the first request of a run to each origin, see [Asker]

	// What bounds one exchange; zero is the default of package egress.
	TimeoutMs   int64 `cbor:"timeout_ms,omitempty"`
	MaxRequest  int64 `cbor:"max_request,omitempty"`  // bytes of its body
	MaxResponse int64 `cbor:"max_response,omitempty"` // bytes of its body

	// Line is where the rule begins in its file.
	Line int `cbor:"-"`

	host     egress.Rule
	patterns []Pattern
}

// isFor reports whether the rule is for the requests of a tool.
func (r *Rule) isFor(tool string) bool { return len(r.Tools) == 0 || slices.Contains(r.Tools, tool) }

// The most that a rule may allow an exchange.
const (
	longestExchange = 10 * time.Minute
	largestBody     = 16 << 20
)

// limits returns the bounds of one exchange. Of a side before another one they are the
// defaults where its rule names none, so that the other one cannot widen them.
func (r *Rule) limits(before bool) egress.Limits {
	l := egress.Limits{Timeout: time.Duration(r.TimeoutMs) * time.Millisecond, Request: r.MaxRequest, Response: r.MaxResponse}
	if before {
		l.Timeout, l.Request, l.Response = cmp.Or(l.Timeout, egress.DefaultTimeout), cmp.Or(l.Request, egress.DefaultMaxRequestBytes), cmp.Or(l.Response, egress.DefaultMaxResponseBytes)
	}
	return l
}

// DecodeYAML implements [config.Decoder].
func (r *Rule) DecodeYAML(n *config.Node) error {
	var f struct {
		Host     hostRule      `yaml:"host,required"`
		Schemes  []scheme      `yaml:"schemes"`
		Ports    []port        `yaml:"ports"`
		Methods  []method      `yaml:"methods"`
		Paths    []pathPattern `yaml:"paths"`
		Tools    []toolName    `yaml:"tools"`
		MaxCalls config.Count  `yaml:"max_calls"`
		MaxBytes config.Size   `yaml:"max_bytes"`
		Private  bool          `yaml:"private"`
		Ask      bool          `yaml:"ask"`

		Timeout     config.Period `yaml:"timeout"`
		MaxRequest  config.Size   `yaml:"max_request"`
		MaxResponse config.Size   `yaml:"max_response"`
	}
	if err := n.Decode(&f); err != nil {
		return err
	}
	switch {
	case time.Duration(f.Timeout) > longestExchange:
		return n.Get("timeout").Errorf("", "an exchange takes at most %v", longestExchange)
	case f.MaxRequest > largestBody:
		return n.Get("max_request").Errorf("", "a body has at most %dMiB", largestBody>>20)
	case f.MaxResponse > largestBody:
		return n.Get("max_response").Errorf("", "a body has at most %dMiB", largestBody>>20)
	}
	if err := noEmptyList(n, "schemes", "ports", "methods", "paths", "tools"); err != nil {
		return err
	}
	if f.Host.Port() != 0 {
		return n.Get("host").Errorf("write them as in: ports: [8443]", "a host is written without its port")
	}
	if f.Private && !exact(f.Host.String()) {
		return n.Get("private").Errorf("the owner of the domain decides where its names lead", "only a rule for one host can open private addresses")
	}
	*r = Rule{
		Line: n.Line(), Host: f.Host.String(), host: f.Host.Rule, Schemes: set(f.Schemes), Ports: ports(f.Ports),
		Methods: set(f.Methods), Tools: set(f.Tools),
		MaxCalls: uint64(f.MaxCalls), MaxBytes: uint64(f.MaxBytes), Private: f.Private, Ask: f.Ask,
		TimeoutMs: time.Duration(f.Timeout).Milliseconds(), MaxRequest: int64(f.MaxRequest), MaxResponse: int64(f.MaxResponse),
	}
	if r.Schemes == nil {
		r.Schemes = []string{"https"}
	}
	slices.SortFunc(f.Paths, func(a, b pathPattern) int { return cmp.Compare(a.text, b.text) })
	f.Paths = slices.CompactFunc(f.Paths, func(a, b pathPattern) bool { return a.text == b.text })
	for _, p := range f.Paths {
		r.Paths = append(r.Paths, p.text)
		r.patterns = append(r.patterns, p.Pattern)
	}
	return nil
}

// exact reports whether a host is one host, and not all below a domain.
func exact(host string) bool { return host != "*" && !strings.HasPrefix(host, ".") }

// noEmptyList refuses lists with nothing in them, of which nobody could tell
// whether they allow all or nothing.
func noEmptyList(n *config.Node, keys ...string) error {
	for _, key := range keys {
		list := n.Get(key)
		if list == nil {
			continue
		}
		if items, _ := list.Value().([]any); len(items) == 0 {
			return list.Errorf("leave the key out for no restriction", "there is nothing in this list")
		}
	}
	return nil
}

// ports returns the numbers in order, each once.
func ports(list []port) []uint16 {
	var all []uint16
	for _, p := range list {
		all = append(all, uint16(p))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// set returns the items in order, each once; nil if there are none.
func set[T ~string](items []T) []string {
	var all []string
	for _, item := range items {
		all = append(all, string(item))
	}
	slices.Sort(all)
	return slices.Compact(all)
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

// hostRule is a host, or those below a domain, in a file.
type hostRule struct{ egress.Rule }

// DecodeYAML implements [config.Decoder].
func (h *hostRule) DecodeYAML(n *config.Node) (err error) {
	var text string
	if err := n.Decode(&text); err != nil {
		return err
	}
	if h.Rule, err = egress.ParseRule(text); err != nil {
		return n.Errorf("", "%s", strings.TrimPrefix(err.Error(), "egress: "))
	}
	return nil
}

// takeText takes a text of which valid holds. The hint and what it must be are those of
// the error otherwise.
func takeText[T ~string](n *config.Node, to *T, valid func(string) bool, hint, must string) error {
	text, ok := n.Text()
	if !ok || !valid(text) {
		return n.Errorf(hint, "%s", must)
	}
	*to = T(text)
	return nil
}

// scheme is http or https.
type scheme string

// DecodeYAML implements [config.Decoder].
func (s *scheme) DecodeYAML(n *config.Node) error {
	return takeText(n, s, func(text string) bool { return text == "http" || text == "https" }, "", "this must be http or https")
}

// port is the number of a port.
type port uint16

// DecodeYAML implements [config.Decoder].
func (p *port) DecodeYAML(n *config.Node) error {
	var i int
	if err := n.Decode(&i); err != nil {
		return err
	}
	if i < 1 || i > 65535 {
		return n.Errorf("", "this must be a port, 1 to 65535")
	}
	*p = port(i)
	return nil
}

// method is a method of HTTP.
type method string

var methodPattern = regexp.MustCompile(`^[A-Z][A-Z-]{0,31}$`)

// DecodeYAML implements [config.Decoder].
func (m *method) DecodeYAML(n *config.Node) error {
	return takeText(n, m, methodPattern.MatchString, "write it in capitals, as in: methods: [GET, POST]", "this must be a method of HTTP")
}

// pathPattern is a Pattern in a file.
type pathPattern struct{ Pattern }

// DecodeYAML implements [config.Decoder].
func (p *pathPattern) DecodeYAML(n *config.Node) (err error) {
	var text string
	if err := n.Decode(&text); err != nil {
		return err
	}
	if p.Pattern, err = ParsePattern(text); err != nil {
		return n.Errorf("", "%v", err)
	}
	return nil
}

// toolName is the name of a tool.
type toolName string

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// DecodeYAML implements [config.Decoder].
func (t *toolName) DecodeYAML(n *config.Node) error {
	return takeText(n, t, namePattern.MatchString, "", "this must be the name of a tool: 1 to 64 letters, digits, _ and -")
}
