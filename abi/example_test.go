package abi_test

import (
	"fmt"

	"github.com/starling-host/starling/abi"
)

// A guest gives its output to the host as one number: where it is in memory, and how long.
func ExamplePack() {
	packed := abi.Pack(0x1000, 18)
	ptr, length := abi.Unpack(packed)
	fmt.Printf("%#x: %#x, %d\n", packed, ptr, length)
	// Output: 0x100000000012: 0x1000, 18
}
