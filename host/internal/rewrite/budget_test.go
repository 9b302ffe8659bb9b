package rewrite

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
)

// crowds are modules of n small items of one kind, and how many of the budget's steps each item takes
// at least.
var crowds = map[string]struct {
	module func(n int) []byte
	steps  int
}{
	"types": {func(n int) []byte {
		return raw(string(sectionOf(wasm.SectionType, n, bytes.Repeat([]byte{0x60, 0, 0}, n))))
	}, 2},
	"parameters": {func(n int) []byte {
		return raw(string(sectionOf(wasm.SectionType, n/100, bytes.Repeat(append([]byte{0x60, 100}, append(bytes.Repeat([]byte{0x7f}, 100), 0)...), n/100))))
	}, 1},
	"element items": {func(n int) []byte {
		list := append([]byte{0, 0x41, 0, 0x0b}, append(wasm.AppendU32(nil, uint32(n)), make([]byte, n)...)...)
		return raw(section(wasm.SectionType, "\x01\x60\x00\x00"), section(wasm.SectionFunction, "\x01\x00"), section(wasm.SectionTable, string(append([]byte{1, 0x70, 0}, wasm.AppendU32(nil, uint32(n))...))),
			string(sectionOf(wasm.SectionElement, 1, list)), section(wasm.SectionCode, "\x01\x02\x00\x0b"))
	}, 2},
	"functions": {func(n int) []byte { return bodies(n, nil) }, 4},
	"locals": {func(n int) []byte {
		return (&wasmtest.Module{Funcs: []wasmtest.Func{{Locals: each(n, wasm.LocalGroup{Count: 1, Type: wasm.I32}), Code: code()}}}).Bytes()
	}, 4},
	"instructions": {func(n int) []byte { return bodies(1, bytes.Repeat([]byte{1}, n)) }, 4},
	"floats":       {func(n int) []byte { return bodies(1, bytes.Repeat([]byte{0x91}, n)) }, 4},
	"labels": {func(n int) []byte {
		return bodies(1, append([]byte{0x41, 0, 0x0e}, append(wasm.AppendU32(nil, uint32(n)), make([]byte, n+1)...)...))
	}, 4},
}

func each[T any](n int, item T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = item
	}
	return all
}

// TestTheGateChargesEachItem: the steps grow as the items do, and a budget of fewer, or of less memory
// than the module takes, refuses the module.
func TestTheGateChargesEachItem(t *testing.T) {
	const n = 4_000
	for kind, list := range crowds {
		b := list.module(n)
		all := work.New(t.Context(), work.ForSize(len(b)))
		if _, err := Rewrite(all, b, DefaultLimits(), Options{}); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if all.Steps() < int64(n*list.steps) {
			t.Errorf("%d %s take %d steps", n, kind, all.Steps())
		}
		for what, l := range map[string]work.Limits{"steps": {Steps: all.Steps() - 1, Bytes: 1 << 40}, "bytes": {Steps: 1 << 40, Bytes: int64(2*len(b)) - 1}} {
			_, err := Rewrite(work.New(t.Context(), l), b, DefaultLimits(), Options{})
			if r, ok := errors.AsType[*Refusal](err); !ok || r.Hint == "" {
				t.Errorf("%s with too few %s: %v", kind, what, err)
			}
		}
		hangUp := errors.New("hung up")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(hangUp)
		if _, err := Rewrite(work.New(ctx, work.ForSize(len(b))), b, DefaultLimits(), Options{}); !errors.Is(err, hangUp) {
			t.Errorf("%s after the end: %v", kind, err)
		}
	}
}

// TestARewrittenModuleIsHeld: code that the rewriter makes many times longer costs what it becomes.
func TestARewrittenModuleIsHeld(t *testing.T) {
	b := bodies(100, bytes.Repeat([]byte{0x91, 0xbc, 0x1a}, 3_000)) // the bits of f32.sqrt, without operands
	r, err := Rewrite(work.Trusted(t.Context()), b, DefaultLimits(), Options{})
	if err != nil || len(r.Wasm) < 4*len(b) {
		t.Fatalf("%d bytes become %d: %v", len(b), len(r.Wasm), err)
	}
	_, err = Rewrite(work.New(t.Context(), work.Limits{Steps: 1 << 40, Bytes: int64(2 * len(r.Wasm))}), b, DefaultLimits(), Options{})
	if _, ok := errors.AsType[*Refusal](err); !ok {
		t.Errorf("twice the rewritten module is enough: %v", err)
	}
}
