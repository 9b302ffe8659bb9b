package main

import (
	"testing"

	"github.com/starling-host/starling/guest-sdk/go/starlingtest"
)

func TestHello(t *testing.T) {
	got := starlingtest.Host{}.Call(t, "hello", `{"name":"Ada"}`)
	if want := `{"greeting":"Hello, Ada."}`; got.Output != want {
		t.Errorf("got %s %v, want %s", got.Output, got.Failure, want)
	}
}
