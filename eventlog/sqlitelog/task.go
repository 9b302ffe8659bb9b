package sqlitelog

import (
	"context"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// item is one entry of the queue: an event, or a task.
type item struct {
	run   *run
	row   int64 // of the run, if it was read from the file
	event event.Event
	after eventlog.RunSummary // of the run, with this event
	task  task
}

func (it item) size() int {
	if it.task != nil {
		return it.task.size()
	}
	return len(it.event.Payload)
}

// task is what the writer does between events, in the transaction that writes
// them, with somebody waiting for it.
type task interface {
	// do works inside the transaction, possibly several times, each time on what
	// the file was before. An error stops the log.
	do(w *writer) error
	// finish tells who waits: with nil once all of it is durable, otherwise with
	// what has stopped the log. The caller holds Log.mu.
	finish(l *Log, err error)
	// size is how many bytes of memory the task keeps busy.
	size() int
}

func (m *module) finish(_ *Log, err error) { m.done <- err }
func (m *module) size() int                { return len(m.wasm) }

func (p *pruning) finish(_ *Log, err error) { p.done <- err }
func (p *pruning) size() int                { return 0 }

// perform hands the task to the writer and waits until it is durable, or until ctx
// ends; then the task is still on its way.
func (l *Log) perform(ctx context.Context, t task, done <-chan error) error {
	if err := l.enqueue(ctx, item{task: t}); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
