package daemon

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/starling-host/starling/host/tenant"
	"github.com/starling-host/starling/host/turns"
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
		req.Request = r.WithContext(context.WithValue(turns.For(r.Context(), claimOf(a.Tenant)), accountKey{}, a))
		req.view, err = d.View(a)
		return req, err
	}
	return req, nil
}

// Authenticate returns the account of the tenant whose key the request has. The error
// is the same whether there is no key, one that nobody has, or one of a tenant that
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

// claimOf says whose turns a tenant's work takes.
func claimOf(t tenant.Tenant) turns.Claim {
	return turns.Claim{Tenant: t.ID, Weight: float64(t.Weight)}
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

// hasKey returns nil if the request has one of the operator's keys, of which empty ones
// are nobody's. It compares hashes, so that the time says nothing about a key.
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

// rates bound how often tenants ask for something.
type rates struct {
	mu       sync.Mutex               // guards limiters
	limiters map[string]*rate.Limiter // by tenant; as many as there are tenants
}

// wait takes one of what a tenant may ask for so many times in a period, which may be all
// at once, or says how long to wait for the next one. Less than zero is no bound.
func (s *rates) wait(id string, most int, period time.Duration) time.Duration {
	if most < 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	limiter := s.limiters[id]
	if limiter == nil || limiter.Burst() != most {
		limiter = rate.NewLimiter(rate.Limit(float64(most)/period.Seconds()), most)
		s.limiters[id] = limiter
	}
	if limiter.Allow() {
		return 0
	}
	return max(period/time.Duration(max(most, 1)), time.Millisecond)
}
