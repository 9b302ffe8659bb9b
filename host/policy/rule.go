package policy

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/textproto"
	"net/url"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/tool"
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

// Secrets has the values of secrets. It must be safe for concurrent use.
type Secrets interface {
	// Secret returns the value of a secret; ok is false if it does not exist. The text of an error reaches neither
	// the guest nor the log.
	Secret(ctx context.Context, name string) (value []byte, ok bool, err error)
}

// Keeper is implemented by [Secrets] that restrict where each secret may be sent, independently of the policies.
type Keeper interface {
	// MaySend reports whether a secret may be sent at the position of its placeholder, with such a request. It
	// returns false for a secret that does not exist. The text of an error reaches neither the guest nor the log.
	MaySend(ctx context.Context, at egress.Placeholder, to egress.Access) (bool, error)
	// Same reports whether a secret has had the same value since a time. It returns false for a secret that does not
	// exist.
	Same(ctx context.Context, name string, since time.Time) (bool, error)
}

// Binding allows a secret to be sent to some hosts, in one position of a request: the value of a header or of a query
// parameter, or the body.
type Binding struct {
	Name     string   `yaml:"name" cbor:"name"`
	Audience []string `yaml:"audience" cbor:"audience"`       // hosts, or ".suffix" for the hosts below it; HOST:PORT for a port other than the scheme's
	Header   string   `yaml:"header" cbor:"header,omitempty"` // canonical name
	Query    string   `yaml:"query" cbor:"query,omitempty"`
	Body     bool     `yaml:"body" cbor:"body,omitempty"`

	// Line is where the binding begins in its file.
	Line int `cbor:"-"`

	audience []egress.Rule
}

// compile brings a binding from a file into its canonical form.
func (b *Binding) compile(n *config.Node) {
	b.Line, b.Header = n.Line(), textproto.CanonicalMIMEHeaderKey(b.Header)
	for _, host := range b.Audience {
		rule, _ := egress.ParseRule(host) // the schema has accepted it
		b.audience = append(b.audience, rule)
	}
	slices.SortFunc(b.audience, func(a, b egress.Rule) int { return strings.Compare(a.String(), b.String()) })
	b.audience = slices.Compact(b.audience)
	b.Audience = lists.Map(b.audience, egress.Rule.String)
}

// forHost reports whether the secret may be sent to the target of a request.
func (b *Binding) forHost(a egress.Access) bool {
	return slices.ContainsFunc(b.audience, func(r egress.Rule) bool { return r.Matches(a) })
}

// at reports whether the binding applies to the position of a placeholder.
func (b *Binding) at(p egress.Placeholder) bool {
	switch p.Place {
	case egress.PlaceHeader:
		return b.Header == p.Field && b.Header != ""
	case egress.PlaceQuery:
		return b.Query == p.Field && b.Query != ""
	}
	return b.Body && p.Place == egress.PlaceBody
}

// AllTools is the name of the rule that applies to all tools.
const AllTools = "*"

// ToolRule allows calls of a tool.
type ToolRule struct {
	// Arguments is the JSON Schema that the arguments must match, with the keywords that
	// spec/policy.schema.json lists.
	Arguments canon.Raw `yaml:"arguments" cbor:"arguments,omitzero"`

	// Ask requires the user to confirm each call, see [Asker].
	Ask bool `yaml:"ask" cbor:"ask,omitempty"`

	// Line is where the rule begins in its file.
	Line int `cbor:"-"`

	argumentsNode *config.Node
	schema        *tool.Schema
}

const (
	// callUnits is what the checks of one call may cost, see [tool.Schema.CheckNew].
	callUnits = 1_000_000

	// maxQuoted bounds the quoted parts of a reason, in bytes: a model chooses the names of members.
	maxQuoted = 200
)

// compile prepares the schema of a rule from a file.
func (r *ToolRule) compile(b *work.Budget, at *config.Node) error {
	if at == nil {
		return nil
	}
	_, doc, err := at.JSON()
	if err != nil {
		return err
	}
	if r.schema, err = tool.CompileSchema(b, doc); err != nil {
		return at.Errorf("", "this schema %v", err)
	}
	r.argumentsNode = at
	return nil
}

// checkPattern refuses an expression that matches a part of a text: "cus_[0-9]+" matches "../cus_1". So does "^a|b$",
// and in texts of several lines "(?m)^a$".
func checkPattern(b *work.Budget, text string) error {
	expr, err := tool.ParsePattern(b, text)
	if errors.Is(err, work.ErrExceeded) {
		return err
	}
	if err != nil {
		return fmt.Errorf("this must be a regular expression: %w", err)
	}
	if parts := expr.Sub; expr.Op != syntax.OpConcat || parts[0].Op != syntax.OpBeginText || parts[len(parts)-1].Op != syntax.OpEndText {
		return errors.New("this matches texts with anything before or behind it: write ^(?:PATTERN)$")
	}
	return nil
}

// violated returns the part of the schema that canonical arguments violate, or "", and its line. The text comes from
// the schema and never includes the value, because others can read the log.
func (r *ToolRule) violated(b *work.Budget, doc []byte) (why string, line int) {
	if r.schema == nil {
		return "", 0
	}
	err := r.schema.CheckNew(b, doc)
	if err == nil {
		return "", 0
	}
	var mismatch *tool.SchemaError
	if errors.Is(err, tool.ErrCost) || !errors.As(err, &mismatch) || mismatch.Problems[0].Keyword == "" {
		return "the arguments are too large to check against the policy's schema", r.Line
	}
	problem := mismatch.Problems[0]
	at, key := r.argumentsNode, ""
	for _, token := range strings.Split(problem.Keyword, "/")[1:] {
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		if i, err := strconv.Atoi(key); err == nil && at.Kind() == config.List {
			at = at.Items()[i]
		} else {
			at = at.At(key)
		}
	}
	subject := "the arguments"
	if problem.Pointer != "" {
		subject = "the argument " + display.Clip(problem.Pointer, maxQuoted)
	}
	if at.Kind() == config.Bool && key != "additionalProperties" && key != "const" {
		return subject + " must not be there", at.Line()
	}
	_, want, _ := at.JSON() // compile wrote it
	return fmt.Sprintf("%s must match %s: %s", subject, key, display.Clip(string(want), maxQuoted)), at.Line()
}

// Pattern is a pattern of paths. The zero Pattern matches nothing.
type Pattern struct {
	text     string
	segments []segment
	rest     bool // it ends with **, for any number of further segments
}

// segment is the part of a pattern between two slashes.
type segment struct {
	text string // decoded; empty only for the last one, after a trailing slash
	any  bool   // it is *, which matches any one segment that is not empty
}

var errTwoReadings = errors.New("this could be read as another path: write it without dot segments, empty segments, dots with punctuation alone, backslashes, semicolons, spaces at the edge of a segment, invisible characters beside dots alone, and encoded slashes, ? and #")

// ParsePattern parses a pattern: a slash, and segments between slashes. A segment matches itself, * matches one
// segment that is not empty, and ** at the end matches any number of segments, including zero.
func ParsePattern(s string) (Pattern, error) {
	if !strings.HasPrefix(s, "/") {
		return Pattern{}, errors.New("a path begins with a slash")
	}
	if strings.ContainsAny(s, "?#") {
		return Pattern{}, errors.New("a path has neither a query nor a fragment")
	}
	p := Pattern{text: s}
	literal := s
	if before, ok := strings.CutSuffix(s, "/**"); ok {
		p.rest, literal = true, before
	}
	if literal == "" {
		return p, nil
	}
	decoded, ok := splitPath(literal)
	if !ok {
		return Pattern{}, errTwoReadings
	}
	for i, raw := range strings.Split(literal[1:], "/") {
		if raw != "*" && strings.Contains(raw, "*") {
			return Pattern{}, errors.New("* stands for a whole segment and ** for all that follow: write /users/* or /users/**, and %2A for the character itself")
		}
		p.segments = append(p.segments, segment{decoded[i], raw == "*"})
	}
	return p, nil
}

// String returns the pattern as it was written.
func (p Pattern) String() string { return p.text }

// Match reports whether the pattern matches a path. The path is percent-encoded as in a request, and is decoded once.
// No pattern matches an ambiguous path, see [splitPath].
func (p Pattern) Match(path string) bool {
	segments, ok := splitPath(path)
	return ok && p.match(segments)
}

// match is [Pattern.Match] for a split path.
func (p Pattern) match(segments []string) bool {
	if p.text == "" || len(segments) < len(p.segments) || len(segments) > len(p.segments) && !p.rest {
		return false
	}
	for i, want := range p.segments {
		got := segments[i]
		if want.any && got == "" || !want.any && got != want.text {
			return false
		}
	}
	return true
}

// splitPath returns the decoded segments of a path; the last is empty if the path ends with a slash. It returns false
// for a path that two servers may interpret differently: with dot segments, empty segments, or a separator encoded
// once or more often.
func splitPath(path string) (segments []string, ok bool) {
	raw := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range raw {
		decoded, err := url.PathUnescape(s)
		if err != nil || s == "" && i < len(raw)-1 || !oneReading(s) {
			return nil, false
		}
		segments = append(segments, decoded)
	}
	return segments, strings.HasPrefix(path, "/")
}

// maxDecoded bounds how often a segment is decoded. No server decodes that often, and a crafted path could require
// thousands of passes.
const maxDecoded = 16

// oneReading reports whether a segment is the same for servers that decode it not at all, once, or more often.
func oneReading(s string) bool {
	for range maxDecoded {
		if !utf8.ValidString(s) || strings.ContainsFunc(s, separates) || strings.Contains(strings.ToLower(s), "%u") ||
			s != "" && strings.Trim(strings.Map(dropUnseen, s), ".") == "" || strings.TrimSpace(s) != s || dotsAndMarks().MatchString(s) {
			return false
		}
		decoded := escape().ReplaceAllStringFunc(s, func(e string) string { c, _ := hex.DecodeString(e[1:]); return string(c) })
		if decoded == s {
			return true
		}
		s = decoded
	}
	return false
}

// dotsAndMarks finds a segment of dots and punctuation, as "..+" and "..:". A server that reads a
// plus as a space, or ends a name at a mark, sees a dot segment.
var dotsAndMarks = lazy.Regexp(`^[\pP\pS\pZ\pM\pC]*\.[\pP\pS\pZ\pM\pC]*$`)

var escape = lazy.Regexp(`%[0-9A-Fa-f]{2}`)

// bestFit has characters that Windows and Japanese and Korean encodings convert to a slash or a backslash.
const bestFit = "⁄∕∖⧸⧵⧹¥₩"

// separates reports whether some servers treat a character, after decoding or normalization, as a slash or a
// backslash, as the beginning of a query, a fragment, parameters or an escape, or, for a character outside ASCII, as
// a dot. A server that drops parameters or cuts the path there sees another path.
func separates(r rune) bool {
	if r < utf8.RuneSelf {
		return unicode.IsControl(r) || strings.ContainsRune(`/\?#;`, r)
	}
	return unicode.IsControl(r) || strings.ContainsRune(bestFit, r) || strings.ContainsAny(norm.NFKC.String(string(r)), `./\?#;%`)
}

// dropUnseen drops spaces, marks, and characters without width or meaning of their own. A server that ignores them
// between dots sees a dot segment.
func dropUnseen(r rune) rune {
	if !unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) {
		return -1
	}
	return r
}
