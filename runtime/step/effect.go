package step

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/tool"
)

// MaxEffectName is the maximum length of the name of an effect, in bytes.
const MaxEffectName = 16 << 10

// Effect describes a side effect before it happens. All of it is recorded, and
// a replay must arrive at the same description.
type Effect struct {
	// Name describes the effect for readers of the log. It must be the same in every execution, so
	// it must not contain times or random values. It has at most [MaxEffectName] bytes of UTF-8.
	// The names of [event.ReservedEffect] belong to the runtime.
	Name string

	// Request is the content of the request. It may be nil if the name is a complete description.
	Request []byte

	// Unsafe marks an effect that must not happen twice, such as a payment. A record of the intent
	// is made durable first, so that after a crash the log shows that the effect may have happened.
	Unsafe bool
}

// SideEffect is [Do] for an effect that needs neither a request nor the
// idempotency key.
func SideEffect[T any](ctx context.Context, name string, fn func() (T, error)) (T, error) {
	attemptOf(ctx, "SideEffect") // Do would report its own name
	return Do(ctx, Effect{Name: name}, func(context.Context, string) (T, error) { return fn() })
}

// Do runs fn, records its result and returns the record; a replay returns the record without
// running fn.
//
// The value that Do returns has passed through the log in live mode too: encoded as canonical CBOR
// and decoded again. So code cannot depend on anything that a replay could not restore, such as a
// monotonic clock reading or an unexported field. An error of fn is recorded as well and returned
// as an [*EffectError]. If ctx has ended in the meantime, its type is timeout or cancelled. A panic
// of fn, a value that cannot be recorded, and a value that is too large are failures of the effect
// like any other.
//
// The key is the same for the same effect of the same call in every attempt and every replay, and
// different for every other effect. A server that supports idempotency keys will not act on it
// twice. fn must not call this package; its ctx prevents that, because a replay does not run fn.
//
// Before fn runs, everything recorded so far is made durable. fn does not run if the call replaces
// another one that has recorded this effect (see [ToolCall].IdempKey).
//
// Do returns other errors only when nothing was done or nothing more can be recorded:
// [ErrInvalidEffect], a [*MismatchError], [ErrRecordingEnded], a failure of the log. It panics
// outside of a run.
func Do[T any](ctx context.Context, e Effect, fn func(ctx context.Context, key string) (T, error)) (T, error) {
	a := attemptOf(ctx, "Do")
	var value T
	key, err := a.beginEffect(ctx, e)
	if err != nil {
		return value, err
	}
	happened := event.SideEffectRecorded{Name: e.Name, CallID: a.callID, Request: e.Request}
	if known, ok, err := a.recordedEffect(ctx, e.Name, e.Request); err != nil {
		return value, err
	} else if ok {
		happened.Value, happened.Error, happened.DurationUs = known.Value, known.Error, known.DurationUs
	} else if !a.c.replaying() {
		if err := a.c.barrier(ctx); err != nil {
			return value, err
		}
		began := a.c.clock()
		happened.Value, happened.Error = perform(ctx, key, len(e.Request), fn)
		happened.DurationUs = a.c.since(began)
	}
	happened, err = a.recordEffect(ctx, happened, readable[T])
	if err != nil {
		return value, err
	}
	if f := happened.Error; f != nil {
		after := time.Duration(min(max(f.RetryAfterMs, 0), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
		return value, &EffectError{Name: e.Name, Type: f.Type, Message: f.Message, After: after}
	}
	return value, canon.Unmarshal(happened.Value, &value)
}

// since returns the microseconds that have passed, in a live run.
func (c *Context) since(began time.Time) int64 { return max(c.clock().Sub(began), 0).Microseconds() }

// check refuses an effect that could not be recorded.
func (e Effect) check() error {
	switch {
	case e.Name == "":
		return fmt.Errorf("%w: its name is empty", ErrInvalidEffect)
	case event.ReservedEffect(e.Name):
		return fmt.Errorf("%w: the name %q belongs to the runtime", ErrInvalidEffect, e.Name)
	case len(e.Name) > MaxEffectName:
		return fmt.Errorf("%w: its name has %d bytes, at most %d are allowed", ErrInvalidEffect, len(e.Name), MaxEffectName)
	case !utf8.ValidString(e.Name):
		return fmt.Errorf("%w: its name %q is not UTF-8", ErrInvalidEffect, e.Name)
	case len(e.Request) > maxValueBytes:
		return fmt.Errorf("%w: the request of %q has %d bytes, at most %d are allowed", ErrInvalidEffect, e.Name, len(e.Request), maxValueBytes)
	}
	return nil
}

// beginEffect checks the effect, derives its key and records the intent if it
// needs one.
func (a *Attempt) beginEffect(ctx context.Context, e Effect) (key string, err error) {
	if err := e.check(); err != nil {
		return "", err
	}
	index, err := a.nextEffect()
	if err != nil {
		return "", err
	}
	key, err = idempotencyKey(a.c.cfg.RunID, a.keyID, index, e)
	if err != nil || !e.Unsafe {
		return key, err
	}
	value, err := canon.Marshal(event.Intent{Name: e.Name, Key: key})
	if err != nil {
		return "", fmt.Errorf("step: intent of %q: %w", e.Name, err)
	}
	intent := event.SideEffectRecorded{Name: event.EffectIntent, Value: value, CallID: a.callID}
	_, err = record(ctx, a, a.withFuel(intent), func(p *event.SideEffectRecorded, recorded event.SideEffectRecorded) error {
		a.c.takeFuel(p, recorded)
		return nil
	})
	return key, err
}

// nextEffect returns the number of effects that the attempt began before this one, or the reason
// why it may not begin another.
func (a *Attempt) nextEffect() (uint64, error) {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	if err := a.c.blocked(a); err != nil {
		return 0, err
	}
	a.effects++
	return a.effects - 1, nil
}

// idempotencyKey derives the key of an effect: 128 bits, in hexadecimal. It does not depend on the
// attempt, so a retry that does the same at the same position has the same key. It depends on name
// and request, so a retry that does something else there has another key.
func idempotencyKey(runID, callID string, index uint64, e Effect) (string, error) {
	b, err := canon.Marshal([]any{runID, callID, index, e.Name, e.Request})
	if err != nil {
		return "", fmt.Errorf("step: idempotency key of %q: %w", e.Name, err)
	}
	return canon.Sum(b).String()[:32], nil
}

// perform runs fn and returns the record: a value, or null and a failure.
func perform[T any](ctx context.Context, key string, requestBytes int, fn func(context.Context, string) (T, error)) (canon.Raw, *event.EffectError) {
	value, err := guarded(ctx, key, fn)
	if err != nil {
		return nil, effectFailure(ctx, err)
	}
	raw, err := canon.Marshal(value)
	if err == nil {
		// A payload and an envelope add one level of nesting each, and the event around the value must be
		// read back.
		err = canon.ValidInside(raw, 2)
	}
	if err != nil {
		err = fmt.Errorf("step: the effect's result cannot be recorded: %w", err)
	} else if err = readable[T](raw); err != nil {
		err = fmt.Errorf("step: the effect's result cannot be read back: %w", err)
	}
	if err != nil {
		return nil, effectFailure(context.Background(), err)
	}
	if n := requestBytes + len(raw); n > maxValueBytes {
		return nil, &event.EffectError{
			Type:    event.ErrorLimit,
			Message: fmt.Sprintf("step: request and result of the effect have %d bytes, at most %d are allowed", n, maxValueBytes),
		}
	}
	return raw, nil
}

// guarded runs fn unless ctx has ended, and turns its panic into an error.
func guarded[T any](ctx context.Context, key string, fn func(context.Context, string) (T, error)) (value T, err error) {
	if err := ctx.Err(); err != nil {
		return value, err
	}
	defer tool.Recover(&err)
	return fn(context.WithValue(ctx, attemptKey{}, (*Attempt)(nil)), key)
}

// readable returns the reason why raw is not the record of a T, or nil.
func readable[T any](raw canon.Raw) error {
	var value T
	return canon.Unmarshal(raw, &value)
}

// effectFailure returns the record of an error. The types timeout and cancelled mean that the
// context of the effect ended. A deadline that an effect sets itself does not count.
func effectFailure(ctx context.Context, err error) *event.EffectError {
	kind, after := tool.KindOf(err)
	errorType, retryAfter := string(kind), int64(0)
	switch {
	case errors.Is(err, tool.ErrPanicked):
		errorType = event.ErrorPanic
	case ctx.Err() != nil:
		errorType = interruptionType(ctx.Err())
	case errors.Is(err, tool.ErrLimit):
		errorType = event.ErrorLimit
	case errors.Is(err, tool.ErrFuel):
		errorType = event.ErrorFuel
	case kind == abi.ErrorSnooze:
		retryAfter = after.Milliseconds()
	}
	return &event.EffectError{Type: errorType, Message: recordable(err.Error()), RetryAfterMs: retryAfter}
}

// recordEffect records an effect, with the fuel spent before it. In a replay it passes the recorded
// value to check, unless the effect failed.
func (a *Attempt) recordEffect(ctx context.Context, effect event.SideEffectRecorded, check func(canon.Raw) error) (event.SideEffectRecorded, error) {
	effect, err := record(ctx, a, a.withFuel(effect), func(p *event.SideEffectRecorded, recorded event.SideEffectRecorded) error {
		if p.Value == nil || recorded.Error != nil {
			p.Value, p.Error = recorded.Value, recorded.Error
		}
		p.DurationUs = recorded.DurationUs
		a.c.takeFuel(p, recorded)
		if p.Error != nil {
			return nil
		}
		return check(p.Value)
	})
	if err == nil {
		a.endIfRecorded()
		err = a.cutOff()
	}
	return effect, err
}

// withFuel adds the fuel that the attempt has spent so far.
func (a *Attempt) withFuel(effect event.SideEffectRecorded) event.SideEffectRecorded {
	effect.Fuel = a.meter().Fuel
	return effect
}

// takeFuel copies the recorded fuel if the meter is ignored.
func (c *Context) takeFuel(p *event.SideEffectRecorded, recorded event.SideEffectRecorded) {
	if c.cfg.IgnoreMeter {
		p.Fuel = recorded.Fuel
	}
}

// Now returns the wall clock's time, in UTC and without a monotonic reading, so
// that it prints the same wherever it is replayed. It is recorded as "now".
//
// Now panics with a [*MismatchError], or the error of the log, if the time cannot be recorded or
// replayed; [CallTool] recovers that. It also panics outside of a run.
func Now(ctx context.Context) time.Time {
	ns := draw(ctx, "Now", event.EffectNow, func(c *Context) int64 { return c.clock().UnixNano() }, nil)
	return time.Unix(0, ns).UTC()
}

// Random returns 64 random bits from crypto/rand, recorded as "rand". It panics
// when [Now] does.
func Random(ctx context.Context) uint64 {
	return draw(ctx, "Random", event.EffectRandom, func(*Context) uint64 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		return binary.BigEndian.Uint64(b[:])
	}, nil)
}

// Seed returns 32 random bytes from crypto/rand, recorded as "seed", to seed a generator of the
// caller: one event for any amount of randomness. It panics when [Now] does.
func Seed(ctx context.Context) [32]byte {
	const size = 32
	return [size]byte(draw(ctx, "Seed", event.EffectSeed, func(*Context) []byte {
		b := make([]byte, size)
		_, _ = rand.Read(b) // never fails
		return b
	}, func(b []byte) error {
		if len(b) != size {
			return fmt.Errorf("step: a seed has %d bytes, want %d", len(b), size)
		}
		return nil
	}))
}

// draw records the result of live, or finds it in the recording, and returns the record. A check, unless
// it is nil, refuses a recorded value.
func draw[T any](ctx context.Context, function, name string, live func(*Context) T, check func(T) error) (value T) {
	a := attemptOf(ctx, function)
	effect := event.SideEffectRecorded{Name: name, CallID: a.callID}
	if known, ok, err := a.recordedEffect(ctx, name, nil); err != nil {
		panic(err)
	} else if ok {
		effect.Value = known.Value
	} else if !a.c.replaying() {
		raw, err := canon.Marshal(live(a.c))
		if err != nil {
			panic(err) // integers and byte strings can be encoded
		}
		effect.Value = raw
	}
	read := func(raw canon.Raw) error {
		err := canon.Unmarshal(raw, &value)
		if err == nil && check != nil {
			err = check(value)
		}
		return err
	}
	effect, err := a.recordEffect(ctx, effect, read)
	if err == nil { // a live run has not read it
		err = read(effect.Value)
	}
	if err != nil {
		panic(err)
	}
	return value
}
