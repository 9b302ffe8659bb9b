package main

import (
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// The states of a run, as they are printed and as --status takes them.
const (
	statusCompleted = eventlog.StatusCompleted
	statusFailed    = eventlog.StatusFailed
	statusCancelled = eventlog.StatusCancelled
	statusOpen      = "open" // no terminal event: in progress, or its process died
)

var statuses = []string{statusCompleted, statusFailed, statusCancelled, statusOpen}

// terminalStatus returns the state of a run whose last event is of kind k.
func terminalStatus(k event.Kind) string {
	switch k {
	case event.KindRunCompleted:
		return statusCompleted
	case event.KindRunFailed:
		return statusFailed
	case event.KindRunCancelled:
		return statusCancelled
	}
	return statusOpen
}

func runStatus(run eventlog.RunSummary) string { return terminalStatus(run.TerminalKind) }

// listStatus returns what a listing calls a state.
func listStatus(status string) string {
	if status == statusOpen {
		return eventlog.StatusInProgress
	}
	return status
}
