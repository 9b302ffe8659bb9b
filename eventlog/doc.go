// Package eventlog keeps runs: append-only sequences of events, each of which
// carries the hash of the one before it.
//
// # How to think about it
//
// A run is the unit of everything. It has one writer, an id that is never used
// again, and events numbered from 1. [EventLog.Append] checks that an event
// continues its run (number, hash of the predecessor, limits) and queues it; it
// does not wait for the disk. [EventLog.Sync] is the barrier: once it returns
// nil, everything appended to that run before is durable. A caller places a
// barrier before each effect that leaves the host and before it hands out a
// result, and nowhere else, which is why a call that reads the clock a hundred
// times does not pay for a hundred disk writes.
//
// The first write that fails stops a log for good. After a failed sync nobody
// knows what the disk holds, so every waiter and every later call gets
// [ErrLogStopped]; opening the log again reads what is really there.
//
// # What is evidence and what is index
//
// The hash of an event covers all six fields of its envelope, and backends
// store those fields and rebuild the envelope, so there is no column outside of
// the hash. Everything else a backend keeps (the listing of [RunLister], the
// head of [RunFinder]) is an index: derived, checkable, and checked by
// [CheckRun]. Other programs append to the same tables and do not keep the index, so
// where it lacks events a backend goes by the events.
//
// [Check] proves that a sequence is a run: the eight invariants D1 to D8, and
// in strict mode the rules S1 to S6 on top of them. [CheckRun] also compares the
// last event with the head that the backend keeps apart, because within the
// chain alone nothing covers the last event. What neither can see is a history
// that was rewritten from some event on, all hashes included; that takes a
// signature kept elsewhere.
//
// The payloads of a run may be encrypted (package cipherlog). Then the chain is
// over what is stored, so [Check] needs no key for what is visible, and what
// destroying the key leaves is still a valid run.
//
// # What it refuses
//
// Nothing is accepted by Append that [Check] would refuse for its size, its
// depth, its encoding, its kind or its place in the chain, so that a log never
// holds what its own reader rejects. The pairing of turns and of calls is the
// writer's business and is not checked before Check.
package eventlog
