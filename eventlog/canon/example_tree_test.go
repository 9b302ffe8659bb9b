package canon_test

import (
	"fmt"

	"github.com/starling-host/starling/eventlog/canon"
)

func ExampleTree() {
	var tree canon.Tree
	for _, event := range []string{"first", "second", "third"} {
		tree.Add(canon.Sum([]byte(event)))
	}
	fmt.Println(tree.Len(), tree.Root())
	// Output:
	// 3 03c03d91b7d9fde8e64088334c067bf8ede1fc7e4c5a8ae6ba22837bce53c504
}

func ExampleVerify() {
	leaves := []canon.Hash{
		canon.Sum([]byte("first")),
		canon.Sum([]byte("second")),
		canon.Sum([]byte("third")),
	}
	proof, err := canon.Prove(leaves, 1)
	if err != nil {
		fmt.Println(err)
	}
	// Who knows root, the number of leaves, and one leaf needs the proof alone.
	fmt.Println(len(proof), canon.Verify(canon.Root(leaves), leaves[1], 1, 3, proof))
	// Output:
	// 2 true
}
