// Package book keeps the jobs of a queue in three tables of the database of the
// events, through eventlog.Transactor, so that every change of a job is one with
// the events and the other rows of its transaction.
//
// It knows the rules of the queue and nothing of time passing, goroutines or
// handlers. A [Tx] is one transaction: it loads the rows of the tenants that it
// meets, counts in memory, and writes them back once, in Flush.
package book
