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

// denied is a request, or a call, that the policy refused.
type denied struct {
	host string // HOST[:PORT] of its URL; empty when it was the call that was refused
	why  string
}

// lastDenied returns the last request of a run, or its call, if the policy refused
// it: a tool that fails then has failed for that reason, as far as anyone can tell
// from outside. A log that cannot be read has none.
func lastDenied(ctx context.Context, log eventlog.EventLog, runID string) *denied {
	events, err := log.Read(ctx, runID)
	if err != nil {
		return nil
	}
	for _, ev := range slices.Backward(events) {
		effect, err := ev.AsSideEffectRecorded()
		var verdicts event.Verdicts
		if err == nil && effect.Name == event.EffectPolicy && canon.Unmarshal(effect.Value, &verdicts) == nil && !verdicts.Allowed() {
			return &denied{why: verdicts.Reason()}
		}
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
