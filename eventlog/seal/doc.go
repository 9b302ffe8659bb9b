// Package seal keeps a transparency log of the runs of a database, signs it, and proves
// with it. spec/seal.md and spec/bundle.md specify the formats.
//
// The owner of a database can rewrite its runs. So each run that has ended becomes a [Leaf]
// of a Merkle tree (RFC 6962), and from time to time its root is signed as a [Checkpoint].
// A verifier that keeps a checkpoint, or trusts a witness that has cosigned one, finds
// every run that was changed, removed or moved since.
//
//	Seal      adds the runs that have ended, and signs a checkpoint
//	Verify    checks the runs of a database against its checkpoints
//	Prove     proves that a run is in a checkpoint; ProveEvent, an event
//
// The tree is implemented by golang.org/x/mod/sumdb/tlog, the signatures by
// golang.org/x/mod/sumdb/note. A [Policy] lists the keys that a verifier trusts.
package seal
