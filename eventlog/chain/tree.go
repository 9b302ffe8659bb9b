package chain

import (
	"fmt"
	"math/bits"
)

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
	low := bits.TrailingZeros64(t.n)
	top := bits.Len64(t.n) - 1
	last := t.roots[low] // the last node of each level
	for i := low; i < top; i++ {
		switch {
		case i == low, t.n>>i&1 == 0:
			last = parent(last, last) // an odd level repeats its last node
		default:
			last = parent(t.roots[i], last)
		}
	}
	if low < top {
		last = parent(t.roots[top], last)
	}
	return last
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
	return Sum(b[:])
}

// Prove returns the hashes that prove leaf i to be in the tree over leaves:
// the sibling on each level from the leaves up, without those that are the
// node itself. It fails when there is no leaf i.
func Prove(leaves []Hash, i int) ([]Hash, error) {
	if i < 0 || i >= len(leaves) {
		return nil, fmt.Errorf("chain: no leaf %d among %d", i, len(leaves))
	}
	var proof []Hash
	level := append([]Hash(nil), leaves...)
	for len(level) > 1 {
		if sibling := i ^ 1; sibling < len(level) {
			proof = append(proof, level[sibling])
		}
		level = above(level)
		i /= 2
	}
	return proof, nil
}

// above replaces a level by the one above it, in place.
func above(level []Hash) []Hash {
	if len(level)%2 == 1 {
		level = append(level, level[len(level)-1])
	}
	for k := range len(level) / 2 {
		level[k] = parent(level[2*k], level[2*k+1])
	}
	return level[:len(level)/2]
}

// Verify reports whether proof shows that leaf is number i (from 0) of the n
// leaves under root.
func Verify(root, leaf Hash, i, n uint64, proof []Hash) bool {
	if i >= n {
		return false
	}
	for ; n > 1; i, n = i/2, (n+1)/2 {
		sibling := leaf
		if i^1 < n {
			if len(proof) == 0 {
				return false
			}
			sibling, proof = proof[0], proof[1:]
		}
		if i&1 == 1 {
			leaf = parent(sibling, leaf)
		} else {
			leaf = parent(leaf, sibling)
		}
	}
	return len(proof) == 0 && leaf == root
}
