// Package pending is what stands between those who append to a log and the writer
// that makes it durable, for any backend whose writer commits in batches.
//
// # The life of an event
//
//  1. [Runs.Append] compares it with where its run stands, which is looked up once
//     and kept, and puts it into a [Queue]. If the process dies now, the event is gone,
//     and nobody was told otherwise.
//  2. Once somebody waits for anything in the queue, or much or old events are in it, the
//     backend's writer takes the front of the queue ([Queue.Take]) and commits it,
//     while the next batch gathers; to those that it has just answered it may give a
//     moment ([Queue.Gather]). A full queue makes Append wait.
//  3. The backend tells what has become of it: [Runs.Durable], [Run.GiveUp] for a run
//     that somebody else has continued, or [Runs.Stop] for the whole log.
//  4. The barriers ([Runs.Sync]) that waited for it return.
//
// # Writers
//
// A run has a [Run] for each epoch in which this process writes it; a later one is that
// of a later writer. It is forgotten once the run has ended and is durable, or when too
// many have nothing on their way. One that has failed stays, so that no later barrier
// takes its lost events for durable.
//
// A backend keeps to itself how it looks up a run, how many writers it has and how they
// commit, and what a transaction is; it says what a transaction has done to the runs by
// [Runs.Fenced] and [Runs.Moved].
package pending
