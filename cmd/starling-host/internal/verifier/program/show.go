//go:build js

package main

import (
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
)

// Bounds of a page. The program checks also the events that it does not show.
const (
	mostRows    = 2000
	longestLine = 400       // characters
	mostPayload = 256 << 10 // bytes of the payload of one event
	mostInRows  = 8 << 20   // bytes of all payloads
)

// shown is a run as the page shows it. All texts are printable.
type shown struct {
	RunID    string `json:"run_id"`
	Title    string `json:"title"`
	Started  string `json:"started"`
	Duration string `json:"duration"`
	Calls    int    `json:"calls"` // of tools
	Fuel     string `json:"fuel"`  // of all calls, if they were metered
	Rows     []row  `json:"rows"`
	More     int    `json:"more"` // events that are not shown
}

// row is one event.
type row struct {
	Seq     uint64       `json:"seq"`
	Kind    string       `json:"kind"`
	Family  string       `json:"family"`
	Depth   int          `json:"depth"`
	Since   string       `json:"since"` // the first event
	Line    string       `json:"line"`
	Hash    string       `json:"hash"`
	Texts   []event.Text `json:"texts,omitempty"`
	Payload string       `json:"payload"` // indented JSON, or why there is none
}

// show describes a run.
func show(run []event.Event) *shown {
	first, last := run[0], run[len(run)-1]
	s := &shown{RunID: display.Printable(first.RunID), Started: time.Unix(0, first.Timestamp).UTC().Format("2006-01-02 15:04:05.000 UTC"),
		Duration: display.Duration(time.Duration(last.Timestamp - first.Timestamp)), More: max(0, len(run)-mostRows)}
	if start, err := first.AsRunStarted(); err == nil {
		s.Title = display.Shorten(display.Printable(start.Goal), longestLine)
	}
	fuel, room := uint64(0), mostInRows
	for i, e := range run {
		if e.Kind == event.KindToolCallScheduled {
			s.Calls++
		}
		if done, err := e.AsToolCallCompleted(); err == nil {
			fuel += done.Fuel
		} else if failed, err := e.AsToolCallFailed(); err == nil {
			fuel += failed.Fuel
		}
		if i >= mostRows {
			continue
		}
		r := row{Seq: e.Seq, Kind: e.Kind.Short(), Family: e.Kind.Family(), Depth: e.Kind.Depth(),
			Since: "+" + display.Duration(time.Duration(e.Timestamp-first.Timestamp)), Line: event.Line(e, longestLine), Hash: e.Hash().String()}
		if len(e.Payload) > min(mostPayload, room) {
			r.Payload = display.Size(uint64(len(e.Payload))) + ", checked but not shown"
		} else {
			r.Texts, r.Payload = event.LongTexts(e.Payload), event.Indented(e.Payload)
			room -= len(e.Payload)
		}
		s.Rows = append(s.Rows, r)
	}
	if fuel > 0 {
		s.Fuel = display.Digits(fuel)
	}
	return s
}
