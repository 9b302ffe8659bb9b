//go:build !js

package agentfile

import (
	"encoding/json"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/config"
)

// What package yaml has of values.
type (
	word   = config.Word
	period = config.Period
	count  = config.Count
	size   = config.Size
)

// positive is a whole number from 1, and attempts from 0, as far as an int32 goes.
type (
	positive int
	attempts int
)

// DecodeYAML implements [config.Decoder].
func (p *positive) DecodeYAML(n *config.Node) error {
	if err := (*attempts)(p).DecodeYAML(n); err != nil {
		return err
	}
	if *p == 0 {
		return n.Errorf("leave the key out for no bound", "this must be 1 or more")
	}
	return nil
}

// DecodeYAML implements [config.Decoder].
func (a *attempts) DecodeYAML(n *config.Node) error {
	if err := n.Decode((*int)(a)); err != nil {
		return err
	}
	if *a > math.MaxInt32-1 {
		return n.Errorf("", "this must be below 2^31-1")
	}
	return nil
}

// money is dollars, more than none.
type money float64

// DecodeYAML implements [config.Decoder].
func (m *money) DecodeYAML(n *config.Node) error {
	if err := n.Decode((*float64)(m)); err != nil {
		return err
	}
	if *m == 0 {
		return n.Errorf("leave the key out for no bound", "this must be more than 0")
	}
	return nil
}

// address is the URL of a server.
type address string

// DecodeYAML implements [config.Decoder].
func (a *address) DecodeYAML(n *config.Node) error {
	if err := n.Decode((*string)(a)); err != nil {
		return err
	}
	u, err := url.Parse(string(*a))
	if err == nil && u.User != nil {
		return n.Hidden().Errorf(hintKey, "this is an address with a password in it")
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return n.Errorf("", "this must be an address such as https://host/v1")
	}
	return nil
}

// variable is the name of an environment variable.
type variable string

const hintKey = `put the secret into an environment variable, and the name of the variable here, as in: api_key_env: OPENAI_API_KEY`

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// DecodeYAML implements [config.Decoder].
func (v *variable) DecodeYAML(n *config.Node) error {
	text, ok := n.Text()
	switch {
	case ok && looksLikeKey(text):
		return n.Hidden().Errorf(hintKey, "this looks like a key, and must be the name of an environment variable")
	case !ok || !variableName.MatchString(text):
		return n.Hidden().Errorf("write the name alone, as in: api_key_env: OPENAI_API_KEY", "this must be the name of an environment variable")
	}
	*v = variable(text)
	return nil
}

// keyPrefixes begin the keys of vendors.
var keyPrefixes = []string{"sk-", "sk_", "gsk_", "AIza", "AKIA", "ASIA", "ABSK", "xai-", "hf_", "tgp_", "pplx-", "ghp_", "Bearer "}

// looksLikeKey guesses whether text is a secret. Keys begin with a mark of their
// vendor, or are many letters and digits. Names of variables are words between
// underscores, in upper case or in lower.
func looksLikeKey(s string) bool {
	if slices.ContainsFunc(keyPrefixes, func(prefix string) bool { return strings.HasPrefix(s, prefix) }) {
		return true
	}
	words := strings.Contains(s, "_") && (strings.ToUpper(s) == s || strings.ToLower(s) == s)
	return len(s) >= 24 && !words && strings.ContainsAny(s, "0123456789") && alphanumeric.MatchString(s)
}

var alphanumeric = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

// object is a map with any content.
type object struct{ json json.RawMessage }

// DecodeYAML implements [config.Decoder].
func (o *object) DecodeYAML(n *config.Node) (err error) {
	if err := n.Expect(config.Map); err != nil {
		return err
	}
	_, o.json, err = n.JSON()
	return err
}

// cbor returns the map as the log has it, nil if it has nothing in it.
func (o object) cbor() canon.Raw {
	if len(o.json) <= len("{}") {
		return nil
	}
	raw, err := canon.FromJSON(o.json)
	if err != nil {
		panic(err) // it was made by canon
	}
	return raw
}
