package daemon

import (
	"context"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/tenant"
)

// policyDocument is what there is to say of a tenant's policy beside its text.
type policyDocument struct {
	Version int    `json:"version"`
	Digest  string `json:"digest"` // as decisions name it, see [policy.Policy.Digest]
	Held    bool   `json:"held"`
	SetAt   string `json:"set_at"`
}

const yamlType = "application/yaml"

// getPolicy shows the policy as it was written.
func (d *Daemon) getPolicy(w http.ResponseWriter, r *request) error {
	p, err := d.config.Tenants.Policy(r.Context(), r.tenant.ID)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", yamlType)
	h.Set("ETag", tagOf(p))
	h.Set("Allow", "GET, PUT, DELETE")
	if p.Held {
		h.Set("Allow", "GET")
	}
	same := func(tag string) bool { return tag == "*" || strings.TrimPrefix(tag, "W/") == tagOf(p) } // the weak comparison of RFC 9110
	if slices.ContainsFunc(tagsOf(r.Header.Values("If-None-Match")), same) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte(p.Text)) // the client may have gone
	return nil
}

// tagsOf returns the members of a list (RFC 9110, section 5.6.1). A comma within a tag ends it too;
// the parts cannot match one of our tags.
func tagsOf(fields []string) (tags []string) {
	for one := range strings.SplitSeq(strings.Join(fields, ","), ",") {
		if one = strings.TrimSpace(one); one != "" {
			tags = append(tags, one)
		}
	}
	return tags
}

// putPolicy stores a policy sent by the tenant. It applies from the next run on.
func (d *Daemon) putPolicy(w http.ResponseWriter, r *request) error {
	seen, err := seenTags(r.Request)
	if err != nil {
		return err
	}
	text, err := d.readBody(w, r.Request, yamlType, tenant.MaxOwnPolicyBytes, share.Document)
	if err != nil {
		return err
	}
	if err := d.config.Tenants.MayChangePolicy(r.Context(), r.tenant.ID, string(text), seen...); err != nil {
		return err
	}
	parsed, err := policy.Parse("policy", text)
	if wrong, ok := errors.AsType[*config.Error](err); ok {
		p := badPolicy.because("%s", wrong.Msg).hint(wrong.Hint)
		p.Line, p.Column, p.Excerpt = wrong.Line, wrong.Column, wrong.Excerpt()
		return p
	} else if err != nil {
		return err
	}
	p, err := d.config.Tenants.ChangePolicy(r.Context(), r.tenant.ID, string(text), seen...)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", tagOf(p))
	writeJSON(w, http.StatusOK, policyDocument{
		Version: p.Version, Digest: parsed.Digest().String(), Held: p.Held, SetAt: p.Created.UTC().Format(time.RFC3339Nano),
	})
	return nil
}

// deletePolicy leaves the tenant without a policy, so that its tools reach nothing.
func (d *Daemon) deletePolicy(w http.ResponseWriter, r *request) error {
	seen, err := seenTags(r.Request)
	if err != nil {
		return err
	}
	if _, err := d.config.Tenants.Policy(r.Context(), r.tenant.ID); err != nil {
		return err
	}
	if _, err := d.config.Tenants.ChangePolicy(r.Context(), r.tenant.ID, "", seen...); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// tagOf returns the entity tag of a policy.
func tagOf(p tenant.Policy) string { return `"` + p.Digest.String() + `"` }

// seenTags returns the digests of the policies that the sender has seen, one of which must be the
// current one: those in If-Match, or none if If-None-Match requires that there is no policy. A
// request without either could overwrite a policy that its sender has not seen.
func seenTags(r *http.Request) (seen []canon.Hash, err error) {
	match, none := tagsOf(r.Header.Values("If-Match")), tagsOf(r.Header.Values("If-None-Match"))
	switch {
	case len(match) == 0 && slices.Equal(none, []string{"*"}):
		return nil, nil
	case len(match) == 0 || len(none) > 0 || slices.Contains(match, "*"):
		return nil, unconditional.plain().hint("send If-Match with the ETag of the policy that you have seen, or If-None-Match: * if there is no policy")
	}
	for _, tag := range match {
		digest, err := hex.DecodeString(strings.Trim(tag, `"`))
		if err == nil && len(digest) == len(canon.Hash{}) && tag == `"`+hex.EncodeToString(digest)+`"` { // a weak tag cannot be used for a change
			seen = append(seen, canon.Hash(digest))
		}
	}
	if len(seen) == 0 {
		return nil, otherVersion.because("If-Match has no ETag of a policy")
	}
	return seen, nil
}

// nothing returns the policy of a tenant without one: no request is allowed.
var nothing = sync.OnceValue(policy.None)

// connectionLimits bound the simultaneous connections of a tenant's tools. The tenant's policies
// decide about the requests. A tenant is forgotten when none of its modules is loaded any more.
type connectionLimits struct {
	mu sync.Mutex
	of map[string]weak.Pointer[egress.Slots] // by tenant, shared by all its modules; guarded by mu
}

// client returns a client for a module of a tenant. A negative limit sets no bound.
func (c *connectionLimits) client(t tenant.Tenant) *egress.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	slots := c.of[t.ID].Value()
	if slots == nil {
		maps.DeleteFunc(c.of, func(_ string, unused weak.Pointer[egress.Slots]) bool { return unused.Value() == nil })
		if c.of == nil {
			c.of = map[string]weak.Pointer[egress.Slots]{}
		}
		slots = egress.NewSlots(t.Limits.Connections)
		c.of[t.ID] = weak.Make(slots)
	}
	return egress.New(egress.Config{Slots: slots})
}

// allow has the limit of a tenant whose row was read just now hold, also for modules
// that were loaded before.
func (c *connectionLimits) allow(t tenant.Tenant) {
	c.mu.Lock()
	slots := c.of[t.ID].Value()
	c.mu.Unlock()
	if slots != nil {
		slots.Allow(t.Limits.Connections)
	}
}

// secrets are the secrets of one tenant. Where they may be sent depends on the policies, and on the
// restrictions stored with each.
type secrets struct {
	store  *tenant.Store
	tenant string
}

// find returns a secret and whether the tenant has it.
func (s secrets) find(ctx context.Context, name string) (sec tenant.Secret, value tenant.Value, found bool, err error) {
	if sec, value, err = s.store.Secret(ctx, s.tenant, name); errors.Is(err, tenant.ErrNotFound) {
		return sec, value, false, nil
	}
	return sec, value, err == nil, err
}

// Secret implements [policy.Secrets].
func (s secrets) Secret(ctx context.Context, name string) ([]byte, bool, error) {
	_, value, found, err := s.find(ctx, name)
	return []byte(value.Reveal()), found, err
}

// Same implements [policy.Keeper].
func (s secrets) Same(ctx context.Context, name string, since time.Time) (bool, error) {
	sec, _, found, err := s.find(ctx, name)
	return found && sec.Updated.Before(since), err
}

// MaySend implements [policy.Keeper].
func (s secrets) MaySend(ctx context.Context, at egress.Placeholder, to egress.Access) (bool, error) {
	sec, _, found, err := s.find(ctx, at.Name)
	return found && sec.For(at, to), err
}
