package main

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/starling-host/starling/host/guest"
)

// TestADescriptionThatFailsSaysWhy: what a module wrote before it ended is in no log
// yet, and its lines stay lines.
func TestADescriptionThatFailsSaysWhy(t *testing.T) {
	wrote := errors.New("could not be had: in _initialize: panicked\npanic: at start\n\n\tmain.go:7\nhint: \x1b[0m")
	var got bytes.Buffer
	code := explain(fmt.Errorf("loading: %w", &guest.DescriptionError{Err: wrote})).report(newPrinter(&got))
	want := "error: module refused: its description could not be had: in _initialize: panicked\n" +
		"  panic: at start\n  \n      main.go:7\n  hint: \\x1b[0m\n"
	if got.String() != want || code != exitRefused {
		t.Errorf("code %d\n%q, want\n%q", code, got.String(), want)
	}
}
