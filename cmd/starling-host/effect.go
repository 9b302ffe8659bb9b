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
)

// httpValue is the recorded value of an HTTP effect (spec/event.md).
type httpValue struct {
	Response []byte     `cbor:"response"`
	Status   abi.Status `cbor:"status"`
	Text     string     `cbor:"text"`
}

// describeRequest returns the request line of a message/http request without
// its protocol version: "GET http://host/path".
func describeRequest(request []byte) string {
	line, _, _ := strings.Cut(string(request), "\r\n")
	return strings.TrimSuffix(line, " HTTP/1.1")
}

// describe says what came back: the status line and the size, or the failure.
func (v httpValue) describe() string {
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

// deniedRequests returns the requests of a run that the policy refused, one for
// each host. A log that cannot be read has none: they are for a hint.
func deniedRequests(ctx context.Context, log eventlog.EventLog, runID string) []denied {
	events, err := log.Read(ctx, runID)
	if err != nil {
		return nil
	}
	var all []denied
	for _, ev := range events {
		d, ok := deniedRequest(ev)
		if ok && !slices.ContainsFunc(all, func(other denied) bool { return other.host == d.host }) {
			all = append(all, d)
		}
	}
	return all
}

func deniedRequest(ev event.Event) (denied, bool) {
	if ev.Kind != event.KindSideEffectRecorded {
		return denied{}, false
	}
	effect, err := ev.AsSideEffectRecorded()
	if err != nil || len(effect.Request) == 0 {
		return denied{}, false
	}
	var v httpValue
	if canon.Unmarshal(effect.Value, &v) != nil || v.Status != abi.StatusDenied {
		return denied{}, false
	}
	_, target, _ := strings.Cut(describeRequest(effect.Request), " ")
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return denied{}, false
	}
	return denied{host: u.Host, why: v.Text}, true
}
