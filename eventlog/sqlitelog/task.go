package sqlitelog

import (
	"context"

	"github.com/starling-host/starling/eventlog/internal/pending"
)

// task is what the writer does between events, in the transaction that writes
// them, with somebody waiting for it.
type task interface {
	pending.Task

	// do works inside the transaction, possibly several times, each time on what
	// the file was before. An error stops the log.
	do(w *writer) error
	// finish tells who waits: with nil once all of it is durable, otherwise with
	// what has stopped the log. The caller holds the lock of Log.runs.
	finish(l *Log, err error)
}

func (p *pruning) finish(_ *Log, err error) { p.done <- err }
func (p *pruning) Size() int                { return 0 }

// perform hands the task to the writer and waits until it is durable, or until ctx
// ends; then the task is still on its way.
func (l *Log) perform(ctx context.Context, t task, done <-chan error) error {
	if err := l.queue.Put(ctx, item{Task: t}); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
