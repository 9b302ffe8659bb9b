package daemon

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/serve/tenant"
)

// admit lets a request in: with a key if the route asks for one, and as long as
// the tenant does not ask too often.
func (d *Daemon) admit(route Route, r *http.Request) (*request, error) {
	req := &request{Request: r}
	switch route.Access {
	case ForScraper:
		if d.config.OpenMetrics {
			return req, nil
		}
		return req, hasKey(r, d.config.MetricsKey, d.config.OperatorKey)
	case ForOperator:
		return req, d.AuthenticateOperator(r)
	case ForTenants:
		a, err := d.Authenticate(r)
		if err != nil {
			return nil, err
		}
		if most, more := connOf(r.Context()).crowded(); more {
			return nil, rateLimited.because("%d requests of the tenant are in progress", most).retry(time.Second)
		}
		if wait := d.requests.wait(a.ID, a.Limits.RequestsPerSecond, time.Second); wait > 0 {
			return nil, rateLimited.plain().retry(wait)
		}
		req.tenant = a
		req.Request = r.WithContext(context.WithValue(guest.WithClaim(r.Context(), claimOf(a.Tenant)), accountKey{}, a))
		req.view, err = d.View(a)
		return req, err
	}
	return req, nil
}

// Authenticate returns the account of the tenant whose key the request has. The error
// is the same whether there is no key, an unknown key, or one of a tenant that
// is suspended. It can be written with [WriteError].
func (d *Daemon) Authenticate(r *http.Request) (Account, error) {
	key, ok := bearer(r)
	if !ok {
		return Account{}, noKey()
	}
	var a Account
	who, err := d.config.Tenants.Authenticate(r.Context(), key)
	if err == nil {
		a, err = d.accountOf(r.Context(), who.Tenant)
	}
	if errors.Is(err, tenant.ErrUnauthorized) || errors.Is(err, tenant.ErrErased) { // just now
		return Account{}, noKey()
	}
	if err == nil {
		connOf(r.Context()).claim(a.ID)
	}
	return a, err
}

func noKey() *Problem {
	p := unauthorized.plain().hint("send it as Authorization: Bearer KEY")
	p.challenge = true
	return p
}

// bearer returns the key of a request.
func bearer(r *http.Request) (string, bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, key, found := strings.Cut(values[0], " ")
	return strings.TrimSpace(key), found && strings.EqualFold(scheme, "Bearer")
}

// hasKey returns nil if the request has one of the keys, of which empty ones match nothing.
// It compares hashes, so that the time reveals nothing about a key.
func hasKey(r *http.Request, keys ...string) error {
	key, _ := bearer(r)
	got := sha256.Sum256([]byte(key))
	for _, k := range keys {
		want := sha256.Sum256([]byte(k))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 && k != "" {
			connOf(r.Context()).claim(":operator") // no id of a tenant
			return nil
		}
	}
	return noKey()
}
