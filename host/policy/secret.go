package policy

import (
	"context"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/runtime/egress"
)

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
	b.Audience = nil
	for _, rule := range b.audience {
		b.Audience = append(b.Audience, rule.String())
	}
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
