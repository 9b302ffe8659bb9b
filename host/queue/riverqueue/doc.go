// Package riverqueue is a durable queue on Postgres for any number of hosts, whose
// workers River wakes.
//
// The jobs lie in the tables that host/queue/embedded has too, and obey the same
// rules. A job of River's is a turn: a worker wakes and takes the next job,
// whichever it is by then, and then the next one, until there is none. It is
// inserted in the transaction that makes a job ready: none for a job beyond its
// tenant's MaxRunning, one when a place becomes free, and none when a thousand jobs
// wait already, for which all workers are awake. River tells a worker of it by
// NOTIFY, and lets each turn be taken once. Fair queueing and priorities are decided
// when a job is taken, so River's order means nothing; and a job waits where it may
// still be overtaken.
//
// What River does not promise is not asked of it. It would let a slow worker
// complete a job that was rescued and given to another: here the run's epoch
// decides who may record, see eventlog.Tx.Fence. It rescues jobs after an hour:
// here the lease of the process ends after half a minute, and its jobs get new
// turns. A turn that was lost with the process that had taken it is made up for
// when a process begins to work, or a worker finds itself idle beside jobs that are
// ready. A turn too many finds nothing to do.
//
// A job that runs is cancelled by cancelling the turn that has it, which River tells
// the host by NOTIFY. The turn may have another job by then, so the host looks which
// of its jobs are meant. Polling makes up for a notification that was lost.
//
// The time is that of the server: hosts need not agree about it.
package riverqueue
