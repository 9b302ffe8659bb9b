package policy

import (
	"context"
	"net/textproto"
	"regexp"
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
	Name     string   `cbor:"name"`
	Audience []string `cbor:"audience"`         // hosts, or ".suffix" for those below one; HOST:PORT for a port other than the scheme's
	Header   string   `cbor:"header,omitempty"` // canonical name
	Query    string   `cbor:"query,omitempty"`
	Body     bool     `cbor:"body,omitempty"`

	// Line is where the binding begins in its file.
	Line int `cbor:"-"`

	audience []egress.Rule
}

// fieldName is a token of RFC 9110, which the name of a header is.
var fieldName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// DecodeYAML implements [config.Decoder].
func (b *Binding) DecodeYAML(n *config.Node) error {
	var f struct {
		Name     secretName  `yaml:"name,required"`
		Audience []audience  `yaml:"audience,required"`
		Header   config.Word `yaml:"header"`
		Query    config.Word `yaml:"query"`
		Body     bool        `yaml:"body"`
	}
	if at := n.Get("value"); at != nil {
		return at.Hidden().Errorf("give it to the host with: starling-host secret set", "a policy has the names of secrets, never a value")
	}
	if err := n.Decode(&f); err != nil {
		return err
	}
	if err := noEmptyList(n, "audience"); err != nil {
		return err
	}
	if at := n.Get("body"); at != nil && !f.Body {
		return at.Errorf("leave the key out for another place", "this can only be true")
	}
	places := 0
	for _, there := range []bool{f.Header != "", f.Query != "", f.Body} {
		if there {
			places++
		}
	}
	if places != 1 {
		return n.Errorf("for several places, make an entry of each", `a secret has one place: "header" or "query" with a name, or "body: true"`)
	}
	if f.Header != "" && (len(f.Header) > 128 || !fieldName.MatchString(string(f.Header))) {
		return n.Get("header").Errorf("", "this must be the name of a header")
	}
	*b = Binding{Name: string(f.Name), Header: textproto.CanonicalMIMEHeaderKey(string(f.Header)), Query: string(f.Query), Body: f.Body, Line: n.Line()}
	slices.SortFunc(f.Audience, func(a, b audience) int { return strings.Compare(a.String(), b.String()) })
	for _, a := range slices.Compact(f.Audience) {
		b.Audience = append(b.Audience, a.String())
		b.audience = append(b.audience, a.Rule)
	}
	return nil
}

// secretName is the name of a secret.
type secretName string

// DecodeYAML implements [config.Decoder].
func (s *secretName) DecodeYAML(n *config.Node) error {
	return takeText(n, s, egress.IsSecretName, "",
		"this must be the name of a secret: 1 to 64 of A-Z, 0-9 and underscores, with a letter at the beginning")
}

// audience is a host that may have a secret.
type audience struct{ hostRule }

// DecodeYAML implements [config.Decoder].
func (a *audience) DecodeYAML(n *config.Node) error {
	if err := a.hostRule.DecodeYAML(n); err != nil {
		return err
	}
	if strings.HasPrefix(a.String(), "*") {
		return n.Errorf("name the hosts", "a secret for everybody is none")
	}
	return nil
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
