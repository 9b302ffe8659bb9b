// Package tenant keeps what a host knows about those whom it works for: who they
// are, the keys that they present, what they may use, their policy, their
// secrets, and which modules are theirs.
//
// # How to think about it
//
// A [Store] lies in tables beside the event log, in the same database, so what
// it says is committed with the same care as an event. A [Tenant] has an id, which
// is the namespace of its runs. It comes from a credential and from nothing else:
// [Store.Authenticate] is the one door from a request to a tenant, and every other
// method takes the id that came through it.
//
// # Three kinds of keys
//
// An API key is what a client presents. It is 256 random bits and is shown once;
// what is stored is its BLAKE3 hash. A slow hash protects a password, which can be
// guessed, by making each guess dear; nobody guesses 256 bits, and a slow hash
// would only give everybody who can reach the door a way to keep the host busy.
//
// A data key encrypts what a tenant has: the payloads of its runs, its secrets,
// the answers kept for repeated requests. It is stored wrapped.
//
// The [MasterKey] wraps the data keys. The operator holds it in a file or an
// environment variable, never in the database. Whoever has only the database can
// read nothing of the above. A store can have more than one, so that the master key can be
// changed while hosts serve: first they all get the new one beside the old, then
// [Store.Rewrap] moves the data keys, and then the old one is taken from them.
//
// # Erasure
//
// [Store.Erase] destroys the data key. The runs stay where they are and their
// chains still validate, because a chain is over what is stored; nobody can read
// them any more. A copy of the database that was made before, or a page of the
// file that was not yet overwritten, still has the wrapped key: [Store.Rewrap]
// moves all that remain to a new master key, after which the old one, and with it
// every such copy, can be destroyed.
//
// # What it does not do
//
// It does not enforce limits, nor read policies: it keeps them. It does not log.
package tenant
