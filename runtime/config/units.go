package config

import (
	"math"
	"math/bits"
	"regexp"
	"strconv"
	"time"

	"github.com/starling-host/starling/eventlog/event"
)

// Word is text that is not empty.
type Word string

// DecodeYAML implements [Decoder].
func (w *Word) DecodeYAML(n *Node) error {
	if err := n.Decode((*string)(w)); err != nil {
		return err
	}
	if *w == "" {
		return n.Errorf("leave the key out for the default", "this must not be empty")
	}
	return nil
}

// Period is a time of a millisecond or more.
type Period time.Duration

// DecodeYAML implements [Decoder].
func (p *Period) DecodeYAML(n *Node) error {
	if err := n.Decode((*time.Duration)(p)); err != nil {
		return err
	}
	if time.Duration(*p) < time.Millisecond {
		return n.Errorf("leave the key out for the default", "this must be 1ms or more")
	}
	return nil
}

// Count is a whole number from 1 or text such as 10M; Size is one of bytes, such
// as 64MiB. Both are below 2^63.
type (
	Count uint64
	Size  uint64
)

// What units multiply by. Counts come in powers of ten, memory in powers of two.
var (
	countUnits = map[string]uint64{"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
	sizeUnits  = map[string]uint64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
)

// DecodeYAML implements [Decoder].
func (c *Count) DecodeYAML(n *Node) error {
	return withUnit(n, (*uint64)(c), countUnits, "write a number, or one with k, M, G or T for thousands and more, such as 10M")
}

// DecodeYAML implements [Decoder].
func (s *Size) DecodeYAML(n *Node) error {
	return withUnit(n, (*uint64)(s), sizeUnits, "write a number of bytes, or one with KiB, MiB or GiB, such as 64MiB")
}

var quantity = regexp.MustCompile(`^([1-9][0-9]*)([A-Za-z]+)$`)

func withUnit(n *Node, to *uint64, units map[string]uint64, hint string) error {
	var digits int64
	factor := uint64(1)
	if text, ok := n.Text(); ok {
		parts := quantity.FindStringSubmatch(text)
		if parts == nil || units[parts[2]] == 0 {
			return n.Errorf(hint, "this must be a positive whole number")
		}
		parsed, err := strconv.ParseInt(parts[1], 10, 64)
		if err != nil {
			return n.Errorf("", "this must be below 2^63")
		}
		digits, factor = parsed, units[parts[2]]
	} else if err := n.Expect(Number); err != nil {
		return err
	} else if digits, ok = n.value.(int64); !ok {
		return n.Errorf("", "this must be a whole number, 1 or more, below 2^63")
	} else if digits < 1 {
		return n.Errorf("leave the key out for the default", "this must be 1 or more")
	}
	high, total := bits.Mul64(uint64(digits), factor)
	if high != 0 || total > math.MaxInt64 {
		return n.Errorf("", "this must be below 2^63")
	}
	*to = total
	return nil
}

// CallLimits are the limits of a call in a file, whose schema says which of them it may have.
// Zero leaves a limit out.
type CallLimits struct {
	Fuel        uint64        `yaml:"fuel"`
	Memory      uint64        `yaml:"memory"`
	Timeout     time.Duration `yaml:"timeout"`
	Deadline    time.Duration `yaml:"deadline"` // the name of the timeout in a policy
	Input       uint64        `yaml:"input"`
	Output      uint64        `yaml:"output"`
	Log         uint64        `yaml:"log"`
	Effects     uint64        `yaml:"effects"`
	EffectBytes uint64        `yaml:"effect_bytes"`
}

// Sandbox returns the limits as they are recorded.
func (l CallLimits) Sandbox() event.SandboxLimits {
	const pageSize = 64 << 10
	return event.SandboxLimits{
		Fuel: l.Fuel, MemoryPages: uint32((l.Memory + pageSize - 1) / pageSize), TimeoutMs: (l.Timeout + l.Deadline).Milliseconds(),
		InputBytes: l.Input, OutputBytes: l.Output, LogBytes: l.Log, Effects: l.Effects, EffectBytes: l.EffectBytes,
	}
}
