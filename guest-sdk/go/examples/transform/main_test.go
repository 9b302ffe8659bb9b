package main

import (
	"testing"

	"github.com/starling-host/starling/guest-sdk/go/starlingtest"
)

func TestTransform(t *testing.T) {
	for input, want := range map[string]string{
		`{"text":""}`:              `{"words":0,"upper":"","counts":{}}`,
		`{"text":"To be, ß-b to"}`: `{"words":4,"upper":"TO BE, ß-B TO","counts":{"b":1,"be":1,"to":2}}`,
	} {
		if got := (starlingtest.Host{}).Call(t, "transform", input); got.Output != want {
			t.Errorf("got %s %v, want %s", got.Output, got.Failure, want)
		}
	}
}
