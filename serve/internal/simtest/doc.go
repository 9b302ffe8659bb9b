// Package simtest simulates hosts that share a queue, on a clock of its own.
//
// The scheduler, the dispatcher and the leases are those of package queue. The database is a
// stand-in: SQLite in memory for the tables of the queue, and maps for runs, epochs and events. A
// seed decides the hosts, the tenants, their jobs, and what fails: transactions before and after
// their commit, signals, hosts that are killed, frozen, drained or restarted. A schedule runs in
// a bubble of testing/synctest, so it takes milliseconds and nothing depends on the speed of the
// machine.
//
// A transaction of the stand-in happens at one instant, before and after which time passes. So
// the simulator does not show what statements of two transactions do to each other; package
// queuetest and the tests of package queue do that on a PostgreSQL server. A seed fixes the plan
// of a schedule, but neither the order in which goroutines run that are ready at the same instant
// nor the ids that the queue draws, so a failure may need several tries.
//
// Everything is in the tests of the package.
package simtest
