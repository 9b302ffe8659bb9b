// Package pending is the queue between the callers that append to a log and the writer that
// makes events durable. It serves every backend whose writer commits in batches.
//
// # The life of an event
//
//  1. [Runs.Append] compares the event with the position of its run, which is looked up
//     once and kept, and queues it. If the process dies now, the event is lost, and no
//     caller was told that it is durable.
//  2. Once a caller waits for something in the queue, or the queue has much or old events,
//     the backend's writer takes its front ([Runs.Take]) and commits it. The next batch
//     gathers meanwhile; [Runs.Gather] also waits a moment for the callers that were just
//     answered. A full queue makes Append wait.
//  3. The backend reports the outcome: [Runs.Acknowledge], also for runs that another
//     writer has continued, or [Runs.Stop] for the whole log.
//  4. The barriers ([Runs.Sync]) that waited for it return.
//
// # Writers
//
// There is a [Run] for each epoch in which this process writes a run. It is forgotten once
// the run has ended and is durable, or when too many runs have nothing queued. A run that
// has failed stays, so that no later barrier takes its lost events for durable.
//
// The backend decides how a run is looked up, how a batch is committed and what a
// transaction is. It reports what a transaction has done to the runs with [Runs.Committed].
package pending
