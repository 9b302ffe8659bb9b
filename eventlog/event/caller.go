package event

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Caller is who asked for a run. The host itself knows the first four fields; the others are
// claims, see [ParseClaims]. No decision depends on any of them.
type Caller struct {
	KeyID   string `cbor:"key_id,omitempty"` // of the API key that authenticated the request
	Client  string `cbor:"client,omitempty"` // name of the MCP client, as it introduced itself
	Version string `cbor:"version,omitempty"`
	Session string `cbor:"session,omitempty"` // of the client with the host; random

	Issuer      string   `cbor:"issuer,omitempty"`      // "iss" of an OAuth token (RFC 9068)
	Subject     string   `cbor:"subject,omitempty"`     // its "sub"
	Actor       string   `cbor:"actor,omitempty"`       // "sub" of its "act" (RFC 8693)
	TraceParent string   `cbor:"traceparent,omitempty"` // W3C Trace Context
	Delegation  [][]byte `cbor:"delegation,omitempty"`  // SHA-256 of documents that delegate to the caller
}

// Bounds of a [Caller].
const (
	maxCallerText  = 1024 // bytes
	maxDelegations = 8
)

// Check returns why a run cannot record the caller, or nil.
func (c Caller) Check() error {
	for _, text := range []string{c.KeyID, c.Client, c.Version, c.Session, c.Issuer, c.Subject, c.Actor, c.TraceParent} {
		if len(text) > maxCallerText || !utf8.ValidString(text) {
			return fmt.Errorf("a text of it is not UTF-8 of at most %d bytes", maxCallerText)
		}
	}
	if len(c.Delegation) > maxDelegations || slices.ContainsFunc(c.Delegation, func(d []byte) bool { return len(d) != sha256.Size }) {
		return fmt.Errorf("delegation is not a list of at most %d SHA-256 digests", maxDelegations)
	}
	return nil
}

// IsZero reports whether nothing is known of the caller.
func (c Caller) IsZero() bool {
	return c.Delegation == nil && c.KeyID+c.Client+c.Version+c.Session+c.Issuer+c.Subject+c.Actor+c.TraceParent == ""
}

// String names the caller in one line, for people: who acts for whom, by which client. What the
// caller says of itself is quoted, so that none of it looks like what the host knows.
func (c Caller) String() string {
	var b bytes.Buffer
	for _, part := range []struct{ format, value string }{
		{" key %s", c.KeyID}, {" %q", c.Client}, {" %q", c.Version}, {" session %s", c.Session}, {" for %q", c.Subject}, {" of %q", c.Issuer}, {" by %q", c.Actor},
	} {
		if part.value != "" {
			fmt.Fprintf(&b, part.format, part.value)
		}
	}
	if n := len(c.Delegation); n > 0 {
		fmt.Fprintf(&b, " delegations %d", n)
	}
	return string(bytes.TrimSpace(b.Bytes()))
}

// ParseClaims reads what a caller claims of itself: a JSON object with "issuer", "subject", "actor"
// and "delegation", an array of SHA-256 digests in hexadecimal. All are optional, and other members
// are refused.
func ParseClaims(doc []byte) (Caller, error) {
	var claims struct {
		Issuer, Subject, Actor string
		Delegation             []string
	}
	decoder := json.NewDecoder(bytes.NewReader(doc))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&claims); err != nil {
		return Caller{}, errors.New("caller: want an object with the texts issuer, subject and actor, and delegation, an array of SHA-256 digests in hexadecimal; all are optional")
	}
	c := Caller{Issuer: claims.Issuer, Subject: claims.Subject, Actor: claims.Actor}
	for _, text := range claims.Delegation {
		digest, err := hex.DecodeString(text)
		if err != nil {
			digest = nil // which is no SHA-256
		}
		c.Delegation = append(c.Delegation, digest)
	}
	if err := c.Check(); err != nil {
		return Caller{}, fmt.Errorf("caller: %w", err)
	}
	return c, nil
}
