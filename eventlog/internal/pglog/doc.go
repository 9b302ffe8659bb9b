// Package pglog keeps an event log in a PostgreSQL database, for any number of hosts.
//
// # The tables
//
// The table eventlog_events holds the six fields of every event, under the names that the
// Starling runtime gave them. The hashed envelope is not stored but rebuilt from the columns:
// every column is covered by the hash. The table run has a row for each run: its entry in a
// listing, its head, and the epoch of its latest writer. Where another program has appended
// events, the events decide; see list.go. The table module holds modules, and the contents of files, by digest. The table
// table_set has the version of the log's own layout and of each set of tables of the host
// ([Log.CreateTables]). [Options] and [Log.Grant] describe who creates the tables, and which
// rights a role needs.
//
// # The life of an event
//
//  1. Append checks the event against the run's cursor in memory and queues it. If the
//     process dies now, the event is lost, and no caller was told that it is durable.
//  2. The writer, one goroutine with one connection, takes everything that has queued up
//     since the batch before and sends it as one statement, which is a transaction. If the
//     process dies now, the database has all of it or nothing.
//  3. The server commits, which syncs its WAL (synchronous_commit is on, or stricter).
//     From here on the event survives both processes and a power cut.
//  4. The barriers (Sync) that waited for it return, and the streams of the run wake up.
//     Other hosts are notified afterwards; polling covers a lost notification.
//
// Package pending has the queue and the barriers.
//
// # Several writers
//
// Appending takes no locks of its own. The statement moves the row of a run from the event
// before the batch to the last event of the batch, under the writer's epoch. If the row is
// elsewhere by then, or the epoch is over, the statement leaves out that run only. The run
// fails with [eventlog.ErrInvalidAppend] or [eventlog.ErrFenced] at its next barrier or
// append.
//
// # Transactions
//
// [Log.Transact] uses the isolation level SERIALIZABLE and retries when the server asks for
// it. A transaction that lost a run to its writer keeps that writer from appending during
// the next attempt (see lockGates).
//
// # Failure
//
// When a connection breaks, the batch is written again on another one until
// [Options].RetryTime is over. That is safe for every outcome of the first attempt: if the
// batch is already stored, the run is not where the batch expects it, and the last event of
// the batch is found. So a server that restarts costs time and nothing else. A standby server
// that takes over costs no more, provided that it has everything that the first one
// acknowledged (synchronous_standby_names). A transaction of the host leaves a mark in the
// table commit_mark, which tells whether a COMMIT without an answer was carried out. What is only
// found in the tables is acknowledged after a COMMIT of its own (see confirm).
//
// The log stops, with [eventlog.ErrLogStopped], when the outcome cannot be found in time, or
// when the server refuses a batch for a reason that has nothing to do with one run (a full
// disk, a missing right, newer tables). Reading continues. A later call that reaches the
// server starts a new writer, which finds everything that was acknowledged.
//
// A server with fsync or full_page_writes off keeps no such promise.
package pglog
