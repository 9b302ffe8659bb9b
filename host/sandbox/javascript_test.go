//go:build js

package sandbox

import (
	"errors"
	"testing"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/wasm"
)

// TestTooDeepIsNotDecided makes a guest nest more calls than the stack of this engine
// holds, as TestV8 starts it for this test: the call has no outcome, and the next one
// succeeds.
func TestTooDeepIsNotDecided(t *testing.T) {
	nested := asm().I32(0).I32(0).Index(wasm.OpCall, 2)
	_, err := load(t, compiler(), tiny(nested).Bytes(), Limits{Depth: MaxDepth}).Call(t.Context(), Call{Input: []byte("x")}, &world{})
	if !errors.Is(err, ErrTooDeep) || !errors.Is(err, abi.ErrHost) {
		t.Errorf("error %v", err)
	}
	got, err := load(t, compiler(), tiny(output("executed")).Bytes(), Limits{}).Call(t.Context(), Call{Input: []byte("x")}, &world{})
	if err != nil || string(got.Output) != "executed" {
		t.Errorf("the next call: %q, %v", got.Output, err)
	}
}
