package chain

import (
	"encoding/hex"
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
	batch = guts.MaxSIMD * chunk // what one pass of the vector unit takes: 16 KiB

	// parallel is the length from which it pays to spread the work over
	// goroutines. The library does so from one chunk on, which makes it up to
	// seven times slower at the length of an event.
	parallel = 1 << 20
)

// Sum returns the BLAKE3-256 digest of b. Below 1 MiB it starts no goroutines
// and allocates nothing.
func Sum(b []byte) Hash {
	if len(b) <= chunk {
		return sumChunk(b)
	}
	if len(b) >= parallel {
		return blake3.Sum256(b)
	}
	var s subtrees
	for len(b) > batch {
		n := guts.CompressBuffer((*[batch]byte)(b), batch, &guts.IV, s.chunks, 0)
		s.push(guts.ChainingValue(n), batch/chunk)
		b = b[batch:]
	}
	return s.root(s.last(b))
}

// New returns a hash.Hash for what comes in pieces and is not to be kept. Its sum
// is that of [Sum].
func New() hash.Hash { return blake3.New(len(Hash{}), nil) }

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
	roots  [10][8]uint32 // 2^10 chunks are parallel bytes, which never come here
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

// last compresses the final 1 to 16 chunks.
func (s *subtrees) last(b []byte) guts.Node {
	const few = 3 // up to here, one chunk after the other is faster
	if len(b) > few*chunk {
		var buf [batch]byte // the vector code reads all of it
		copy(buf[:], b)
		return guts.CompressBuffer(&buf, len(b), &guts.IV, s.chunks, 0)
	}
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
