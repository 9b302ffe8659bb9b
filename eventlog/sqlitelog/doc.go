// Package sqlitelog keeps an event log in one SQLite file.
//
// # The file
//
// The table eventlog_events holds the six fields of every event, under the
// names that the Starling runtime gave them, so that its tools open our files.
// The envelope that is hashed is not stored but rebuilt from the columns:
// there is no column that a hash does not cover. Rows are in the order of
// their commits (column pos), because a table ordered by run would make every
// run that is in progress dirty a page of its own in each transaction.
//
// The table run is an index over that: what a listing shows, and the head of
// each run, written in the same transaction as the events. Where another program
// has appended events, the events decide; see index.go. The table module
// holds modules by digest; a large one has its bytes in module_piece, written in
// several transactions.
//
// # The life of an event
//
//  1. Append checks it against the run's cursor in memory and queues it. If the
//     process dies now, the event is gone, and nobody was told otherwise.
//  2. The writer, one goroutine with one connection, takes all that has queued
//     up while it was busy with the commit before, and for a moment after, and
//     writes it in one transaction. If the process dies now, all of that or nothing is there.
//  3. COMMIT syncs the WAL (synchronous=FULL). From here on the event survives
//     the process and a power cut.
//  4. The barriers (Sync) that waited for it return, and the streams of the run
//     are woken.
//
// What waits for the writer, and for what it has made durable, is kept by package
// pending.
//
// # The WAL
//
// No commit waits until the WAL is moved into the database: a goroutine with a
// connection of its own does that, in steps of some MiB, while the writer goes on. What
// a step leaves is a few frames at last; those it moves in about a millisecond, under
// the lock that writers take, and the WAL is written from its beginning again. So it has
// about 16 MiB. Where the disk is too slow for both, the writer waits a little, again
// and again, as long as 64 MiB are to be moved. Only a reader that stays open makes the
// WAL longer, such as a backup that is being made or a transaction of somebody else's:
// by what is committed in the meantime.
//
// # Several processes
//
// Any number of processes may write to the file at once, each its own runs. A
// file lock is held around every transaction (see fileLock for why). When two
// processes continue the same run, the unique key (run_id, seq) lets the first
// one win; the other's run fails with [eventlog.ErrInvalidAppend] at its next
// barrier or append, and its log goes on. What another process has committed has all
// streams read the log: the writer notices it in its next transaction, and while there
// is none, somebody looks ten times a second.
//
// # Transactions of the host
//
// The host may keep tables of its own in the file ([Log.CreateTables]). A function
// that it hands to [Log.Transact] waits in the queue like an event; when its turn
// comes, the writer lends it the transaction that it is writing, and waits. So an
// event and a row cost one sync, which others share. When a function fails, the batch
// is written again, with a savepoint around each function so that one that fails
// undoes itself alone. If the process dies before COMMIT, neither event nor row is
// there, and Transact had not returned.
//
// Each writer that is given a run has an epoch ([Log.Fenced]); the last one of a run
// is in the table run_fence. The statements that move the row of a run look there,
// in the same transaction, so what an earlier writer had queued when the run was
// given away is left out, whichever process queued it.
//
// # Failure
//
// The first transaction that fails stops the log for good, with
// [eventlog.ErrLogStopped] for every waiter and every later call; reading goes
// on. Opening the file again finds everything that was acknowledged. A transaction
// after which the file is not at its path has failed, too: a file that was removed,
// moved or replaced takes what it is written and gives it to nobody.
//
// # Files from strangers
//
// Before a file is read, its objects are compared with what we would have
// created; views, triggers and virtual tables are refused. Column types are
// checked in every row, and no value is loaded before its length is known.
package sqlitelog
