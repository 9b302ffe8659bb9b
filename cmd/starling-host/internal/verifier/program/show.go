//go:build js

package main

import (
	"strconv"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
)

// Bounds of a page. The program checks also the events that it does not show.
const (
	mostRows    = 2000
	mostBars    = 500
	mostBelow   = 20        // bars below one other
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
	Requests int    `json:"requests"`
	Fuel     string `json:"fuel"`  // of all calls, if they were metered
	Error    string `json:"error"` // why it failed
	Bars     []bar  `json:"bars"`
	Rows     []row  `json:"rows"`
	More     int    `json:"more"` // events that are not shown
}

// bar is a line of the waterfall.
type bar struct {
	Name   string `json:"name"`
	Detail string `json:"detail"`
	Kind   string `json:"kind"`
	Bad    bool   `json:"bad"`
	Depth  int    `json:"depth"`
	X      string `json:"x"` // percent
	W      string `json:"w"`
	Took   string `json:"took"`
	Seq    uint64 `json:"seq"` // of its first event
}

// row is one event.
type row struct {
	Seq     uint64       `json:"seq"`
	Kind    string       `json:"kind"`
	Family  string       `json:"family"`
	Depth   int          `json:"depth"`
	Call    string       `json:"call"`  // that it belongs to
	Since   string       `json:"since"` // the first event
	Line    string       `json:"line"`
	Hash    string       `json:"hash"`
	Texts   []event.Text `json:"texts,omitempty"`
	Payload string       `json:"payload"` // indented JSON, or why there is none
}

// show describes a run.
func show(events []event.Event) *shown {
	first := events[0]
	s := &shown{RunID: line(first.RunID), Started: time.Unix(0, first.Timestamp).UTC().Format("2006-01-02 15:04:05.000 UTC"), More: max(0, len(events)-mostRows)}
	var b span.Builder
	room := mostInRows
	for i, e := range events {
		_ = b.Add(e) // an unreadable event says so in its line
		if i >= mostRows {
			continue
		}
		r := row{Seq: e.Seq, Kind: e.Kind.Short(), Family: e.Kind.Family(), Since: "+" + display.Duration(time.Duration(e.Timestamp-first.Timestamp)),
			Line: event.Line(e, longestLine), Hash: e.Hash().String()}
		if at := b.At(); at != span.None {
			r.Depth = min(b.Run().Spans[at].Depth+1, 4)
			if in := b.Run().CallOf(at); in != span.None {
				r.Call = line(b.Run().Spans[in].CallName())
			}
		}
		if len(e.Payload) > min(mostPayload, room) {
			r.Payload = display.Size(uint64(len(e.Payload))) + ", checked but not shown"
		} else {
			r.Texts, r.Payload = event.LongTexts(e.Payload), event.Indented(e.Payload)
			room -= len(e.Payload)
		}
		s.Rows = append(s.Rows, r)
	}
	run := b.Run()
	s.Title, s.Duration, s.Calls, s.Requests = line(run.Goal), display.Duration(time.Duration(run.End)), run.Calls, run.Requests
	if run.ErrorType != "" {
		s.Error = line(run.ErrorType + ": " + run.Error)
	}
	if run.Fuel > 0 {
		s.Fuel = display.Digits(run.Fuel)
	}
	axis, rows := span.NewAxis(run, 0, run.End), run.Rows(mostBelow, nil)
	percent := func(x float64) string { return strconv.FormatFloat(100*x, 'f', 2, 64) + "%" }
	for _, r := range rows[:min(len(rows), mostBars)] {
		name, detail := r.Text()
		from, to := axis.At(r.Start), axis.At(r.End)
		s.Bars = append(s.Bars, bar{line(name), line(detail), string(r.Kind), r.Bad(), min(r.Depth, 8), percent(from), percent(max(to-from, 0.002)), r.Took(), r.First})
	}
	return s
}

func line(text string) string {
	return display.Shorten(display.Printable(text[:min(len(text), 4*longestLine)]), longestLine)
}
