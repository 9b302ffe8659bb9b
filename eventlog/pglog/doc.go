// Package pglog keeps an event log in a PostgreSQL database, for any number of hosts.
package pglog
