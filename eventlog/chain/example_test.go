package chain_test

import (
	"fmt"

	"github.com/starling-host/starling/eventlog/chain"
)

func ExampleTree() {
	var tree chain.Tree
	for _, event := range []string{"first", "second", "third"} {
		tree.Add(chain.Sum([]byte(event)))
	}
	fmt.Println(tree.Len(), tree.Root())
	// Output:
	// 3 03c03d91b7d9fde8e64088334c067bf8ede1fc7e4c5a8ae6ba22837bce53c504
}

func ExampleVerify() {
	leaves := []chain.Hash{
		chain.Sum([]byte("first")),
		chain.Sum([]byte("second")),
		chain.Sum([]byte("third")),
	}
	proof, err := chain.Prove(leaves, 1)
	if err != nil {
		fmt.Println(err)
	}
	// Who knows root, the number of leaves, and one leaf needs the proof alone.
	fmt.Println(len(proof), chain.Verify(chain.Root(leaves), leaves[1], 1, 3, proof))
	// Output:
	// 2 true
}
