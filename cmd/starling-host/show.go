package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
)

const timelineHelp = `Print a run as a timeline: when each event happened, counted from the first, its
kind, and what matters of it. Long values are cut; export has all of them.`

func (a *app) showCommand() *cobra.Command {
	return readCommand(&cobra.Command{
		Use:     "show [DB] RUN",
		Short:   "print a run as a timeline",
		Long:    timelineHelp,
		Example: "  starling-host show @last",
	}, a.show)
}

func (a *app) show(ctx context.Context, log database, args []string) error {
	events, err := readRun(ctx, log, args[1])
	if err != nil {
		return err
	}
	first, last := events[0], events[len(events)-1]
	a.stdout.printf("run      %s\nstarted  %s\nstatus   %s, %s\n", first.RunID,
		formatTime(first.Timestamp), terminalStatus(last.Kind), plural(len(events), "event"))
	if !last.Kind.Terminal() {
		jobs, err := jobsOf(ctx, log, first.RunID)
		if err != nil {
			return err
		}
		if job := jobs[first.RunID]; job != nil {
			a.stdout.printf("job      %s\n", job)
		}
	}
	a.stdout.printf("\n")
	for _, ev := range events {
		facts, err := starling.DescribeEvent(ev)
		if err != nil {
			facts = "cannot be read: " + starling.PlainError(err)
		}
		a.stdout.printf("%5d  %9s  %-19s  %s\n", ev.Seq, fmt.Sprintf("%+.3fs", time.Duration(ev.Timestamp-first.Timestamp).Seconds()), starling.ShortKind(ev.Kind), shorten(printable(facts), showWidth))
	}
	return nil
}

// showWidth bounds the facts of one event, in characters.
const showWidth = 200
