package chain

import "fmt"

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
