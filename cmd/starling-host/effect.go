package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
)

// describeRequest returns the request line of a message/http request without
// its protocol version: "GET http://host/path".
func describeRequest(request []byte) string {
	line, _, _ := strings.Cut(string(request), "\r\n")
	return strings.TrimSuffix(line, " HTTP/1.1")
}

// describeExchange says what came back: the status line and the size, or the
// failure.
func describeExchange(v guest.Exchange) string {
	if v.Status != 0 {
		return fmt.Sprintf("%s: %s", v.Status, v.Text)
	}
	line, _, _ := strings.Cut(string(v.Response), "\r\n")
	return fmt.Sprintf("%s, %s", strings.TrimPrefix(line, "HTTP/1.1 "), formatSize(uint64(len(v.Response))))
}

// denied is a request that the network policy refused.
type denied struct {
	host string // HOST[:PORT] of its URL
	why  string
}

// lastDenied returns the last request of a run if the policy refused it: a tool
// that fails then has failed for that reason, as far as anyone can tell from
// outside. A log that cannot be read has none.
func lastDenied(ctx context.Context, log eventlog.EventLog, runID string) *denied {
	events, err := log.Read(ctx, runID)
	if err != nil {
		return nil
	}
	for _, ev := range slices.Backward(events) {
		effect, err := ev.AsSideEffectRecorded()
		if err == nil && len(effect.Request) > 0 {
			return deniedRequest(effect)
		}
	}
	return nil
}

func deniedRequest(effect event.SideEffectRecorded) *denied {
	var v guest.Exchange
	if canon.Unmarshal(effect.Value, &v) != nil || v.Status != abi.StatusDenied {
		return nil
	}
	_, target, _ := strings.Cut(describeRequest(effect.Request), " ")
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return nil
	}
	return &denied{host: u.Host, why: v.Text}
}
