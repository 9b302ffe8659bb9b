// Package share accounts for the work that tenants cause in the host's own process: parsing
// what they send, and reading, searching and rendering their records.
//
// Each request has a share. Before it computes, it takes one of the CPU slots that tool
// calls use as well. It gives the slot back while it waits: for the database to commit, for
// a run, or for its client to read. Before the host keeps something large in memory for it,
// the request takes as many bytes of one pool as that will cost. So the order is bytes,
// slot, reader of the database. A request gives everything back when it ends.
//
// A context without a share, as in a program with one user, takes nothing and never waits.
//
// A [Cache] (cache.go) keeps what was read for a tenant, bounded in time and bytes.
package share
