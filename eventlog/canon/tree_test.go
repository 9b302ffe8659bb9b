package canon_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/internal/vectortest"
)

// letters returns the hashes of "a", "b" and so on.
func letters(n int) []canon.Hash {
	leaves := make([]canon.Hash, n)
	for i := range leaves {
		leaves[i] = canon.Sum([]byte{byte('a' + i)})
	}
	return leaves
}

// byLevels computes the root in the plainest way: level by level, the last
// node of an odd level repeated.
func byLevels(leaves []canon.Hash) canon.Hash {
	level := slices.Clone(leaves)
	for len(level) > 1 {
		if len(level)%2 == 1 {
			level = append(level, level[len(level)-1])
		}
		var above []canon.Hash
		for i := 0; i < len(level); i += 2 {
			above = append(above, canon.Sum(append(slices.Clone(level[i][:]), level[i+1][:]...)))
		}
		level = above
	}
	if len(level) == 0 {
		return canon.Hash{}
	}
	return level[0]
}

// The roots that the Starling runtime computes, by their ends.
func TestRootsOfTheStarlingRuntime(t *testing.T) {
	for _, c := range []struct {
		leaves       int
		begins, ends string
	}{
		{0, strings.Repeat("0", 32), strings.Repeat("0", 32)},
		{1, "17762fdd", "215f"},
		{2, "8912f1e4", "56b1"},
		{3, "248af8bc", "e1c7"},
		{5, "a76273f7", "a509"},
	} {
		root := canon.Root(letters(c.leaves)).String()
		if !strings.HasPrefix(root, c.begins) || !strings.HasSuffix(root, c.ends) {
			t.Errorf("%d leaves: %s, want %s..%s", c.leaves, root, c.begins, c.ends)
		}
	}
}

func TestTreeGrowsLikeTheLevels(t *testing.T) {
	var tree canon.Tree
	leaves := make([]canon.Hash, 300)
	for i := range leaves {
		leaves[i] = canon.Sum(fmt.Append(nil, i))
		if got, want := tree.Root(), byLevels(leaves[:i]); got != want {
			t.Fatalf("%d leaves: %s, want %s", i, got, want)
		}
		if tree.Len() != uint64(i) {
			t.Fatalf("Len is %d, want %d", tree.Len(), i)
		}
		tree.Add(leaves[i])
	}
}

// The shape has a weakness that readers must know: repeating the last leaf
// can give the same root. Number and order of the events are therefore bound
// by the sequence number of the terminal event, never by the root alone.
func TestRootDoesNotBindTheNumberOfLeaves(t *testing.T) {
	three := letters(3)
	four := append(letters(3), three[2])
	if canon.Root(three) != canon.Root(four) {
		t.Error("the documented collision is gone; the shape must have changed")
	}
	proof, err := canon.Prove(four, 3)
	if err != nil {
		t.Fatal(err)
	}
	if canon.Verify(canon.Root(three), three[2], 3, 3, proof) {
		t.Error("a fourth leaf was proven in a tree of three")
	}
}

type merkleLine struct {
	Name   string     `json:"name"`
	Leaves []string   `json:"leaves"`
	Root   string     `json:"root"`
	Proofs [][]string `json:"proofs"` // of each leaf, from the leaves up
}

func TestVectorsMerkle(t *testing.T) {
	var lines []merkleLine
	for _, n := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 17} {
		lines = append(lines, merkleLineOf(t, letters(n)))
	}
	for _, line := range vectortest.Check(t, "merkle.jsonl", lines) {
		root, n := parseHash(t, line.Root), uint64(len(line.Leaves))
		for i, leaf := range line.Leaves {
			proof := make([]canon.Hash, len(line.Proofs[i]))
			for k, h := range line.Proofs[i] {
				proof[k] = parseHash(t, h)
			}
			if !canon.Verify(root, parseHash(t, leaf), uint64(i), n, proof) {
				t.Errorf("%s: the proof of leaf %d is not accepted", line.Name, i)
			}
		}
	}
}

func merkleLineOf(t *testing.T, leaves []canon.Hash) merkleLine {
	line := merkleLine{
		Name:   fmt.Sprintf("%d leaves", len(leaves)),
		Leaves: texts(leaves), Root: byLevels(leaves).String(), Proofs: [][]string{},
	}
	for i := range leaves {
		proof, err := canon.Prove(leaves, i)
		if err != nil {
			t.Fatal(err)
		}
		line.Proofs = append(line.Proofs, texts(proof))
	}
	return line
}

func texts(hashes []canon.Hash) []string {
	s := make([]string, len(hashes))
	for i, h := range hashes {
		s[i] = h.String()
	}
	return s
}

func parseHash(t *testing.T, s string) canon.Hash {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(canon.Hash{}) {
		t.Fatalf("%q is not a hash: %v", s, err)
	}
	return canon.Hash(b)
}

func TestProofs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 70).Draw(t, "leaves")
		leaves := make([]canon.Hash, n)
		for i := range leaves {
			leaves[i] = canon.Sum(fmt.Append(nil, i))
		}
		root := canon.Root(leaves)
		i := rapid.IntRange(0, n-1).Draw(t, "leaf")
		proof, err := canon.Prove(leaves, i)
		if err != nil {
			t.Fatal(err)
		}
		if !canon.Verify(root, leaves[i], uint64(i), uint64(n), proof) {
			t.Fatal("a right proof is not accepted")
		}
		checkFalseProofs(t, root, leaves, i, proof)
	})
}

// checkFalseProofs changes each part of a right proof in turn.
func checkFalseProofs(t *rapid.T, root canon.Hash, leaves []canon.Hash, i int, proof []canon.Hash) {
	n := len(leaves)
	flip := func(h canon.Hash) canon.Hash {
		h[rapid.IntRange(0, 31).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		return h
	}
	accepted := func(what string, root, leaf canon.Hash, i, n int, proof []canon.Hash) {
		if canon.Verify(root, leaf, uint64(i), uint64(n), proof) {
			t.Fatalf("accepted with %s", what)
		}
	}
	accepted("another root", flip(root), leaves[i], i, n, proof)
	accepted("another leaf", root, flip(leaves[i]), i, n, proof)
	accepted("a longer proof", root, leaves[i], i, n, append(slices.Clone(proof), root))
	accepted("an index that does not exist", root, leaves[i], n, n, proof)
	if j := rapid.IntRange(0, n-1).Draw(t, "other leaf"); j != i {
		accepted("the index of another leaf", root, leaves[i], j, n, proof)
	}
	if len(proof) > 0 {
		accepted("a shorter proof", root, leaves[i], i, n, proof[1:])
		changed := slices.Clone(proof)
		k := rapid.IntRange(0, len(proof)-1).Draw(t, "step")
		changed[k] = flip(changed[k])
		accepted("another sibling", root, leaves[i], i, n, changed)
	}
}

func TestProveWantsALeafThatExists(t *testing.T) {
	for _, i := range []int{-1, 3, 4} {
		if proof, err := canon.Prove(letters(3), i); err == nil {
			t.Errorf("leaf %d: %v", i, proof)
		}
	}
}

func TestProveLeavesItsArgumentAlone(t *testing.T) {
	leaves := make([]canon.Hash, 3, 8)
	copy(leaves, letters(3))
	if _, err := canon.Prove(leaves, 0); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(leaves, letters(3)) || leaves[:4][3] != (canon.Hash{}) {
		t.Error("Prove wrote to the caller's slice")
	}
}

// FuzzVerify gives the verifier forged proofs: it must end, and accept only
// the root.
func FuzzVerify(f *testing.F) {
	f.Add([]byte("leaf"), uint64(3), uint64(5), make([]byte, 96))
	f.Add([]byte{}, uint64(0), ^uint64(0), make([]byte, 2048))
	f.Fuzz(func(t *testing.T, leaf []byte, i, n uint64, siblings []byte) {
		var proof []canon.Hash
		for s := range slices.Chunk(siblings, 32) {
			if len(s) == 32 {
				proof = append(proof, canon.Hash(s))
			}
		}
		if canon.Verify(canon.Sum([]byte("root")), canon.Sum(leaf), i, n, proof) {
			t.Fatal("a proof of nothing was accepted")
		}
	})
}

func BenchmarkTree(b *testing.B) {
	leaf := canon.Sum(nil)
	b.Run("add", func(b *testing.B) {
		var tree canon.Tree
		b.ReportAllocs()
		for b.Loop() {
			tree.Add(leaf)
		}
	})
	b.Run("root of 100000", func(b *testing.B) {
		var tree canon.Tree
		for range 100_000 {
			tree.Add(leaf)
		}
		b.ReportAllocs()
		for b.Loop() {
			tree.Root()
		}
	})
}
