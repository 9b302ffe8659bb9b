package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

const timelineHelp = `Print a run as a timeline: the time of each event since the first, its kind and its
main values. Long values are cut. With --full they are not, and each request is
printed with its response; export has the bytes.`

func (a *app) showCommand() *cobra.Command {
	var full bool
	cmd := readCommand(&cobra.Command{
		Use:     "show [DB] RUN",
		Short:   "print a run as a timeline",
		Long:    timelineHelp,
		Example: "  starling-host show @last\n  starling-host show starling.db @last --full",
	}, func(ctx context.Context, log database, args []string) error { return a.show(ctx, log, args, full) })
	cmd.Flags().BoolVar(&full, "full", false, "print everything uncut, and what requests sent and received")
	return cmd
}

func (a *app) show(ctx context.Context, log database, args []string, full bool) error {
	events, err := readRun(ctx, log, args[1])
	if err != nil {
		return err
	}
	first, last := events[0], events[len(events)-1]
	status := terminalStatus(last.Kind)
	a.stdout.printf("run      %s\nstarted  %s\nstatus   %s, %s\n", first.RunID,
		formatTime(first.Timestamp), styled{statusStyle(status), status}, plural(len(events), "event"))
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
		facts, err := event.Describe(ev)
		if err != nil {
			facts = "cannot be read: " + starling.PlainError(err)
		}
		if facts = printable(facts); !full {
			facts = shorten(facts, showWidth)
		}
		after := fmt.Sprintf("%5d  %+8.3fs", ev.Seq, time.Duration(ev.Timestamp-first.Timestamp).Seconds())
		lines := []string{facts}
		if room := a.stdout.width() - showIndent; !full && room >= minShowRoom {
			lines = wrapped(facts, room)
		}
		a.stdout.printf("%s  %s  %s\n", styled{faint, after}, styled{kindStyle(ev.Kind), fmt.Sprintf("%-19s", ev.Kind.Short())}, lines[0])
		for _, line := range lines[1:] {
			a.stdout.printf("%*s%s\n", showIndent, "", line)
		}
		if full {
			a.showExchange(ev)
		}
	}
	return nil
}

// wrapped returns the lines of a text, each of at most width characters. A line ends after a space
// if there is one near its end.
func wrapped(text string, width int) (lines []string) {
	rest := []rune(text)
	for len(rest) > width {
		cut := width
		for back := width; back > width/2; back-- {
			if rest[back-1] == ' ' {
				cut = back
				break
			}
		}
		lines, rest = append(lines, string(rest[:cut])), rest[cut:]
	}
	return append(lines, string(rest))
}

// showExchange prints the request of an effect, and the response that it brought, line by line.
func (a *app) showExchange(ev event.Event) {
	effect, err := ev.AsSideEffectRecorded()
	if err != nil || len(effect.Request) == 0 {
		return
	}
	for _, line := range printableLines(string(effect.Request)) {
		a.stdout.printf("%16s  > %s\n", "", line)
	}
	var answer event.Exchange
	if canon.Unmarshal(effect.Value, &answer) != nil {
		return
	}
	for _, line := range printableLines(string(answer.Response)) {
		a.stdout.printf("%16s  < %s\n", "", line)
	}
}

// kindStyle highlights events that end a run or a call.
func kindStyle(k event.Kind) style {
	switch k {
	case event.KindRunCompleted:
		return good
	case event.KindRunFailed, event.KindToolCallFailed, event.KindTurnFailed, event.KindBudgetExceeded:
		return bad
	case event.KindRunCancelled, event.KindRunResumed:
		return middle
	}
	return plain
}

// The facts of one event: how many characters are shown of them, where they begin, and how
// many a line of a terminal must have room for if they are not to begin at its left.
const (
	showWidth   = 200
	showIndent  = 39
	minShowRoom = 30
)

const exportHelp = `Write the events of a run as NDJSON, one object per line (docs/cli-json.md).

Each line has the event's envelope as hexadecimal CBOR and its hash. From these anyone
can check the chain. The payload is repeated as JSON for reading. Export checks
nothing: see validate.`

func (a *app) exportCommand() *cobra.Command {
	return readCommand(&cobra.Command{
		Use:     "export [DB] RUN",
		Short:   "write a run as NDJSON",
		Long:    exportHelp,
		Example: "  starling-host export @last",
	}, func(ctx context.Context, log database, args []string) error {
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
