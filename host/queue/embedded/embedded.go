// Package embedded is a durable queue in the database of the events: it needs
// nothing beside the log. What this process enqueues is handed out in the very
// transaction that stores it, when a worker is free; what other processes on the
// same database enqueue is found by polling.
package embedded

import (
	"context"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/queue/internal/desk"
)

// Open opens the queue in the log's database, and makes its tables. It holds
// nothing that would have to be closed; the log is closed after Work has returned.
func Open(ctx context.Context, log eventlog.Transactor, cfg queue.Config) (queue.Queue, error) {
	cfg, err := cfg.Resolve()
	if err != nil {
		return nil, err
	}
	return desk.New(ctx, log, cfg, desk.Hooks{})
}
