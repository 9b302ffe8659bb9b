package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/tool"
)

// session is the host's side of one call: all that the guest can reach through
// an import, and the bounds on it. It belongs to the goroutine that makes the
// call.
type session struct {
	limits   Limits
	instance *instance

	// imports is nil while the guest is sealed: then clock and randomness are
	// constants and the three imports end the call.
	imports Imports
	phase   string // the export that runs, in words

	// What ends the guest while it computes; see refill.
	budget   uint64
	stopAt   uint64
	stop     error
	attended bool // the caller's context and the deadline count

	clock  clock
	random *rand.ChaCha8 // nil until the call's first random_get
	held   *held         // what the last http has left to fetch

	effects, effectBytes uint64

	name   string // args[0]
	stdin  []byte // what is left of it
	stdout []byte // of a command; nil for a tool, whose fd 1 is a log
	log    capture

	final *event.Meter // set once the instance is gone
	fault any          // a panic of Imports that was not an error
}

type sessionKey struct{}

// errDeadline is the cause of a context that Call's own deadline ended.
var errDeadline = errors.New("sandbox: deadline")

// newSession returns a sealed session.
func newSession(limits Limits) *session {
	s := &session{limits: limits, log: capture{limit: limits.LogBytes}}
	s.random = rand.NewChaCha8(sealedSeed)
	s.clock.observe(sealedTime)
	return s
}

// open ends the sealed part: from here on clock and randomness are the call's,
// the imports answer, and count and log are the call's own. The monotonic
// clock goes on, since runtimes keep readings of it.
func (s *session) open(imports Imports) {
	s.imports = imports
	s.random = nil
	s.clock.forget()
	s.log = capture{limit: s.limits.LogBytes}
}

// meter is what the call has consumed so far, or in the end.
func (s *session) meter() event.Meter {
	switch {
	case s.final != nil:
		return *s.final
	case s.instance == nil:
		return event.Meter{}
	}
	return event.Meter{
		Fuel:       s.instance.fuel.Get(),
		PeakMemory: uint64(s.instance.memory.Size()), // memory never shrinks
		Log:        s.log.text(),
	}
}

// close takes the last reading and drops the instance. An instance is never
// used again: after a trap its memory is in no defined state.
func (s *session) close(ctx context.Context) {
	last := s.meter()
	s.final = &last
	if s.instance != nil {
		s.instance.module.Close(ctx)
		s.instance = nil
	}
}

// ending is the panic that unwinds a guest. The engine hands it back, wrapped,
// as the error of the guest's export.
type ending struct{ err error }

func (e *ending) Error() string { return e.err.Error() }

func (s *session) end(err error) { panic(&ending{err}) }

// interruption says how the world ended a call.
func (s *session) interruption(ctx context.Context) error {
	if context.Cause(ctx) == errDeadline {
		return fmt.Errorf("%w: the call took longer than %d ms", tool.ErrTimeout, s.limits.TimeoutMs)
	}
	return tool.ErrCancelled
}

// effect counts one recorded effect before it happens. Sealed, it refuses it.
func (s *session) effect(name string, bytes uint64) {
	if s.imports == nil {
		s.end(s.failure(tool.ErrPanicked, name+" was called during "+s.phase+", which may have no effects"))
	}
	if s.effects++; s.effects > s.limits.Effects {
		s.end(fmt.Errorf("%w: more than %d effects", tool.ErrLimit, s.limits.Effects))
	}
	s.recorded(bytes)
}

// recorded counts the bytes that an effect puts into the log.
func (s *session) recorded(bytes uint64) {
	if s.effectBytes += bytes; s.effectBytes > s.limits.EffectBytes {
		s.end(fmt.Errorf("%w: effects of more than %d bytes", tool.ErrLimit, s.limits.EffectBytes))
	}
}

// cross calls into Imports. An error that it panics with ends the guest and is
// the error of the call. Any other panic is a mistake in the host and goes
// through to Call's caller, instead of being written down as the guest's.
func cross[T any](s *session, f func() T) T {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case runtime.Error:
			s.fault = v
			s.end(errFault)
		case error:
			s.end(v)
		default:
			s.fault = v
			s.end(errFault)
		}
	}()
	return f()
}

var errFault = errors.New("sandbox: the host's import panicked")
