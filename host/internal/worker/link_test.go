package worker

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"github.com/starling-host/starling/host/internal/component"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/work"
)

// A process links a component to the same bytes as this one does, and refuses with the same words.
func TestComponentsAreLinkedInAProcess(t *testing.T) {
	values, err := os.ReadFile("../component/testdata/values.wasm")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"a component": values, "one that exports nothing": []byte("\x00asm\x0d\x00\x01\x00")} {
		want, refused := component.Link(work.Trusted(t.Context()), b)
		got, err := workers(t, Config{}).Link(t.Context(), b)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, and %d in this process", name, len(got), len(want))
		}
		if refused == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		there, ok := errors.AsType[*rewrite.Refusal](err)
		if here, is := errors.AsType[*rewrite.Refusal](refused); is && (!ok || *there != *here) {
			t.Errorf("%s: %v, in this process %v", name, err, here)
		}
	}
}

// A client that hangs up ends the linking, and its place is free.
func TestLinkingEndsWithItsContext(t *testing.T) {
	e := workers(t, Config{MaxCalls: 1})
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	if _, err := e.Link(ctx, []byte("\x00asm\x0d\x00\x01\x00")); err == nil {
		t.Error("linked after the end")
	}
	if n := len(children(t)); n > 0 {
		t.Errorf("%d processes are left", n)
	}
	if len(e.places) > 0 {
		t.Error("the place is not free")
	}
}
