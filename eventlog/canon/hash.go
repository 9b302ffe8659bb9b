package canon

import (
	"encoding/hex"
	"fmt"
	"hash"
	"math/bits"

	"lukechampine.com/blake3"
	"lukechampine.com/blake3/guts"
)

// Hash is a BLAKE3-256 digest.
type Hash [32]byte

// String returns h as 64 lower-case hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

const (
	chunk = guts.ChunkSize
	batch = guts.MaxSIMD * chunk // one pass of the vector unit: 16 KiB
)

// Sum returns the BLAKE3-256 digest of the parts, one behind the other. It starts no
// goroutines and allocates nothing. The library's own functions start goroutines from one
// chunk on, which makes them up to seven times slower at the length of an event.
func Sum(parts ...[]byte) Hash {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	switch {
	case size > chunk:
		return sumTree(parts)
	case len(parts) == 1:
		return sumChunk(parts[0])
	}
	var buf [chunk]byte
	all := buf[:0]
	for _, part := range parts {
		all = append(all, part...)
	}
	return sumChunk(all)
}

// sumTree is Sum for more than one chunk.
//
//go:noinline
func sumTree(parts [][]byte) Hash { // small sums have no room on the stack for its buffer
	var s subtrees
	var buf [batch]byte // bytes not hashed yet
	n := 0
	for _, part := range parts {
		for len(part) > 0 {
			switch {
			case n == batch:
				s.push(guts.ChainingValue(guts.CompressBuffer(&buf, batch, &guts.IV, s.chunks, 0)), batch/chunk)
				n = 0
			case n == 0 && len(part) > batch:
				s.push(guts.ChainingValue(guts.CompressBuffer((*[batch]byte)(part), batch, &guts.IV, s.chunks, 0)), batch/chunk)
				part = part[batch:]
			default:
				copied := copy(buf[n:], part)
				n, part = n+copied, part[copied:]
			}
		}
	}
	return s.root(s.last(&buf, n))
}

// NewHash returns a hash.Hash for data that comes in pieces and is not kept. Its sum
// is that of [Sum].
func NewHash() hash.Hash { return blake3.New(len(Hash{}), nil) }

// sumChunk is Sum for at most one chunk. Its argument may live on the stack.
func sumChunk(b []byte) Hash {
	return finish(guts.CompressChunk(b, &guts.IV, 0, 0))
}

// finish turns the root node into the digest.
func finish(n guts.Node) Hash {
	n.Flags |= guts.FlagRoot
	out := guts.WordsToBytes(guts.CompressNode(n))
	return Hash(out[:32])
}

// subtrees holds the roots of the complete subtrees on the left of the hash
// tree, as the bits of a counter: the root of 2^i chunks is at index i.
type subtrees struct {
	chunks uint64
	roots  [40][8]uint32
}

// push adds a complete subtree of n chunks, n being a power of two.
func (s *subtrees) push(cv [8]uint32, n uint64) {
	i := bits.TrailingZeros64(n)
	for ; s.chunks>>i&1 == 1; i++ {
		cv = guts.ChainingValue(guts.ParentNode(s.roots[i], cv, &guts.IV, 0))
	}
	s.roots[i] = cv
	s.chunks += n
}

// last compresses the final 1 to 16 chunks, of n bytes. The vector code reads all of buf.
func (s *subtrees) last(buf *[batch]byte, n int) guts.Node {
	const few = 3 // up to here, one chunk after the other is faster
	if n > few*chunk {
		return guts.CompressBuffer(buf, n, &guts.IV, s.chunks, 0)
	}
	b := buf[:n]
	for len(b) > chunk {
		n := guts.CompressChunk(b[:chunk], &guts.IV, s.chunks, 0)
		s.push(guts.ChainingValue(n), 1)
		b = b[chunk:]
	}
	return guts.CompressChunk(b, &guts.IV, s.chunks, 0)
}

// root joins the subtrees from right to left.
func (s *subtrees) root(n guts.Node) Hash {
	for i := range s.roots {
		if s.chunks>>i&1 == 1 {
			n = guts.ParentNode(s.roots[i], guts.ChainingValue(n), &guts.IV, 0)
		}
	}
	return finish(n)
}

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
