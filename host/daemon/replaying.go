package daemon

import (
	"context"
	"time"

	"github.com/starling-host/starling/host/tenant"
	"github.com/starling-host/starling/host/turns"
)

// replaying has runs executed again in turns. A tenant has half of the turns at most,
// and of those who wait the next one is for who has taken the least time: a tenant
// that replays one long run after the other waits for itself.
type replaying struct {
	each int // turns that one tenant may have or wait for
	own  seats
	all  *turns.Line
}

func newReplaying(most int) *replaying {
	return &replaying{each: max(1, most/2), own: seats{taken: map[string]int{}}, all: turns.New(most)}
}

// replayPatience is how long a replay waits for its turn. Whoever waits longer is told
// to come again.
const replayPatience = 10 * time.Second

// enter waits for a turn of the tenant.
func (p *replaying) enter(ctx context.Context, t tenant.Tenant) (leave func(), err error) {
	away, err := p.own.enter(t.ID, p.each)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, replayPatience)
	defer cancel()
	turn, err := p.all.Take(turns.For(waiting, claimOf(t)))
	switch {
	case ctx.Err() != nil && err != nil:
		away()
		return nil, ctx.Err()
	case err != nil:
		away()
		return nil, busy.because("no turn to execute the run again has come within %s", replayPatience).retry(2 * time.Second)
	}
	return func() { turn.End(); away() }, nil
}
