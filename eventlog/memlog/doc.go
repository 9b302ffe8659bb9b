// Package memlog is an event log in memory, for tests and for runs that nobody
// needs afterwards.
//
// It keeps the whole contract of [eventlog.EventLog] except durability: an
// event is as durable as it will ever be once Append returns, so Sync has
// nothing to wait for.
package memlog
