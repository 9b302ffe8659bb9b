//go:build wasip1 && extism

package host

import "encoding/binary"

// Transform makes the output of an input.
var Transform func(input []byte) []byte

//go:wasmimport extism:host/env input_length
func inputLength() uint64

//go:wasmimport extism:host/env input_load_u64
func inputLoad64(at uint64) uint64

//go:wasmimport extism:host/env input_load_u8
func inputLoad8(at uint64) uint32

//go:wasmimport extism:host/env alloc
func hostAlloc(n uint64) uint64

//go:wasmimport extism:host/env store_u64
func store64(at, v uint64)

//go:wasmimport extism:host/env store_u8
func store8(at uint64, v uint32)

//go:wasmimport extism:host/env output_set
func outputSet(at, n uint64)

//go:wasmexport run
func run() int32 {
	n := inputLength()
	input := make([]byte, 0, n+8)
	i := uint64(0)
	for ; i+8 <= n; i += 8 {
		input = binary.LittleEndian.AppendUint64(input, inputLoad64(i))
	}
	for ; i < n; i++ {
		input = append(input, byte(inputLoad8(i)))
	}
	out := Transform(input)
	at := hostAlloc(uint64(len(out)))
	for i = 0; i+8 <= uint64(len(out)); i += 8 {
		store64(at+i, binary.LittleEndian.Uint64(out[i:]))
	}
	for ; i < uint64(len(out)); i++ {
		store8(at+i, uint32(out[i]))
	}
	outputSet(at, uint64(len(out)))
	return 0
}
