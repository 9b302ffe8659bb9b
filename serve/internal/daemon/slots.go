package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/tenant"
)

// claimOf returns the claim to CPU slots for the work of a tenant.
func claimOf(t tenant.Tenant) guest.Claim {
	return guest.Claim{Tenant: t.ID, Weight: float64(t.Weight)}
}

// slotWait is how long a request waits for a slot of something that takes long.
const slotWait = 10 * time.Second

// enter waits until a request may begin something that takes long. Beside computing, these are
// compiling modules, replaying runs and following runs, each with slots of its own. A tenant that
// has most such requests is refused another one; zero or less sets no bound.
func enter(ctx context.Context, s *guest.Scheduler, t tenant.Tenant, most int) (leave func(), err error) {
	share.Of(ctx).Rest()
	claim := claimOf(t)
	claim.Crowd = max(most, 0)
	slot, err := s.Acquire(guest.WithClaim(ctx, claim))
	if errors.Is(err, guest.ErrCrowd) {
		return nil, rateLimited.because("%d such requests of the tenant are in progress", most).retry(time.Second)
	}
	if err != nil {
		return nil, err
	}
	return slot.Release, nil
}

// recent keeps the values that were used last, at most twice mostRecent. It forgets a value that was not
// used while mostRecent others were.
type recent[K comparable, V any] struct {
	mu       sync.Mutex
	now, old map[K]V // guarded by mu
}

const mostRecent = 10_000

// find returns the value of a key. Without one it keeps and returns what fresh returns, unless that is nil.
func (r *recent[K, V]) find(key K, fresh func() V) (value V, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if value, known = r.now[key]; known {
		return value, true
	}
	if value, known = r.old[key]; !known {
		if fresh == nil {
			return value, false
		}
		value = fresh()
	}
	if r.now == nil || len(r.now) >= mostRecent {
		r.now, r.old = map[K]V{}, r.now
	}
	r.now[key] = value
	return value, known
}

// rates bound how often tenants ask for something.
type rates struct{ limiters recent[string, *rate.Limiter] } // by tenant

// wait takes one of the most requests that a tenant may make in a period, possibly all at once, or
// returns how long to wait for the next one. A negative number sets no bound.
func (s *rates) wait(id string, most int, period time.Duration) time.Duration {
	if most < 0 {
		return 0
	}
	often := rate.Limit(float64(most) / period.Seconds())
	limiter, _ := s.limiters.find(id, func() *rate.Limiter { return rate.NewLimiter(often, most) })
	if limiter.Burst() != most { // the limit has changed
		limiter.SetLimit(often)
		limiter.SetBurst(most)
	}
	if limiter.Allow() {
		return 0
	}
	return max(period/time.Duration(max(most, 1)), time.Millisecond)
}
