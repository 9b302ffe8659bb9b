package main

import (
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// statuses are the states of a run, as they are printed and as --status takes them.
var statuses = []string{eventlog.StatusCompleted, eventlog.StatusFailed, eventlog.StatusCancelled, eventlog.StatusOpen}

// terminalStatus returns the state of a run whose last event is of kind k.
func terminalStatus(k event.Kind) string { return eventlog.RunSummary{TerminalKind: k}.Status() }

// statusFlag is a flag that takes one of the states. The Starling runtime calls an open
// run "in progress".
type statusFlag struct{ choiceFlag }

func (f statusFlag) Set(s string) error {
	if s == "in progress" || s == "in-progress" || s == "in_progress" {
		s = eventlog.StatusOpen
	}
	return f.choiceFlag.Set(s)
}
