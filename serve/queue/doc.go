// Package queue keeps durable work: a run that was accepted finishes, even if the
// process that runs it dies.
//
// A [Queue] takes a [Job], which names a run, in the same transaction in which the run's
// first events are stored. It hands the job to a [Handler] as a [Lease], at most one at a
// time, until the handler is done with it. The jobs lie in tables beside the events, in
// an SQLite file or on a PostgreSQL server; there any number of hosts share them. Package
// queuetest holds both to the same behaviour.
//
// The package has two halves. The job store (store.go, claim.go, jobs.go, view.go) is the
// tables and the rules by which one transaction changes them; it knows nothing of time
// passing, goroutines or handlers. The dispatcher (commit.go, dispatcher.go) gathers
// changes into transactions, runs handlers, renews the lease, and looks for what other
// processes have done.
//
// # The life of a job
//
// Each step names what is lost if the process dies there.
//
//   - Enqueue has not returned: the job and the run's first events are stored as a whole
//     or not at all, and the caller was not told that they are.
//   - waiting, once Enqueue has returned: nothing.
//   - handed out: a claim is committed before the handler starts. It counts the attempt
//     and makes a new epoch of the run, see eventlog.Tx.Fence, so that an earlier handler,
//     should it still be running somewhere, can record nothing any more. If the process
//     dies here, the death is counted and not the attempt. The job is handed out again
//     once the process's lease has ended, or as soon as a process begins to work under the
//     same [Config].Host. The run's log has what the handler had recorded, and the next
//     handler continues from there. From then on the job is a suspect, and the start of
//     its run is stored as well, see [Lease].Begin: so the next death counts against the
//     run only if the run had started.
//   - the handler has returned and its verdict is not committed: as before; the next
//     handler finds a run that has ended, and only returns its outcome.
//   - done: the job is gone. Everything to know about it is in the run's log.
//
// So a job is worked at least once, and its run is recorded exactly once.
//
// # Verdicts
//
// The handler's return value decides the fate of the job; see tool.KindOf.
//
//	nil          done: the job is gone
//	ToolDiscard  done
//	ToolCancel   done
//	ToolSnooze   handed out again after that time; no attempt is spent
//	other errors handed out again after attempt^4 seconds, a tenth more or less
//
// A job whose attempts are spent, or whose run was under way in [MaxDeaths] processes when
// they died, is still handed out, with Lease.Exhausted set. A job cancelled while it
// waited is handed out with Lease.Cancelled. In both cases the handler must end the run
// and return nil. Only a handler removes a job from the queue, so no run stays open
// because its worker kept dying.
//
// # Which job is next
//
// Tenants share the workers by start-time fair queueing. Each tenant that has jobs ready
// has a tag, a point in virtual time. The tenant with the lowest tag is served next, which
// moves its tag on by 1/weight. A tenant that comes back begins where virtual time is, so
// idle time is not saved up, and a tenant that floods the queue is served no sooner than
// it would be with two jobs. Within a tenant, jobs of greater priority go first, then the
// oldest; a priority means nothing to other tenants. A tenant whose [Limits].MaxRunning is
// reached is passed over. Cancelled jobs are handed out before all others, since ending a
// run takes no time.
//
// A handler runs for as long as it likes; the queue does not interrupt it. So that
// tenants whose jobs take long do not hold all workers, the last eighth of a process's
// workers is reserved for tenants without a running job on any host.
//
// # Many hosts
//
// On a server, any number of transactions accept jobs and end them at the same time, and none waits for
// another: each inserts what it adds to the counts, and reads no row that another one changes. Jobs are
// handed out by one process at a time, which has locked the row of virtual time and adds up the counts. A
// transaction that finds the lock taken does all but that. So MaxWaiting of all tenants is exact in one
// process, and may be exceeded by what other processes accept within [Config].Poll. A process that
// begins to work counts all jobs, in case a count is wrong.
//
// # How workers learn of jobs
//
// A process hands out the jobs it enqueues in the transaction that stores them, if a
// worker is free. Other processes poll, once in [Config].Poll. On a server they are
// signalled as well, by LISTEN and NOTIFY: when a tenant that had no jobs to hand out gets
// some, and when a job that runs in another process is cancelled. A signal carries no
// data; it makes a process look at once. A lost signal costs the time until the next poll.
package queue
