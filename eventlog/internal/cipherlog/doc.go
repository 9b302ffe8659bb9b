// Package cipherlog encrypts the content of a tenant's runs, on top of any event log.
//
// # How to think about it
//
// [New] returns a log whose caller appends and reads plain events, and knows nothing of keys. In
// the log below, each event has the same run, number, time and kind, and an [event.Encrypted] as
// its payload: the payload encrypted with AES-256-GCM. There are two chains. The stored one is
// over the envelopes with the encrypted payloads, so that a run can be validated with the file
// and without the key. The caller sees the plain chain, which its events have committed to; its
// prev_hash is encrypted beside the payload, so each event can be decrypted by itself.
//
//	what the caller has     {run, seq, ts, kind, prev_hash, payload}
//	what is encrypted       {payload, prev_hash, totals}
//	what is authenticated   {run, seq, ts, kind, prev_hash', {alg, key, merkle_root'}}
//	what is stored          {run, seq, ts, kind, prev_hash', {alg, key, data, nonce, merkle_root'}}
//
// The fields with a dash belong to the stored chain. Totals are the tokens, the cost and the tool
// calls of the run so far: a listing opens one event of each run and not all of them.
//
// # Keys
//
// A [Key] is a tenant's data key. Each run has a key of its own, derived from the data key and
// the run's id with HKDF-SHA256, and each event a random nonce of 96 bits. A run would have to
// have 2^32 events before two nonces were equal with a probability of 2^-33, and no part of one
// run decrypts in another. The id of a key is derived from the key, and is stored with every
// event; an event that names another key is [ErrKey]. Destroying the data key erases the runs;
// their chains still validate.
//
// # What it hides and what it does not
//
// Without the key, a reader of the file sees how many runs a tenant has and when, and the length
// and kind of each event: how many turns and attempts of calls there were, and whether a run
// succeeded. It does not see goals, models, tools, arguments, results, effects, tokens or cost.
// Modules are not encrypted.
//
// Without the key, a writer to the file can remove a run, or the events at its end together with
// their index rows, as in a plain log. It cannot change, exchange, move or invent an event: that
// is a [eventlog.CorruptError] with the invariant "encrypted". An event that is not encrypted is
// refused in the same way, so none can be slipped in.
package cipherlog
