package main

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/narrate"
)

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
	var v event.Exchange
	if canon.Unmarshal(effect.Value, &v) != nil || v.Status != abi.StatusDenied {
		return nil
	}
	_, target, _ := strings.Cut(narrate.Request(effect.Request), " ")
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return nil
	}
	return &denied{host: u.Host, why: v.Text}
}
