package chain

import "math/bits"

// Tree computes the Merkle root of a growing list of hashes. It keeps one hash
// for each bit of the list's length. The zero value is an empty tree.
type Tree struct {
	n     uint64
	roots [64]Hash // roots[i] is the root of 2^i leaves where bit i of n is set
}

// Add appends a leaf.
func (t *Tree) Add(leaf Hash) {
	i := 0
	for ; t.n>>i&1 == 1; i++ {
		leaf = parent(t.roots[i], leaf)
	}
	t.roots[i] = leaf
	t.n++
}

// Len returns how many leaves were added.
func (t *Tree) Len() uint64 { return t.n }

// Root returns the root over all leaves so far: 32 zero bytes when there are
// none. More leaves may follow.
func (t *Tree) Root() Hash {
	if t.n == 0 {
		return Hash{}
	}
	level, top := bits.TrailingZeros64(t.n), bits.Len64(t.n)-1
	last := t.roots[level]
	if level == top {
		return last // the tree is full
	}
	// From here on, last is the last node of its level. Where it has no left
	// sibling it is repeated.
	last = parent(last, last)
	for level++; level < top; level++ {
		left := last
		if t.n>>level&1 == 1 {
			left = t.roots[level]
		}
		last = parent(left, last)
	}
	return parent(t.roots[top], last)
}

// Root returns the Merkle root of leaves.
func Root(leaves []Hash) Hash {
	var t Tree
	for _, h := range leaves {
		t.Add(h)
	}
	return t.Root()
}

// parent is BLAKE3 of the two children, left first, with no prefix.
func parent(left, right Hash) Hash {
	var b [64]byte
	copy(b[:32], left[:])
	copy(b[32:], right[:])
	return sumChunk(b[:])
}
