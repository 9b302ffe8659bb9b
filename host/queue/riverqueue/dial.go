package riverqueue

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/starling-host/starling/eventlog/pglog"
	"github.com/starling-host/starling/host/queue"
)

// Dial is [Open] with a pool of its own at the address of the log's database.
// Release closes the pool, once Work has returned.
func Dial(ctx context.Context, log *pglog.Log, dsn string, cfg queue.Config) (q queue.Queue, release func(), err error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, nil, fmt.Errorf("riverqueue: %w", err)
	}
	if q, err = Open(ctx, log, pool, cfg); err != nil {
		pool.Close()
		return nil, nil, err
	}
	return q, pool.Close, nil
}
