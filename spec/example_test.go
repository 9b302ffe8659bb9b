package spec_test

import (
	"fmt"

	"github.com/starling-host/starling/spec"
)

// The vectors of the formats are lines of JSON, for any implementation.
func ExampleLines() {
	trees, err := spec.Lines[struct {
		Name, Root string
		Leaves     []string
		Proofs     [][]string
	}]("merkle.jsonl")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(trees[2].Leaves), "leaves:", trees[2].Root[:16])
	// Output: 2 leaves: 8912f1e49d6c9483
}
