// Package riverqueue is a durable queue on Postgres for any number of hosts, whose
// workers River wakes.
//
// The jobs lie in the tables that host/queue/embedded has too, and obey the same
// rules. A job of River's is a turn: somebody may take the next job, whichever it
// is by then. It is inserted in the transaction that makes a job ready, so that
// there are as many turns as jobs that may be handed out: none for a job beyond its
// tenant's MaxRunning, and one when a place becomes free. River tells a worker of
// it by NOTIFY, and lets each turn be taken once. Fair queueing and priorities are
// decided when a turn is taken, so River's order means nothing; and a job waits
// where it may still be overtaken.
//
// What River does not promise is not asked of it. It would let a slow worker
// complete a job that was rescued and given to another: here the run's epoch
// decides who may record, see eventlog.Tx.Fence. It rescues jobs after an hour:
// here the lease of the process ends after half a minute, and its jobs get new
// turns. A turn that was lost with the process that had taken it is made up for
// when a worker finds itself idle beside jobs that are ready. A turn too many finds
// nothing to do.
//
// A job that runs is cancelled by cancelling its turn, which River tells the host
// that has it by NOTIFY; polling makes up for a notification that was lost.
//
// The time is that of the server: hosts need not agree about it.
package riverqueue
