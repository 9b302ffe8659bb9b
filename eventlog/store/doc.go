// Package store opens event logs: in a SQLite file, on a PostgreSQL server, or in
// memory. It also works on whole databases: backup, compaction, a fork, and archives,
// which carry runs and their modules from one database to another.
//
// [Open] takes any name of a database. [OpenFile], [OpenServer] and [Memory] open one
// kind and have its options.
package store
