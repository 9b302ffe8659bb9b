package daemon

import (
	"context"
	"math"
	"runtime"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/serve/internal/web"
	"github.com/starling-host/starling/serve/tenant"
)

// This file has what bounds how much tenants do at once and how often. CPU time for
// compiling and replaying is shared by schedulers of package guest.

// claimOf says whose share of the CPU slots the work of a tenant takes.
func claimOf(t tenant.Tenant) guest.Claim {
	return guest.Claim{Tenant: t.ID, Weight: float64(t.Weight)}
}

// acquire waits until the work of a tenant may begin.
func acquire(ctx context.Context, s *guest.Scheduler, t tenant.Tenant) (release func(), err error) {
	slot, err := s.Acquire(guest.WithClaim(ctx, claimOf(t)))
	if err != nil {
		return nil, err
	}
	return slot.Release, nil
}

// tenantSlots bound how much of something each tenant has at once.
type tenantSlots struct{ web.Slots }

// take takes one of most slots of a tenant, which release gives back.
func (s *tenantSlots) take(id string, most int) (release func(), err error) {
	release, ok := s.Take(id, most)
	if !ok {
		return nil, rateLimited.because("%d requests of the tenant are at it already", most).retry(time.Second)
	}
	return release, nil
}

// compiling has modules compiled one at a time for each tenant, on a quarter of the
// processors. A tenant that uploads what takes long to compile waits for itself, others
// wait for one module of it at most, and calls do not notice.
type compiling struct {
	waiting tenantSlots
	bodies  *guest.Scheduler // one upload of each tenant is in memory
	slots   *guest.Scheduler // one module of each tenant is compiled at a time
}

func newCompiling() *compiling {
	return &compiling{bodies: guest.NewScheduler(math.MaxInt, 1), slots: guest.NewScheduler(runtime.GOMAXPROCS(0)/4, 1)}
}

// reserve takes a place among the modules of the tenant that wait or are compiled. A
// tenant that has as many as it may is refused.
func (c *compiling) reserve(t tenant.Tenant) (release func(), err error) {
	return c.waiting.take(t.ID, t.Limits.Compiling)
}

// run takes such a place, and waits until a module of the tenant may be compiled.
func (c *compiling) run(ctx context.Context, t tenant.Tenant) (end func(), err error) {
	release, err := c.reserve(t)
	if err != nil {
		return nil, err
	}
	stop, err := acquire(ctx, c.slots, t)
	if err != nil {
		release()
		return nil, err
	}
	return func() { stop(); release() }, nil
}

// replaying has runs replayed by as many CPU slots as the host allows. A tenant has half of
// them at most, and the next free one is for the tenant that has used the least time: one
// that replays long runs waits for itself.
type replaying struct {
	each int // slots that one tenant may have or wait for
	own  tenantSlots
	all  *guest.Scheduler
}

func newReplaying(most int) *replaying {
	return &replaying{each: max(1, most/2), all: guest.NewScheduler(most)}
}

// replayWait is how long a replay waits for a slot.
const replayWait = 10 * time.Second

// start waits for a slot for a tenant.
func (p *replaying) start(ctx context.Context, t tenant.Tenant) (end func(), err error) {
	release, err := p.own.take(t.ID, p.each)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, replayWait)
	defer cancel()
	stop, err := acquire(waiting, p.all, t)
	if err == nil {
		return func() { stop(); release() }, nil
	}
	release()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, busy.because("no slot to replay the run was free within %s", replayWait).retry(2 * time.Second)
}

// rates bound how often tenants ask for something.
type rates struct{ limiters sync.Map } // of *rate.Limiter by tenant; as many as there are tenants

// wait takes one of what a tenant may ask for so many times in a period, which may be all
// at once, or says how long to wait for the next one. Less than zero is no bound.
func (s *rates) wait(id string, most int, period time.Duration) time.Duration {
	if most < 0 {
		return 0
	}
	often := rate.Limit(float64(most) / period.Seconds())
	kept, _ := s.limiters.LoadOrStore(id, rate.NewLimiter(often, most))
	limiter := kept.(*rate.Limiter)
	if limiter.Burst() != most { // the limit has changed
		limiter.SetLimit(often)
		limiter.SetBurst(most)
	}
	if limiter.Allow() {
		return 0
	}
	return max(period/time.Duration(max(most, 1)), time.Millisecond)
}
