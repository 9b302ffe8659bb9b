package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/serve"
)

const treeHelp = `Print what a run did as a tree: turns, calls, requests and waits, each with the
number of its first event, a bar for when it happened, and how long it took. The reason
of a failure comes first. Long idle times are cut out of the bars and marked with ":".

With --events, print each event: the time since the first, its kind and its main values.
Long values are cut. With --full they are not, and each request is printed with its
response, and each call with its log; export has the bytes.`

func (a *app) showCommand() *cobra.Command {
	var list, full bool
	cmd := readCommand(&cobra.Command{
		Use:     "show [DB] RUN",
		Short:   "print what a run did, or its events",
		Long:    treeHelp,
		Example: "  starling-host show @last\n  starling-host show @last --events\n  starling-host show starling.db @last --full",
	}, func(ctx context.Context, log database, args []string) error {
		return a.show(ctx, log, args, list || full, full)
	})
	cmd.Flags().BoolVar(&list, "events", false, "print each event on a line")
	cmd.Flags().BoolVar(&full, "full", false, "print each event uncut, with requests, responses and logs")
	return cmd
}

func (a *app) show(ctx context.Context, log database, args []string, list, full bool) error {
	events, err := readRun(ctx, log, args[1])
	if err != nil {
		return err
	}
	run, err := span.Of(events)
	if err != nil && !list {
		return err
	}
	first, last := events[0], events[len(events)-1]
	status := terminalStatus(last.Kind)
	a.stdout.Printf("run      %s\nstarted  %s\nstatus   %s, %s\n", first.RunID,
		formatTime(first.Timestamp), terminal.StatusStyle(status).Of(status), display.Plural(len(events), "event"))
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
	if list {
		a.stdout.Printf("\n")
		a.showEvents(events, full)
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
	a.showTree(run)
	return nil
}

// The head of a run: how many characters are shown of a goal or a call, and how
// many bytes and lines of an error.
const (
	maxGoalShown = 200
	maxHead      = 600
	maxHeadLines = 6
)

// The columns of a tree: the number of the event, the name, the bar and the duration. A terminal without
// room for names and bars gets no bars. A file gets whole names, unless COLUMNS is set.
const (
	treeWidth    = 80
	treeMost     = 140
	treeEvent    = 7
	treeBar      = 24
	treeDuration = 11
	treeName     = 20
	treeRows     = 60 // of the spans directly below one other
)

// showTree prints the spans of a run, and what they come to.
func (a *app) showTree(run *span.Run) {
	columns, _ := strconv.Atoi(os.Getenv("COLUMNS"))
	columns = cmp.Or(a.stdout.Width(), columns)
	width, bars := min(cmp.Or(columns, treeWidth), treeMost), treeBar
	if width < treeEvent+treeName+treeBar+treeDuration {
		bars = 0
	}
	name := max(width-treeEvent-bars-treeDuration, 1)
	rows := run.Rows(treeRows, nil)
	texts := make([]string, len(rows))
	for i, row := range rows {
		text, detail := row.Text()
		if detail != "" {
			text += "  " + detail
		} else if row.Kind == span.Call {
			text += " " + row.Input
		}
		texts[i] = strings.Repeat("  ", min(row.Depth, 8)) + display.Printable(text)
		if columns > 0 {
			texts[i] = display.Shorten(texts[i], name-1)
		}
	}
	for _, text := range texts {
		name = max(name, min(utf8.RuneCountInString(text)+1, treeMost-treeBar))
	}
	axis, all := span.NewAxis(run, 0, run.End), formatSpan(run.End)
	if bars > 0 {
		all = fmt.Sprintf("0%*s", bars-1, all)
	}
	a.stdout.Printf("\n%s\n", terminal.Faint.Of(fmt.Sprintf("event  %-*s%s", name, "", all)))
	for i, row := range rows {
		look := terminal.Plain
		switch {
		case row.Bad():
			look = terminal.Bad
		case row.State == span.Cancelled, row.State == span.Lost:
			look = terminal.Middle
		case row.Hidden, row.Kind == span.Wait:
			look = terminal.Faint
		}
		pad, bar, took := fmt.Sprintf("%*s", max(name-utf8.RuneCountInString(texts[i]), 1), ""), "", row.Took()
		if bars > 0 {
			bar = spanBar(axis, row)
		}
		switch {
		case took != "":
			took = fmt.Sprintf("%*s", treeDuration, took)
		case bars == 0:
			pad = ""
		default:
			bar = strings.TrimRight(bar, " ")
		}
		a.stdout.Printf("%s  %s%s%s%s\n", terminal.Faint.Of(fmt.Sprintf("%5d", row.First)), look.Of(texts[i]), pad, look.Of(bar), took)
	}
	var facts []string
	fact := func(there bool, text string) {
		if there {
			facts = append(facts, text)
		}
	}
	fact(run.Turns > 0, display.Plural(run.Turns, "turn"))
	fact(run.Calls > 0, display.Plural(run.Calls, "call"))
	fact(run.FailedCalls > 0, display.Plural(run.FailedCalls, "failed call"))
	fact(run.Requests > 0, display.Plural(run.Requests, "request"))
	fact(run.Status4xx > 0, display.Plural(run.Status4xx, "4xx response"))
	fact(run.Status5xx > 0, display.Plural(run.Status5xx, "5xx response"))
	fact(run.Fuel > 0, "fuel "+display.Digits(run.Fuel))
	fact(run.InputTokens+run.OutputTokens > 0, fmt.Sprintf("%d tokens in, %d out", run.InputTokens, run.OutputTokens))
	fact(run.CostUSD > 0, fmt.Sprintf("$%.4f", run.CostUSD))
	fact(run.Waited > 0, "waited "+formatSpan(run.Waited))
	if len(facts) > 0 {
		a.stdout.Printf("\n")
		for _, line := range a.stdout.Wrap(strings.Join(facts, ", "), 0) {
			a.stdout.Printf("%s\n", line)
		}
	}
}

// spanBar draws when a row happened.
func spanBar(axis span.Axis, row span.Row) string {
	line := []byte(strings.Repeat(" ", treeBar))
	for _, f := range axis.Folds {
		line[min(int((f.At+0.015)*treeBar), treeBar-1)] = ':'
	}
	begin := min(int(axis.At(row.Start)*treeBar), treeBar-1)
	end := min(max(int(axis.At(row.End)*treeBar+0.5), begin+1), treeBar)
	mark := "="
	switch {
	case row.Start == row.End:
		mark = "|"
	case row.State != span.OK && row.State != span.Open:
		mark = "x"
	}
	return string(line[:begin]) + strings.Repeat(mark, end-begin) + string(line[end:])
}

// formatSpan returns a duration in nanoseconds for a column.
func formatSpan(ns int64) string { return display.Duration(time.Duration(ns)) }

// showEvents prints each event on a line, or uncut.
func (a *app) showEvents(events []event.Event, full bool) {
	for _, ev := range events {
		facts, err := event.Describe(ev)
		if err != nil {
			facts = "cannot be read: " + starling.PlainError(err)
		}
		if facts = display.Printable(facts); !full {
			facts = display.Shorten(facts, showWidth)
		}
		after := fmt.Sprintf("%5d  %+8.3fs", ev.Seq, time.Duration(ev.Timestamp-events[0].Timestamp).Seconds())
		lines := a.stdout.Wrap(facts, showIndent)
		a.stdout.Printf("%s  %s  %s\n", terminal.Faint.Of(after), kindStyle(ev.Kind).Of(fmt.Sprintf("%-19s", ev.Kind.Short())), lines[0])
		for _, line := range lines[1:] {
			a.stdout.Printf("%*s%s\n", showIndent, "", line)
		}
		if full {
			a.showTexts(ev)
		}
	}
}

// showTexts prints the request of an effect and its response, or the log of a call, line by line.
func (a *app) showTexts(ev event.Event) {
	block := func(mark, text string) {
		for _, line := range terminal.PrintableLines(text) {
			for _, part := range a.stdout.Wrap(line, textIndent) {
				a.stdout.Printf("%16s  %s %s\n", "", mark, part)
			}
		}
	}
	switch ev.Kind {
	case event.KindToolCallCompleted, event.KindToolCallFailed:
		var outcome event.Meter
		_ = canon.Unmarshal(ev.Payload, &outcome) // or there is no log to print
		block("|", outcome.Log)
	case event.KindSideEffectRecorded:
		effect, err := ev.AsSideEffectRecorded()
		if err != nil || len(effect.Request) == 0 {
			return
		}
		block(">", string(effect.Request))
		var answer event.Exchange
		if canon.Unmarshal(effect.Value, &answer) == nil {
			block("<", string(answer.Response))
		}
	}
}

// kindStyle highlights events that end a run or a call.
func kindStyle(k event.Kind) terminal.Style {
	switch k {
	case event.KindRunCompleted:
		return terminal.Good
	case event.KindRunFailed, event.KindToolCallFailed, event.KindTurnFailed, event.KindBudgetExceeded:
		return terminal.Bad
	case event.KindRunCancelled, event.KindRunResumed:
		return terminal.Middle
	}
	return terminal.Plain
}

// The facts of one event: how many characters are shown of them, where they begin and where
// their texts do.
const (
	showWidth  = 200
	showIndent = 39
	textIndent = 20
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
