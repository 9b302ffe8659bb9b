package step

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// Now returns the wall clock's time, in UTC and without a monotonic reading, so
// that it prints the same wherever it is replayed. It is recorded as "now".
//
// Now panics with a [*MismatchError], or the error of the log, when it cannot
// be recorded or replayed; [CallTool] recovers that. It also panics outside of
// a run.
func Now(ctx context.Context) time.Time {
	return draw(ctx, "Now", event.EffectNow, func(c *Context) int64 {
		return c.clock().UnixNano()
	}, func(raw canon.Raw) (time.Time, error) {
		var ns int64
		err := canon.Unmarshal(raw, &ns)
		return time.Unix(0, ns).UTC(), err
	})
}

// Random returns 64 random bits from crypto/rand, recorded as "rand". It panics
// when [Now] does.
func Random(ctx context.Context) uint64 {
	return draw(ctx, "Random", event.EffectRandom, func(*Context) uint64 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		return binary.BigEndian.Uint64(b[:])
	}, func(raw canon.Raw) (bits uint64, err error) {
		err = canon.Unmarshal(raw, &bits)
		return bits, err
	})
}

// Seed returns 32 random bytes from crypto/rand, recorded as "seed", with which
// a caller can run a generator of its own: one event for any amount of
// randomness. It panics when [Now] does.
func Seed(ctx context.Context) [32]byte {
	return draw(ctx, "Seed", event.EffectSeed, func(*Context) []byte {
		var b [32]byte
		_, _ = rand.Read(b[:]) // never fails
		return b[:]
	}, func(raw canon.Raw) (seed [32]byte, err error) {
		var b []byte
		if err := canon.Unmarshal(raw, &b); err != nil {
			return seed, err
		}
		if len(b) != len(seed) {
			return seed, fmt.Errorf("step: a seed has %d bytes, want %d", len(b), len(seed))
		}
		return [32]byte(b), nil
	})
}

// draw records what live returns, or finds it in the recording, and returns the
// decoded record.
func draw[L, T any](ctx context.Context, function, name string, live func(*Context) L, decode func(canon.Raw) (T, error)) T {
	s := mustScope(ctx, function)
	effect := event.SideEffectRecorded{Name: name, CallID: s.attempt.callID}
	if known, ok := s.known(name, nil); ok {
		effect.Value = known.Value
	} else if !s.c.replaying() {
		raw, err := canon.Marshal(live(s.c))
		if err != nil {
			panic(err) // integers and byte strings can be encoded
		}
		effect.Value = raw
	}
	effect, err := s.recordEffect(ctx, effect, func(raw canon.Raw) error {
		_, err := decode(raw)
		return err
	})
	if err != nil {
		panic(err)
	}
	value, err := decode(effect.Value)
	if err != nil {
		panic(err) // recordEffect has decoded it before
	}
	return value
}
