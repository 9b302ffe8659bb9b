// Package desk hands out the jobs that package book keeps: the part of a queue
// that lives in a process. It commits what callers ask for, runs handlers, renews
// the lease, and looks for what other processes have done.
//
// One goroutine at a time makes transactions, for as long as there is something to
// do. While one commit waits for the disk, whatever is asked for gathers, so that
// any number of jobs are enqueued, handed out and finished in one transaction, and
// a lone one is committed at once. Only the end of a job waits a moment for company
// when no job waits.
package desk
