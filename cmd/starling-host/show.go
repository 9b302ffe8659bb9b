package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/serve"
)

func (a *app) showCommand() *cobra.Command {
	var list, full bool
	cmd := readCommand("show [DB] RUN", "print what a run did, or its events", func(ctx context.Context, log database, args []string) error {
		events, err := readRun(ctx, log, args[1])
		if err != nil {
			return err
		}
		run, err := span.Of(events)
		if err != nil && !list && !full {
			return err
		}
		first, last := events[0], events[len(events)-1]
		status := eventlog.RunSummary{TerminalKind: last.Kind}.Status()
		a.stdout.Printf("run      %s\nstarted  %s\nstatus   %s, %s\n", first.RunID,
			display.Time(time.Unix(0, first.Timestamp)), terminal.StatusStyle(status).Of(status), display.Plural(len(events), "event"))
		if started, err := first.AsRunStarted(); err == nil && started.Caller != nil {
			a.stdout.Printf("caller   %s\n", started.Caller)
		}
		if !last.Kind.Terminal() {
			jobs, err := serve.JobsOf(ctx, log, first.RunID)
			if err != nil {
				return err
			}
			if job := jobs[first.RunID]; job != nil {
				a.stdout.Head("job", terminal.Plain, job.String())
			}
		}
		if list || full {
			a.stdout.Printf("\n")
			view.Events(a.stdout, events, full)
			return nil
		}
		if what := run.Goal; run.Model == "" && len(run.Spans) > 0 { // a call without an agent
			a.stdout.Head("call", terminal.Plain, display.Shorten(display.Printable(what+" "+run.Spans[0].Input), maxGoalShown))
		} else if what != "" {
			a.stdout.Head("goal", terminal.Plain, display.Shorten(display.Printable(what), maxGoalShown))
		}
		if run.Error != "" {
			tool, why := run.Reason()
			text := why[:min(len(why), maxHead)]
			if lines := strings.SplitAfterN(text, "\n", maxHeadLines+1); len(lines) > maxHeadLines {
				text = text[:len(text)-len(lines[maxHeadLines])]
			}
			if more := len(why) - len(text); more > 0 {
				text = strings.ToValidUTF8(text, "") + fmt.Sprintf("... %s more bytes, see --full", display.Digits(uint64(more)))
			}
			if tool == "" {
				tool, text = run.ErrorType, strings.TrimPrefix(text, run.ErrorType+": ")
			}
			where := display.Shorten(display.Printable(tool), maxGoalShown)
			if run.Cause != span.None {
				where += fmt.Sprintf(" (event %d)", run.Spans[run.Cause].Last)
			}
			a.stdout.Head("error", terminal.StatusStyle(status), where+": "+text)
			if run.Cause != span.None && run.Spans[run.Cause].Kind == span.Call && run.Spans[run.Cause].Fuel > 0 { // a module's
				a.stdout.Printf("debug    %s --at %d\n", display.Command("starling-host debug", named(args[0]), first.RunID), run.Spans[run.Cause].Last)
			}
		}
		if run.Encrypted {
			a.stdout.Printf("some payloads are encrypted; the data key decrypts them\n")
		}
		view.Tree(a.stdout, run)
		return nil
	})
	cmd.Flags().BoolVar(&list, "events", false, "print each event on a line")
	cmd.Flags().BoolVar(&full, "full", false, "print each event uncut, with requests, responses and logs")
	return cmd
}

// The head of a run: how many characters are shown of a goal or a call, and how
// many bytes and lines of an error.
const (
	maxGoalShown = 200
	maxHead      = 600
	maxHeadLines = 6
)

func (a *app) exportCommand() *cobra.Command {
	return readCommand("export [DB] RUN", "write a run as NDJSON", func(ctx context.Context, log database, args []string) error {
		events, err := readRun(ctx, log, args[1])
		if err != nil {
			return err
		}
		for _, ev := range events {
			line, err := event.ToJSON(ev)
			if err != nil {
				return err
			}
			if err := a.writeDocument(line); err != nil {
				return err
			}
		}
		return nil
	})
}

// readRun returns the events of the run that a command's argument names.
func readRun(ctx context.Context, log database, run string) ([]event.Event, error) {
	runID, err := starling.FindRun(ctx, log, run)
	if err != nil {
		return nil, err
	}
	return log.Read(ctx, runID)
}
