// Package queue says what durable work is: a run that somebody was promised, and
// that will end, whichever processes die before it does.
//
// A [Queue] takes a [Job], which names a run, in the same transaction in which
// the run's first events are stored. It hands the job to a [Handler] as a
// [Lease], at most one at a time, until a handler is done with it. Two packages
// implement it: host/queue/embedded keeps the jobs in the database of the events
// and needs nothing else, host/queue/riverqueue lets River on Postgres wake the
// workers of many hosts. Package queuetest holds both to the same behaviour.
//
// # The life of a job
//
// What is lost if the process dies now is said at each point.
//
//   - Enqueue has not returned: the job and the run's first events are there as a
//     whole or not at all, and nobody was told that they are.
//   - waiting, once Enqueue has returned: nothing.
//   - handed out: a claim is committed before the handler starts. It counts the
//     attempt and makes a new epoch of the run, see eventlog.Tx.Fence, so the
//     handler's predecessor, should it still be executing somewhere, can record
//     nothing any more. If the process dies here, the death is counted and not the
//     attempt. The job is handed out again once the process's lease has ended, or as
//     soon as a process begins to work under the same [Config].Host. What the handler
//     had recorded is in the run's log and is what its successor goes on from. From
//     then on the job is a suspect, and when its run begins is written down as well,
//     see [Lease].Begin: so it is known of the next death whether the run had part in it.
//   - the handler has returned and its verdict is not committed: as before; the
//     successor finds a run that has ended and has nothing to do but say so.
//   - done: the job is gone. What there was to know is in the run's log.
//
// So a job is worked at least once, and its run is recorded exactly once.
//
// # Verdicts
//
// What a handler returns decides what becomes of the job; see tool.KindOf.
//
//	nil          done: the job is gone
//	ToolDiscard  done
//	ToolCancel   done
//	ToolSnooze   handed out again after that time; no attempt is spent
//	other errors handed out again after attempt^4 seconds, a tenth more or less
//
// A job whose attempts are spent, or whose run [MaxDeaths] processes were making when
// they died, is handed out all the same, with Lease.Exhausted set, and one that was
// cancelled while it waited with Lease.Cancelled: the handler is to end the run and to
// return nil. A job leaves the queue by the word of a handler alone, so no run stays open
// because its worker kept dying.
//
// # Whose turn it is
//
// Tenants take turns by start-time fair queueing. Each tenant that has jobs ready
// has a tag, the point in virtual time at which its next turn begins. The lowest
// tag is next, and a turn moves it on by 1/weight. A tenant that comes back
// begins where virtual time is, so that nobody saves turns up, and one that
// floods the queue is as far from the next tenant's turn as it would be with two
// jobs. Within a tenant, jobs of greater priority go first, then those that were
// enqueued first; no priority takes another tenant's turn. A tenant whose
// [Limits].MaxRunning is reached is passed over. Jobs that were cancelled are
// handed out before all others, since to end a run takes no time.
//
// A turn lasts for as long as its handler does, and nobody is interrupted. So that
// tenants whose jobs take long do not hold all handlers, the last eighth of a
// process's handlers is kept for tenants of which nothing runs on any host. Whoever
// comes later finds one free, unless as many others as that have come as late.
package queue
