//go:build wasip1 && !extism

// Package host is how a Go guest of the benchmark meets its host: by the
// contract of this project or, with the tag extism, by that of Extism. A guest
// sets Transform when it is initialised.
package host

import "unsafe"

// Transform makes the output of an input.
var Transform func(input []byte) []byte

const description = `{"tools":[{"name":"guest","description":"A guest of the benchmark.","input_schema":{"type":"object"}}]}`

var input, output []byte

//go:wasmexport starling_alloc
func alloc(n uint32) uint32 {
	input = make([]byte, n+1)
	return uint32(uintptr(unsafe.Pointer(&input[0])))
}

//go:wasmexport starling_describe
func describe() uint64 { return pack([]byte(description)) }

//go:wasmexport starling_execute
func execute(_, n uint32) uint64 { return pack(Transform(input[:n])) }

// warmup makes what encoding/json remembers of types part of every call's start.
//
//go:wasmexport starling_warmup
func warmup() { Transform([]byte(`{"a":[1,-2.5,"b",true,null,{"c":{}}]}`)) }

func pack(b []byte) uint64 {
	output = b
	return uint64(uintptr(unsafe.Pointer(&b[0])))<<32 | uint64(len(b))
}
