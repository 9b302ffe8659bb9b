// Package dblog is the part that the logs in databases share: the table run, which is an
// index over the events, with listings and the selection for pruning; modules; tables of the
// host; and the rules for statements in its transactions.
//
// Each statement has one text for all databases. A [Dialect] has the fragments in which they
// differ. Placeholders are $1, $2 and so on, which SQLite takes as well. A log itself
// implements what differs in kind: how it connects, how its writer stores a batch, and what a
// transaction is.
//
// # The index
//
// A row of the table run can be missing or behind its events: the Starling runtime goes on
// appending to a database that was migrated and does not know the table, and tables are
// restored one by one. So the events decide. A lookup of one run compares its row with its
// last event, in the same statement ([Backend.Position]). For listings, each log finds the runs
// that are behind in its own way ([Backend].Behind). A log opened for writing brings the rows
// up to date; a read-only log computes what it returns.
//
// # Recorded bytes
//
// The statement that moves a row adds the bytes of the payloads to its column bytes, and their
// number to the column counted. Each event is counted at most once. So bytes is right if all
// events up to last_seq are counted. It is not used otherwise: a host of an earlier version, which
// works on the same database during an upgrade, moves rows and counts nothing. Then the events
// are summed up, until a migration counts them. A migration also counts again where bytes is not
// what the events have ([Log.Miscounted]), for whatever reason.
//
// A row that claims more events than there are, or that differs from the events which it
// covers, is never replaced: it is the evidence that the run was changed.
package dblog
