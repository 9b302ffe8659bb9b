package daemon

import (
	"context"
	"runtime"
	"sync"

	"github.com/starling-host/starling/host/tenant"
	"github.com/starling-host/starling/host/turns"
)

// compiling has modules compiled one at a time for each tenant, and all of them on a
// quarter of the processors, in turns: a tenant that uploads what takes long to compile
// waits for itself, others wait for one module of it at most, and calls do not notice.
type compiling struct {
	waiting seats
	all     *turns.Line // of all tenants

	mu  sync.Mutex
	own map[string]chan struct{} // by tenant, as many as there are; has an element while one compiles
}

func newCompiling() *compiling {
	return &compiling{
		waiting: seats{taken: map[string]int{}}, all: turns.New(runtime.GOMAXPROCS(0) / 4),
		own: map[string]chan struct{}{},
	}
}

// stand takes a place among the modules of the tenant that wait or are compiled. A
// tenant that has as many as it may is refused.
func (c *compiling) stand(t tenant.Tenant) (leave func(), err error) {
	return c.waiting.enter(t.ID, t.Limits.Compiling)
}

// enter takes a place and waits for the tenant's turn.
func (c *compiling) enter(ctx context.Context, t tenant.Tenant) (leave func(), err error) {
	away, err := c.stand(t)
	if err != nil {
		return nil, err
	}
	end, err := c.turn(ctx, t)
	if err != nil {
		away()
		return nil, err
	}
	return func() { end(); away() }, nil
}

// turn waits for the turn of a tenant, who has a place.
func (c *compiling) turn(ctx context.Context, t tenant.Tenant) (end func(), err error) {
	own := c.ownTurn(t.ID)
	select {
	case own <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	turn, err := c.all.Take(turns.For(ctx, claimOf(t)))
	if err != nil {
		<-own
		return nil, err
	}
	return func() { turn.End(); <-own }, nil
}

// ownTurn returns what holds an element while a module of the tenant compiles.
func (c *compiling) ownTurn(id string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own[id] == nil {
		c.own[id] = make(chan struct{}, 1)
	}
	return c.own[id]
}
