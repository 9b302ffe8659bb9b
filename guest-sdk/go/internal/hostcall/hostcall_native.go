//go:build !wasip1

package hostcall

import "sync"

// Host is a stand-in for the three imports, with the meaning that they have in
// a module.
type Host interface {
	Now() int64
	Random() uint64
	HTTP(req, buf []byte) int64
}

// Guest is the program's own side: the exports starling_describe and
// starling_execute, without the addresses.
type Guest struct {
	Describe func() []byte
	Execute  func(envelope []byte) []byte
}

var (
	// inUse is held from Use to release, so that tests that run in parallel
	// call tools one after another, as a module instance would.
	inUse sync.Mutex
	// host is written under inUse and read by the tool that runs meanwhile.
	host Host
	// guest is written once, while the program's packages are initialised.
	guest Guest
)

// Export hands over the program's own side.
func Export(g Guest) { guest = g }

// Use installs h until release is called and returns the program's own side.
// It waits while another host is installed.
func Use(h Host) (g Guest, release func()) {
	inUse.Lock()
	host = h
	return guest, func() {
		host = nil
		inUse.Unlock()
	}
}

func installed() Host {
	if host == nil {
		panic("starling: no host: the clock, randomness and HTTP exist only while a tool is called, by the host or by starlingtest")
	}
	return host
}

// Now returns the host's clock in nanoseconds of Unix time.
func Now() int64 { return installed().Now() }

// Random returns 64 uniform random bits.
func Random() uint64 { return installed().Random() }

// HTTP hands req to the host, which writes its answer to buf. The result is
// the length of the answer, which may exceed len(buf), or a negative status.
// An empty req fetches the rest of the last answer.
func HTTP(req, buf []byte) int64 { return installed().HTTP(req, buf) }
