package tenant

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/runtime/egress"
)

// Place is a part of a request that may hold a secret.
type Place string

// The places of a secret.
const (
	PlaceHeader Place = egress.PlaceHeader
	PlaceQuery  Place = egress.PlaceQuery
	PlaceBody   Place = egress.PlaceBody
)

// Bounds of secrets.
const (
	MaxSecretBytes = 64 << 10 // of one value
	minSecretBytes = 8        // a shorter secret is indistinguishable from other text in a response
	maxSecrets     = 1000     // of one tenant
	maxAudience    = 64       // hosts of one secret
)

// Secret describes a secret, without its value.
type Secret struct {
	Name     string    `json:"name"`       // see egress.IsSecretName
	Audience []string  `json:"audience"`   // hosts that it may be sent to, as "api.example.com", ".example.com" or "api.example.com:8443", see egress.ParseRule
	Place    Place     `json:"place"`      // where it may stand in a request
	Updated  time.Time `json:"updated_at"` // when it was set last
}

const purposeSecret = "secret"

func (sec Secret) valid() error {
	switch {
	case !egress.IsSecretName(sec.Name):
		return fmt.Errorf("%w: secret name %.80q: a name has 1 to 64 of A-Z, 0-9 and underscores and begins with a letter", ErrInvalid, sec.Name)
	case len(sec.Audience) == 0:
		return fmt.Errorf("%w: secret %s has no audience: name the hosts that it may be sent to", ErrInvalid, sec.Name)
	case len(sec.Audience) > maxAudience:
		return fmt.Errorf("%w: secret %s has %d hosts in its audience; at most %d are allowed", ErrInvalid, sec.Name, len(sec.Audience), maxAudience)
	case sec.Place != PlaceHeader && sec.Place != PlaceQuery && sec.Place != PlaceBody:
		return fmt.Errorf("%w: secret %s: place %.20q is not header, query or body", ErrInvalid, sec.Name, sec.Place)
	}
	for _, host := range sec.Audience {
		if rule, err := egress.ParseRule(host); err != nil || rule.String() != host || strings.HasPrefix(host, "*") {
			return fmt.Errorf("%w: secret %s: audience %.80q is not a host in lower case, such as api.example.com, .example.com or 10.0.0.7:8080", ErrInvalid, sec.Name, host)
		}
	}
	return nil
}

// For reports whether the secret may be sent at the position of its placeholder, with such a
// request.
func (sec Secret) For(at egress.Placeholder, to egress.Access) bool {
	return Place(at.Place) == sec.Place && slices.ContainsFunc(sec.Audience, func(host string) bool {
		rule, err := egress.ParseRule(host)
		return err == nil && rule.Matches(to)
	})
}

// validSecretValue refuses a value that cannot be sent in every position of a request, or not be
// found in a response.
func validSecretValue(v Value) error {
	text := v.Reveal()
	switch {
	case len(text) < minSecretBytes:
		return fmt.Errorf("%w: the value has %d bytes; a secret has at least %d", ErrInvalid, len(text), minSecretBytes)
	case strings.ContainsFunc(text, func(r rune) bool { return r > '~' }):
		return fmt.Errorf("%w: the value has characters that are not ASCII, which servers read in different ways", ErrInvalid)
	case strings.ContainsAny(text, "\r\n\x00"):
		return fmt.Errorf("%w: the value holds a line break or a NUL byte", ErrInvalid)
	}
	return validText("the value", text, MaxSecretBytes)
}

// SetSecret stores a secret, and replaces the one with its name. Audience and
// place are bound to the encrypted value: a change in the database makes it
// unreadable.
func (s *Store) SetSecret(ctx context.Context, tenant string, sec Secret, value Value) error {
	sec.Audience = slices.Compact(slices.Sorted(slices.Values(sec.Audience)))
	if err := sec.valid(); err != nil {
		return err
	}
	if err := validSecretValue(value); err != nil {
		return fmt.Errorf("secret %s: %w", sec.Name, err)
	}
	audience, _ := json.Marshal(sec.Audience) // texts cannot fail
	return s.transactFor(ctx, tenant, func(tx eventlog.Tx) error {
		var others int64
		if _, err := eventlog.QueryOne(tx, "SELECT count(*) FROM tenant_secret WHERE tenant = $1 AND name <> $2", []any{tenant, sec.Name}, &others); err != nil {
			return err
		}
		if others >= maxSecrets {
			return fmt.Errorf("%w: tenant %q has %d secrets; at most %d are allowed", ErrInvalid, tenant, others, maxSecrets)
		}
		key, err := s.subkey(tx, tenant, purposeSecret)
		if err != nil {
			return err
		}
		encrypted := encrypt(key, []byte(value.Reveal()), tenant, sec.Name, string(audience), string(sec.Place))
		_, err = tx.Exec(`INSERT INTO tenant_secret (tenant, name, audience, place, encrypted, updated) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant, name) DO UPDATE SET audience = excluded.audience, place = excluded.place, encrypted = excluded.encrypted, updated = excluded.updated`,
			tenant, sec.Name, string(audience), string(sec.Place), encrypted, s.now().UnixNano())
		return err
	})
}

// Secrets returns a tenant's secrets without their values, by name.
func (s *Store) Secrets(ctx context.Context, tenant string) ([]Secret, error) {
	const query = "SELECT " + secretColumns + " FROM tenant_secret WHERE tenant = $1 ORDER BY name"
	return eventlog.ViewAll(ctx, s.db, query, []any{tenant}, func(r eventlog.Row) (Secret, error) {
		sec, _, err := scanSecret(r)
		return sec, err
	})
}

// Secret returns one secret with its value, for the code that puts it into a
// request.
func (s *Store) Secret(ctx context.Context, tenant, name string) (sec Secret, value Value, err error) {
	err = s.db.View(ctx, func(q eventlog.Querier) error {
		var audience string
		var encrypted []byte
		err := q.Query("SELECT "+secretColumns+", encrypted FROM tenant_secret WHERE tenant = $1 AND name = $2", []any{tenant, name}, func(r eventlog.Row) (err error) {
			sec, audience, err = scanSecret(r, &encrypted)
			return err
		})
		if err != nil {
			return err
		}
		if encrypted == nil {
			return notFound("secret", name)
		}
		key, err := s.subkey(q, tenant, purposeSecret)
		if err != nil {
			return err
		}
		text, err := decrypt(key, encrypted, tenant, name, audience, string(sec.Place))
		if err != nil {
			return fmt.Errorf("secret %s of %q: %w", name, tenant, err)
		}
		value = NewValue(string(text))
		return nil
	})
	return sec, value, err
}

const secretColumns = "name, audience, place, updated"

// scanSecret reads secretColumns, the audience also in its stored form, and the further columns of
// the query.
func scanSecret(r eventlog.Row, more ...any) (sec Secret, audience string, err error) {
	var place string
	if err := r.Scan(append([]any{&sec.Name, &audience, &place, &sec.Updated}, more...)...); err != nil {
		return sec, "", err
	}
	sec.Place = Place(place)
	if err := json.Unmarshal([]byte(audience), &sec.Audience); err != nil {
		return sec, "", fmt.Errorf("tenant: audience of secret %s: %w", sec.Name, err)
	}
	return sec, audience, nil
}

// DeleteSecret removes a secret.
func (s *Store) DeleteSecret(ctx context.Context, tenant, name string) error {
	return s.db.Transact(ctx, func(tx eventlog.Tx) error {
		n, err := tx.Exec("DELETE FROM tenant_secret WHERE tenant = $1 AND name = $2", tenant, name)
		if err == nil && n == 0 {
			err = notFound("secret", name)
		}
		return err
	})
}

// Value is a text that must not be shown: an API key, a secret. Printing, logging or encoding it
// results in "[redacted]". [Value.Reveal] is the only access to the text, and the place from which
// to trace the use of a secret. The text is behind a function, because package fmt does not call
// methods of values in unexported fields, and cannot look into a function. The zero value is the
// empty text.
type Value struct{ text func() string }

const redacted = "[redacted]"

// NewValue hides text.
func NewValue(text string) Value { return Value{func() string { return text }} }

// Reveal returns the text.
func (v Value) Reveal() string {
	if v.text == nil {
		return ""
	}
	return v.text()
}

// Format writes "[redacted]" for every verb.
func (v Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText returns "[redacted]", also for JSON.
func (v Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns "[redacted]".
func (v Value) LogValue() slog.Value { return slog.StringValue(redacted) }
