package policy

import (
	"context"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/runtime/config"
	"github.com/starling-host/starling/runtime/egress"
)

// Secrets is where the values of secrets are. It must be safe for concurrent use.
type Secrets interface {
	// Secret returns the value of a secret; ok is false when there is none of that
	// name. What an error says reaches neither the guest nor the log.
	Secret(ctx context.Context, name string) (value []byte, ok bool, err error)
}

// Keeper is implemented by [Secrets] that know of each secret where it may be sent,
// whatever the policies say.
type Keeper interface {
	// MaySend reports whether a secret may be sent where its placeholder stands, with
	// a request of that kind. One that does not exist may not. What an error says
	// reaches neither the guest nor the log.
	MaySend(ctx context.Context, at egress.Placeholder, to egress.Access) (bool, error)
	// Same reports whether a secret still has the value that it had at a time. One that
	// does not exist has not.
	Same(ctx context.Context, name string, since time.Time) (bool, error)
}

// Binding lets a secret be sent to some hosts, in one place of a request: in the
// value of a header, or of a parameter of the query, or in the body.
type Binding struct {
	Name     string   `yaml:"name" cbor:"name"`
	Audience []string `yaml:"audience" cbor:"audience"`       // hosts, or ".suffix" for those below one; HOST:PORT for a port other than the scheme's
	Header   string   `yaml:"header" cbor:"header,omitempty"` // canonical name
	Query    string   `yaml:"query" cbor:"query,omitempty"`
	Body     bool     `yaml:"body" cbor:"body,omitempty"`

	// Line is where the binding begins in its file.
	Line int `cbor:"-"`

	audience []egress.Rule
}

// compile brings a binding from a file into its one form.
func (b *Binding) compile(n *config.Node) {
	b.Line, b.Header = n.Line(), textproto.CanonicalMIMEHeaderKey(b.Header)
	for _, host := range b.Audience {
		rule, _ := egress.ParseRule(host) // the schema has accepted it
		b.audience = append(b.audience, rule)
	}
	slices.SortFunc(b.audience, func(a, b egress.Rule) int { return strings.Compare(a.String(), b.String()) })
	b.audience = slices.Compact(b.audience)
	b.Audience = nil
	for _, rule := range b.audience {
		b.Audience = append(b.Audience, rule.String())
	}
}

// forHost reports whether the secret may be sent to the target of a request.
func (b *Binding) forHost(a egress.Access) bool {
	return slices.ContainsFunc(b.audience, func(r egress.Rule) bool { return r.Matches(a) })
}

// at reports whether the binding is about the place of a placeholder.
func (b *Binding) at(p egress.Placeholder) bool {
	switch p.Place {
	case egress.PlaceHeader:
		return b.Header == p.Field && b.Header != ""
	case egress.PlaceQuery:
		return b.Query == p.Field && b.Query != ""
	}
	return b.Body && p.Place == egress.PlaceBody
}
