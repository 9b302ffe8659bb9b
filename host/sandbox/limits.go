package sandbox

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/starling-host/starling/host/internal/rewrite"
	"lukechampine.com/blake3"
)

// Limits are the bounds of one call. InputBytes limits a part of the input that
// this package does not know, and is enforced by host/guest.
type Limits struct {
	Fuel        uint64 `json:"fuel"`         // units of spec/determinism.md
	MemoryPages uint32 `json:"memory_pages"` // 64 KiB pages, 1 to 65536
	Depth       uint32 `json:"depth"`        // weighted frame slots
	TimeoutMs   int64  `json:"timeout_ms"`   // wall clock
	InputBytes  uint64 `json:"input_bytes"`
	OutputBytes uint64 `json:"output_bytes"`
	LogBytes    uint64 `json:"log_bytes"` // kept from the guest's output on fd 1 and 2
	Effects     uint64 `json:"effects"`   // recorded effects per call
	EffectBytes uint64 `json:"effect_bytes"`
}

// Meter is the consumption of a call.
type Meter struct {
	Fuel       uint64 // units of spec/determinism.md
	PeakMemory uint64 // bytes of linear memory
	Log        string // the guest's output on fd 1 and 2, valid UTF-8, capped
}

// Digest is a BLAKE3-256 digest.
type Digest [32]byte

// String returns the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Sum returns the digest of b.
func Sum(b []byte) Digest { return blake3.Sum256(b) }

// Bounds on the limits themselves. Beyond them a limit would not hold: a
// module has at most 65536 pages, and the engine's own call stack, which is
// not the same on every machine, has to be out of reach of Depth.
const (
	maxMemoryPages = 65536

	// MaxDepth is the greatest Limits.Depth.
	MaxDepth = 1 << 20

	// interpreterDepth is the default of Limits.Depth on an interpreter, whose call
	// stack holds 2000 frames. A frame takes at least 16 slots of Depth; a leaf and the
	// host's functions take none, so there is room for a few more. With a higher limit,
	// a call that nests deeper is a HostFailure there.
	interpreterDepth = (2000 - 16) * 16
)

// DefaultLimits returns the bounds of a call without other limits.
func DefaultLimits() Limits {
	return Limits{
		Fuel:        20_000_000_000,
		MemoryPages: rewrite.DefaultMemoryPages,
		Depth:       rewrite.DefaultDepth,
		TimeoutMs:   5 * 60 * 1000,
		InputBytes:  1 << 20,
		OutputBytes: 1 << 20,
		LogBytes:    64 << 10,
		Effects:     1000,
		EffectBytes: 8 << 20,
	}
}

// WithDefaults gives every limit that is zero its default, except for the depth, whose
// default is the engine's.
func WithDefaults(l Limits) Limits {
	d := DefaultLimits()
	l.Fuel = cmp.Or(l.Fuel, d.Fuel)
	l.MemoryPages = cmp.Or(l.MemoryPages, d.MemoryPages)
	l.TimeoutMs = cmp.Or(l.TimeoutMs, d.TimeoutMs)
	l.InputBytes = cmp.Or(l.InputBytes, d.InputBytes)
	l.OutputBytes = cmp.Or(l.OutputBytes, d.OutputBytes)
	l.LogBytes = cmp.Or(l.LogBytes, d.LogBytes)
	l.Effects = cmp.Or(l.Effects, d.Effects)
	l.EffectBytes = cmp.Or(l.EffectBytes, d.EffectBytes)
	return l
}

// complete gives every limit that is zero its default, so that nothing that a
// guest does is ever unbounded.
func (e *Engine) complete(l Limits) (Limits, error) {
	l = WithDefaults(l)
	if e.interpreter {
		l.Depth = cmp.Or(l.Depth, interpreterDepth)
	}
	l.Depth = cmp.Or(l.Depth, DefaultLimits().Depth)
	switch {
	case l.MemoryPages > maxMemoryPages:
		return l, fmt.Errorf("sandbox: a limit of %d memory pages: a module has at most %d", l.MemoryPages, maxMemoryPages)
	case l.Depth > MaxDepth:
		return l, fmt.Errorf("sandbox: a depth limit of %d: at most %d can be kept on every engine", l.Depth, MaxDepth)
	case l.Fuel > math.MaxInt64:
		return l, fmt.Errorf("sandbox: a fuel limit of %d: the counter ends at %d", l.Fuel, int64(math.MaxInt64))
	case l.TimeoutMs < 0 || l.TimeoutMs > maxTimeoutMs:
		return l, fmt.Errorf("sandbox: a timeout of %d ms is not between 1 and %d", l.TimeoutMs, int64(maxTimeoutMs))
	}
	return l, nil
}

// maxTimeoutMs is the longest time that fits a time.Duration.
const maxTimeoutMs = math.MaxInt64 / 1_000_000
