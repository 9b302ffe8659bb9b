package main

import (
	"fmt"
	"net/http"
	"testing"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/starlingtest"
)

func TestLookup(t *testing.T) {
	for _, c := range []struct {
		name     string
		statuses []int // of the responses, in order
		output   string
		kind     starling.Kind
	}{
		{"a customer", []int{200}, `{"id":"7","name":"Ada","plan":"pro"}`, ""},
		{"a service that is busy once", []int{503, 200}, `{"id":"7","name":"Ada","plan":"pro"}`, ""},
		{"a service that stays busy", []int{503, 503}, "", starling.KindTransient},
		{"no customer", []int{404}, "", starling.KindDiscard},
	} {
		left := c.statuses
		host := starlingtest.Host{HTTP: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/customers/7" || r.Header.Get("Authorization") != "Bearer {{secret:CUSTOMER_TOKEN}}" {
				t.Errorf("%s: %s %v", c.name, r.URL, r.Header)
			}
			w.WriteHeader(left[0])
			left = left[1:]
			fmt.Fprint(w, `{"id":"7","name":"Ada","plan":"pro","since":2019}`)
		})}
		got := host.Call(t, "lookup", `{"id":"7","base_url":"http://crm"}`)
		if got.Output != c.output || got.Failure != nil && got.Failure.Kind != c.kind || len(got.Exchanges) != len(c.statuses) {
			t.Errorf("%s: got %s %v after %d exchanges", c.name, got.Output, got.Failure, len(got.Exchanges))
		}
	}
}
