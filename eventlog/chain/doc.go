// Package chain hashes events with BLAKE3 and folds the hashes of a run into
// one Merkle root.
//
// [Sum] is the only hash function of the project: of envelopes, of modules, of
// schemas. Each event of a run carries the Sum of the envelope before it, so
// an event cannot be changed, removed or moved without changing all that
// follow. The last event of a run carries the root of a [Tree] over the hashes
// of all events before it, so one hash stands for the whole run, and [Prove]
// and [Verify] show that an event belongs to it without showing the others.
//
// # The shape of the tree
//
// The shape is that of the Starling format, whose logs must stay readable:
//
//	a leaf is the hash of an event, as it is
//	a parent is BLAKE3-256(left || right), 64 bytes without a prefix
//	a level with an odd number of nodes, more than one, repeats its last
//	the root of one leaf is the leaf, the root of none is 32 zero bytes
//
// Five leaves, for example, make
//
//	           r
//	       /       \
//	     x           y        y = H(z || z)
//	   /   \       /   \
//	  p     q     z     z     z = H(e || e)
//	 / \   / \   / \
//	a   b c   d e   e
//
// # What a root does not say
//
// A repeated node looks like a real one: the leaves a, b, c and a, b, c, c
// have one root. And since leaves and parents are hashed alike, a parent can
// be passed off as a leaf of a smaller tree. So a root means something only
// together with the number of leaves. In a log that number is bound: the
// terminal event which carries the root has a sequence number, one more than
// the number of leaves, and is itself hashed. [Verify] takes the number for
// that reason, and a caller must take it from there.
package chain
