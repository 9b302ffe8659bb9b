// Package eventlog keeps runs: append-only sequences of events, where each event carries the
// hash of its predecessor.
//
// # Runs, appends and barriers
//
// A run has one writer, an id that is never used again, and events numbered from 1.
// [EventLog.Append] checks that an event continues its run (number, hash of the
// predecessor, limits) and queues it; it does not wait for the disk. [EventLog.Sync] is the
// barrier: once it returns nil, everything appended to that run before is durable. A caller
// needs a barrier before each effect that leaves the host and before it returns a result. A
// call that reads the clock a hundred times therefore does not wait for a hundred disk
// writes.
//
// The first write that fails stops a log, because the state of the disk is unknown: every
// waiter gets [ErrLogStopped], and each run with queued events is lost to its writer. Later
// calls get the same error until the cause is gone. Then a log in a database starts a new
// writer, which knows only the state of the runs that it reads again. After a failed sync it
// does not ([ErrLogLost]).
//
// # Interfaces
//
// [EventLog] is the interface of every log. A [Store] also keeps modules and can remove runs;
// every backend is a Store. A [Database] is a Store in SQLite or PostgreSQL, in which the host
// can keep tables of its own. Package store opens all of them.
//
// # Evidence and index
//
// The hash of an event covers all six fields of its envelope. Backends store those fields and
// rebuild the envelope, so every column is covered by the hash. Everything else that a backend
// keeps (listings, and the head of each run) is an index: it is derived from the events and
// checked by [CheckRun]. Other programs append to the same tables and do not update the index,
// so where the index lacks events, a backend uses the events.
//
// [Check] proves that a sequence is a run: the eight invariants D1 to D8, and in strict
// mode the rules S1 to S7 as well. [CheckRun] also compares the last event with the head in
// the index, because nothing in the chain covers the last event. Neither can detect a
// history that was rewritten from some event on, all hashes included; that takes a
// signature kept elsewhere.
//
// The payloads of a run may be encrypted, see [event.Encrypted]. The chain covers the stored
// events, so [Check] needs no key for the visible part. After the key was destroyed, the run is
// still valid.
//
// # What Append refuses
//
// Append refuses what [Check] would refuse for its size, depth, encoding, kind or place in the
// chain, so a log never holds what its own reader rejects. Only [Check] checks that turns and
// calls are paired.
package eventlog
