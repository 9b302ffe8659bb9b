// Package sqlitelog keeps an event log in one SQLite file.
//
// # The file
//
// The table eventlog_events holds the six fields of every event, under the names that the
// Starling runtime gave them, so that its tools open our files. The hashed envelope is not
// stored but rebuilt from the columns: every column is covered by the hash. Rows are in the
// order of their commits (column pos). In a table ordered by run, every run in progress
// would change a page of its own in each transaction.
//
// The table run is an index over the events: each run's entry in a listing and its head,
// written in the same transaction as the events. Where another program has appended events,
// the events decide; see list.go. The table module holds modules, and the contents of
// files, by digest. A large module has its bytes in module_piece, written in several transactions. Modules and
// pieces are zstd frames; see dblog.Pack.
//
// # The life of an event
//
//  1. Append checks the event against the run's cursor in memory and queues it. If the
//     process dies now, the event is lost, and no caller was told that it is durable.
//  2. The writer, one goroutine with one connection, takes everything that has queued up
//     since the commit before and writes it in one transaction. If the process dies now,
//     the file has all of it or nothing.
//  3. COMMIT syncs the WAL (synchronous=FULL). From here on the event survives the process
//     and a power cut.
//  4. The barriers (Sync) that waited for it return, and the streams of the run wake up.
//
// Package pending has the queue and the barriers.
//
// # Checkpoints
//
// No commit waits for a checkpoint. A goroutine with a connection of its own moves the WAL
// into the database, in steps of some MiB, while the writer continues. The last few frames
// are moved under the lock of all writers, which takes about a millisecond; then the WAL
// restarts from its beginning. So the WAL has about 16 MiB. On a disk that is too slow for
// both, the writer keeps waiting a little while 64 MiB are still to be moved. Only a reader
// that stays open, such as a backup, makes the WAL longer: by everything committed
// meanwhile.
//
// # Several processes
//
// Any number of processes may write to the file at once, each its own runs. A file lock is
// held around every transaction, see fileLock. When two processes continue the same run, the
// unique key (run_id, seq) lets the first one win; in the other, the run fails with
// [eventlog.ErrInvalidAppend] at its next barrier or append, and the log continues. The
// writer notices commits of other processes in its next transaction, and all streams then
// read the log; between transactions a poll looks ten times a second.
//
// # Transactions of the host
//
// The host may keep tables of its own in the file ([Log.CreateTables]). A function that is
// passed to [Log.Transact] waits in the queue like an event. The writer then lends it the
// transaction that it is writing, and waits, so an event and a row cost one sync, which
// others share. When a function fails, the batch is written again with a savepoint around
// each function, so that only the failed one is undone. If the process dies before COMMIT,
// neither event nor row is there, and Transact has not returned.
//
// Each writer to which a run is given has an epoch ([Log.Fenced]); the table run_fence has
// the last epoch of each run. The statements that update the row of a run compare it in the
// same transaction. So the queued events of an earlier writer, in any process, are left out.
//
// # Failure
//
// The first transaction that fails stops the log: every waiter and every later call gets
// [eventlog.ErrLogStopped]. Reading continues. A transaction also fails if the file is no
// longer at its path afterwards: it wrote to a file that no later process opens. A later
// call checks whether the file can be written to again, and then starts a new writer, with a
// new connection, which finds everything that was acknowledged. After a failed sync, or with
// another file at the path, only a new process can write ([eventlog.ErrLogLost]).
//
// # Untrusted files
//
// Before a file is read, its objects are compared with ours; views, triggers and virtual
// tables are refused. Column types are checked in every row, and no value is loaded before
// its length is known.
package sqlitelog
