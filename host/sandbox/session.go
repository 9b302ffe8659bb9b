package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/starling-host/starling/abi"
)

// session is the host's side of one call: everything that the guest can reach through an
// import, and the bounds on it. It belongs to the goroutine and the instance of the call.
type session struct {
	limits   Limits
	instance *instance

	// imports is nil during start-up: then clock and randomness are
	// constants and the three imports end the call.
	imports Imports
	phase   string // the export that runs, in words

	// What ends the guest while it computes; see refill.
	budget   uint64
	slice    uint64
	refilled time.Time // when the last slice began
	stopAt   uint64
	stop     error
	record   bool // the machine records what the guest does
	attended bool // the caller's context and the deadline count
	ctx      context.Context
	deadline time.Time // zero for no deadline
	limited  context.Context
	cancel   context.CancelFunc // of limited

	clock  clock
	random *rand.ChaCha8 // nil until the call's first random_get
	held   *held         // the unfetched rest of the last http

	effects, effectBytes uint64

	name   string   // args[0]
	args   []string // the others
	env    []string
	stdin  []byte // the unread rest
	stdout []byte // of a command; nil for a tool, whose fd 1 is a log
	rules  uint32 // of the call, see Call.Rules
	log    capture

	watch *watch // nil without observers
	fault any    // a panic of Imports that was not an error
}

// beginStart begins the start-up of an instance: clock and randomness are constants.
func (s *session) beginStart() {
	s.name = startName
	s.log = capture{limit: s.limits.LogBytes}
	s.random = rand.NewChaCha8(startSeed)
	s.clock.observe(startTime)
}

// endStart ends the start-up: from here on clock and randomness are the call's
// and the log is the call's own. The monotonic clock continues, since runtimes
// keep readings of it.
func (s *session) endStart() {
	s.random = nil
	s.clock.forget()
	s.log = capture{limit: s.limits.LogBytes}
}

// attend lets the caller's context and the deadline end the guest.
func (s *session) attend(ctx context.Context, timeout bool) {
	s.attended, s.ctx, s.refilled = true, ctx, time.Now()
	if timeout {
		s.deadline = s.refilled.Add(time.Duration(s.limits.TimeoutMs) * time.Millisecond)
	}
}

// over reports whether the context or the deadline has ended the call.
func (s *session) over(now time.Time) bool {
	return s.ctx.Err() != nil || !s.deadline.IsZero() && !now.Before(s.deadline)
}

// outside is the context that imports get: the caller's, until the deadline. It
// is made when it is first needed, since most calls have no effects.
func (s *session) outside() context.Context {
	if s.limited == nil {
		if s.deadline.IsZero() {
			s.limited, s.cancel = context.WithCancel(s.ctx)
		} else {
			s.limited, s.cancel = context.WithDeadline(s.ctx, s.deadline)
		}
	}
	return s.limited
}

// meter returns the consumption of the call so far.
func (s *session) meter() Meter {
	return Meter{
		Fuel:       s.instance.fuel.Get(),
		PeakMemory: uint64(s.instance.memory.Size()), // memory never shrinks in a call
		Log:        s.log.text(),
	}
}

// guestStopped is the panic that unwinds a guest. The engine returns it, wrapped,
// as the error of the guest's export.
type guestStopped struct{ err error }

func (e *guestStopped) Error() string { return e.err.Error() }

func (s *session) end(err error) { panic(&guestStopped{err}) }

// interruption is the error of an interrupted call.
func (s *session) interruption() error {
	if s.ctx.Err() != nil {
		return abi.ErrCancelled
	}
	return fmt.Errorf("%w: the call took longer than %d ms", abi.ErrTimeout, s.limits.TimeoutMs)
}

// effect counts one recorded effect before it happens. During start-up it refuses it.
func (s *session) effect(name string, bytes uint64) {
	if s.imports == nil {
		s.end(s.failure(abi.ErrPanicked, name+" was called during "+s.phase+", which may have no effects"))
	}
	if s.effects++; s.effects > s.limits.Effects {
		s.end(fmt.Errorf("%w: more than %d effects", abi.ErrEffects, s.limits.Effects))
	}
	s.recorded(bytes)
}

// recorded counts the recorded bytes of an effect.
func (s *session) recorded(bytes uint64) {
	if s.effectBytes += bytes; s.effectBytes > s.limits.EffectBytes {
		s.end(fmt.Errorf("%w: effects of more than %d bytes", abi.ErrLimit, s.limits.EffectBytes))
	}
}

// cross calls into Imports. If it panics with an error, that ends the guest and is the
// error of the call. Any other panic is a bug in the host and propagates to Call's caller,
// instead of being recorded as the guest's.
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
