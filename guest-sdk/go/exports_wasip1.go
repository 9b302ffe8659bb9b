package starling

import (
	"errors"
	"unsafe"
)

var (
	// inputs holds the buffers that the host has asked for and not yet used,
	// by their address. It keeps them from the collector.
	inputs = map[uint32][]byte{}
	// result keeps the last document that was handed out alive until the next,
	// because the host reads it after the export has returned. Go's collector
	// does not move it.
	result []byte
)

//go:wasmexport starling_alloc
func alloc(n uint32) uint32 {
	buf := make([]byte, n)
	at := address(buf)
	inputs[at] = buf
	return at
}

//go:wasmexport starling_describe
func exportDescribe() uint64 { return handOut(describe()) }

//go:wasmexport starling_execute
func exportExecute(ptr, n uint32) uint64 {
	buf, ok := inputs[ptr]
	if !ok || uint64(n) > uint64(len(buf)) {
		return handOut(failure(errors.New("starling: the input is not in a buffer of starling_alloc")))
	}
	delete(inputs, ptr)
	return handOut(execute(buf[:n:n]))
}

// handOut keeps a document alive and returns its address and length.
func handOut(doc []byte) uint64 {
	result = doc
	return uint64(address(doc))<<32 | uint64(uint32(len(doc)))
}

func address(buf []byte) uint32 { return uint32(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))) }
