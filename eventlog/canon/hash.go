package canon

import (
	"encoding/hex"
	"fmt"
	"hash"
	"math/bits"
	"slices"
	"sync"

	"lukechampine.com/blake3"
	"lukechampine.com/blake3/guts"
)

// Hash is a BLAKE3-256 digest.
type Hash [32]byte

// String returns h as 64 lower-case hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// hashers are reused, because one has 3 KB.
var hashers = sync.Pool{New: func() any { return blake3.New(len(Hash{}), nil) }}

// Sum returns the BLAKE3-256 digest of the parts, one behind the other. The library starts
// goroutines for what has more than a chunk, which pays for a module, and not for an event.
func Sum(parts ...[]byte) (sum Hash) {
	h := hashers.Get().(*blake3.Hasher)
	defer hashers.Put(h)
	h.Reset()
	for _, part := range parts {
		most := guts.ChunkSize
		if len(part) >= guts.MaxSIMD*guts.ChunkSize {
			most = len(part)
		}
		for piece := range slices.Chunk(part, most) {
			h.Write(piece)
		}
	}
	h.Sum(sum[:0])
	return sum
}

// NewHash returns a hash.Hash for data that comes in pieces and is not kept. Its sum
// is that of [Sum].
func NewHash() hash.Hash { return blake3.New(len(Hash{}), nil) }

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
	return Sum(b[:])
}

// Prove returns the hashes that prove leaf i to be in the tree over leaves:
// the sibling on each level from the leaves up, except where it is the node
// itself. It fails if leaf i does not exist.
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
		if len(level)%2 == 1 {
			level = append(level, level[len(level)-1])
		}
		for k := range len(level) / 2 { // the level above takes its place
			level[k] = parent(level[2*k], level[2*k+1])
		}
		level = level[:len(level)/2]
		i /= 2
	}
	return proof, nil
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
