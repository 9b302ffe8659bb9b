package hostcall

import (
	"runtime"
	"unsafe"
)

// The host never calls into the guest while the guest is inside an import, so
// no goroutine stack moves under a buffer and noescape holds.

//go:wasmimport starling:v1 now
func now() int64

//go:wasmimport starling:v1 random
func random() uint64

//go:wasmimport starling:v1 http
//go:noescape
func http(req unsafe.Pointer, reqLen uint32, buf unsafe.Pointer, bufCap uint32) int64

// Now returns the host's clock in nanoseconds of Unix time.
func Now() int64 { return now() }

// Random returns 64 uniform random bits.
func Random() uint64 { return random() }

// HTTP hands req to the host, which writes its answer to buf. The result is
// the length of the answer, which may exceed len(buf), or a negative status.
// An empty req fetches the rest of the last answer. An exchange takes time on the clock of
// package time, so timers that were due meanwhile fire before HTTP returns.
func HTTP(req, buf []byte) int64 {
	n := http(unsafe.Pointer(unsafe.SliceData(req)), uint32(len(req)), unsafe.Pointer(unsafe.SliceData(buf)), uint32(len(buf)))
	runtime.KeepAlive(req)
	runtime.KeepAlive(buf)
	if len(req) > 0 {
		runtime.Gosched()
	}
	return n
}
