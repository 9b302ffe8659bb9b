package worker

import (
	"context"
	"os"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/event"
)

// meterReading is what travels with each effect.
type meterReading = event.Meter

// asking is the world as a guest in a worker sees it: it asks the host, with the
// meter's reading, and waits for the answer.
type asking struct {
	worker *worker
	meter  func() meterReading
	log    string // as of the last reading that was sent
}

// changed reports whether a reading has another log than the one before. A log
// only ever grows.
func (a *asking) changed(m meterReading) bool {
	changed := m.Log != a.log
	a.log = m.Log
	return changed
}

// ask sends an effect and returns the answer, which is valid until the next
// one. A worker that has lost its host has nothing left to do.
func (a *asking) ask(o op, request []byte) []byte {
	w, m := a.worker, a.meter()
	frame := appendMeter(append(begin(w.frame, kindEffect), byte(o)), m, a.changed(m))
	if err := w.send(appendBytes(frame, request)); err != nil {
		os.Exit(1)
	}
	answer, err := w.inbox.next()
	if err != nil {
		os.Exit(0)
	}
	w.inbox.compute()
	switch answer.kind {
	case kindAnswer:
		return answer.body
	case kindEnd:
		panic(errEnded)
	}
	panic(errUnexpected)
}

// Now is the import starling:v1.now.
func (a *asking) Now(context.Context) int64 {
	f := fields{b: a.ask(opNow, nil)}
	return int64(f.uint())
}

// Random is the import starling:v1.random.
func (a *asking) Random(context.Context) uint64 {
	f := fields{b: a.ask(opRandom, nil)}
	return f.uint()
}

// Seed is the key behind WASI's random_get.
func (a *asking) Seed(context.Context) (seed [32]byte) {
	copy(seed[:], a.ask(opSeed, nil))
	return seed
}

// HTTP is the import starling:v1.http.
func (a *asking) HTTP(_ context.Context, request []byte) ([]byte, abi.Status) {
	f := fields{b: a.ask(opHTTP, request)}
	status := abi.Status(int64(f.uint()))
	return append([]byte(nil), f.b...), status
}
