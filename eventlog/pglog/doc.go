// Package pglog keeps an event log in a PostgreSQL database, for any number of hosts.
//
// # The tables
//
// The table eventlog_events holds the six fields of every event, under the names that
// the Starling runtime gave them. The envelope that is hashed is not stored but rebuilt
// from the columns: there is no column that a hash does not cover. The table run has a
// row for each run: what a listing shows, the head, and the epoch of the writer that the
// run was given to last. Where another program has appended events, the events decide;
// see index.go. The table module holds modules by digest, and table_set says
// which tables of the host there are ([Log.CreateTables]) and which layout the log's own
// have. Who creates them, and what a role must be allowed to, is in [Options],
// [InstallSchema] and [Log.Grant].
//
// # The life of an event
//
//  1. Append checks it against the run's cursor in memory and queues it. If the
//     process dies now, the event is gone, and nobody was told otherwise.
//  2. One of up to three lanes, each a goroutine with a connection, takes all that has
//     queued up while it was busy with the batch before, and a moment after, and sends it
//     as one statement, which is a transaction. If the process dies now, all of that or
//     nothing will be there. A run stays with its lane while anything of it is on its way.
//  3. The server commits, which syncs its WAL (synchronous_commit is on, or stricter).
//     From here on the event survives both processes and a power cut.
//  4. The barriers (Sync) that waited for it return, and the streams of the run are
//     woken. Other hosts hear of it by a notification that is sent afterwards; what is
//     lost of these they find by polling.
//
// What waits for the lanes, and for what they have made durable, is kept by package
// pending.
//
// # Several writers
//
// No locks are taken to append. The statement moves the row of a run from the event
// that the batch continues to the one that it ends with, under the writer's epoch; when
// the row is elsewhere by then, or the epoch is over, it leaves out that run and no
// other one. The run fails with [eventlog.ErrInvalidAppend] or [eventlog.ErrFenced] at
// its next barrier or append.
//
// # Transactions
//
// [Log.Transact] runs at the isolation level SERIALIZABLE, and again when the server
// asks for it. A transaction that could not get at a run because it was being written
// all the time has its next attempt while nobody appends to it (see Log.lockGates).
//
// # Failure
//
// When a connection breaks, the batch that was on its way is written again on another
// one, and again until [Options].Patience is over. That is safe whatever has become of
// the first attempt, since a batch that is there already leaves nothing to do: the run
// is found not to be where the batch expects it, and the event that the batch ends with
// is found stored. So a server that starts anew costs time and nothing else; neither
// does a standby server that takes over, provided that it has what the first one had
// acknowledged (synchronous_standby_names). A transaction of the host leaves a mark in the
// table commit_mark, by which it is found out what has become of a COMMIT that was not
// answered.
//
// What cannot be found out in time, and what the server refuses for a reason that has
// nothing to do with one run (a full disk, a missing right, newer tables), stops the log
// for good with [eventlog.ErrLogStopped]. Reading goes on. Opening the log again finds
// everything that was acknowledged.
//
// A server that runs with fsync or full_page_writes off keeps no such promise.
package pglog
