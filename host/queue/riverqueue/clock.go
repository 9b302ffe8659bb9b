package riverqueue

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// serverClock tells the time of the server. Whether a process is alive is for all to
// agree upon, and their own clocks may differ by more than a lease, or be set. Between
// two answers of the server this machine's monotonic clock goes on, which nobody sets.
type serverClock struct {
	pool *pgxpool.Pool
	last atomic.Pointer[reading]
}

// reading is what the server said, and when.
type reading struct{ server, here time.Time }

// Now implements [queue.Clock].
func (c *serverClock) Now() time.Time {
	r := c.last.Load()
	return r.server.Add(time.Since(r.here))
}

// After implements [queue.Clock].
func (c *serverClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// ask takes the server to have looked in the middle of the time that its answer took.
func (c *serverClock) ask(ctx context.Context) error {
	asked := time.Now()
	var server time.Time
	if err := c.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&server); err != nil {
		return fmt.Errorf("riverqueue: the server's clock: %w", err)
	}
	c.last.Store(&reading{server, asked.Add(time.Since(asked) / 2)})
	return nil
}

// keep asks again and again until ctx ends. While the server does not answer, what it
// said last holds.
func (c *serverClock) keep(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			limited, cancel := context.WithTimeout(ctx, every)
			_ = c.ask(limited)
			cancel()
		case <-ctx.Done():
			return
		}
	}
}
