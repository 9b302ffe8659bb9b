// Package tenant stores the tenants of a host: their API keys, limits, policies, secrets
// and modules.
//
// # How to think about it
//
// A [Store] is in tables beside the event log, in the same database, so a change is
// committed with the same care as an event. The id of a [Tenant] is the namespace of its
// runs. A request gets it from its credential alone, by [Store.Authenticate]; every other
// method takes the id that it returned.
//
// # Three kinds of keys
//
// A client presents an API key. It is 256 random bits and is shown once; the store has its
// BLAKE3 hash. A slow hash makes guesses expensive, which passwords need. Guessing 256 bits
// is impossible, and a slow hash would only let clients without a key keep the host busy.
//
// A data key encrypts the payloads of a tenant's runs, its secrets, and the responses kept
// for repeated requests. It is stored wrapped.
//
// The [MasterKey] wraps the data keys. The operator keeps it in a file or an environment variable,
// never in the database, so the database alone reveals none of this data. To change the master key
// while hosts serve, give all hosts the new key beside the old one, move the data keys with
// [Store.Rewrap], and then remove the old key.
//
// # Erasure
//
// [Store.Erase] destroys the data key, which makes the tenant's runs unreadable for everyone
// (crypto-erasure). The runs stay, and their chains still validate, because a chain covers the
// encrypted payloads. An older copy of the database, or a page of the file that was not yet
// overwritten, still has the wrapped key. To make those unreadable as well, move the other data
// keys to a new master key with [Store.Rewrap] and destroy the old one.
//
// # What it does not do
//
// The package stores limits and policies, and does not enforce them. It does not log.
package tenant
