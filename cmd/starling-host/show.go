package main

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
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
	first, last := events[0], events[len(events)-1]
	status := terminalStatus(last.Kind)
	a.stdout.printf("run      %s\nstarted  %s\nstatus   %s, %s\n", first.RunID,
		formatTime(first.Timestamp), styled{statusStyle(status), status}, plural(len(events), "event"))
	if started, err := first.AsRunStarted(); err == nil && started.Caller != nil {
		a.stdout.printf("caller   %s\n", started.Caller)
	}
	if !last.Kind.Terminal() {
		jobs, err := jobsOf(ctx, log, first.RunID)
		if err != nil {
			return err
		}
		if job := jobs[first.RunID]; job != nil {
			a.stdout.printf("job      %s\n", job)
		}
	}
	if list {
		a.stdout.printf("\n")
		a.showEvents(events, full)
		return nil
	}
	run, err := span.Of(events)
	if err != nil {
		return err
	}
	a.showTree(run, events)
	return nil
}

// The columns of a tree of 80 characters or more: the number of the event, the name, the bar and
// the duration.
const (
	treeWidth    = 80
	treeMost     = 140
	treeBar      = 24
	treeDuration = 9
	treeRows     = 60 // of the spans directly below one other
)

// showTree prints the spans of a run.
func (a *app) showTree(run *span.Run, events []event.Event) {
	if run.Goal != "" {
		a.stdout.printf("goal     %s\n", shorten(printable(run.Goal), treeWidth-10))
	}
	if run.Error != "" {
		where := ""
		if run.Cause != span.None {
			where = fmt.Sprintf(" (event %d)", run.Spans[run.Cause].Last)
		}
		a.stdout.printf("%s    %s%s\n", styled{statusStyle(terminalStatus(events[len(events)-1].Kind)), "error"}, run.ErrorType+": "+run.Error, where)
	}
	if run.Encrypted {
		a.stdout.printf("some payloads are encrypted; the data key decrypts them\n")
	}
	width := a.stdout.width()
	if width == 0 {
		width = treeWidth
	}
	name := min(max(width, treeWidth), treeMost) - 7 - treeBar - 2 - treeDuration
	axis := span.NewAxis(run)
	a.stdout.printf("\n%s\n", styled{faint, fmt.Sprintf("%5s  %-*s%-*s%*s", "event", name, "", treeBar-len(formatSpan(run.End)), "0", len(formatSpan(run.End)), formatSpan(run.End))})

	for _, row := range run.Rows(treeRows) {
		text, look := describeSpan(row, events)
		bar, took := spanBar(axis, row), formatSpan(row.End-row.Start)
		if row.Approximate {
			took = "<" + took
		}
		switch {
		case row.State == span.Open:
			took = "open"
		case row.Start == row.End:
			took, bar = "", strings.TrimRight(bar, " ")
		}
		if took != "" {
			took = fmt.Sprintf("  %*s", treeDuration-2, took)
		}
		text = shorten(strings.Repeat("  ", min(row.Depth, 8))+text, name-1)
		a.stdout.printf("%s  %s%s%s%s\n", styled{faint, fmt.Sprintf("%5d", row.First)}, styled{look, text},
			strings.Repeat(" ", max(name-utf8.RuneCountInString(text), 0)), styled{look, bar}, took)
	}
	var facts []string
	for _, f := range []struct {
		n    int
		unit string
	}{{run.Turns, "turn"}, {run.Calls, "call"}, {run.FailedCalls, "failed call"}, {run.Requests, "request"}, {run.Status4xx, "4xx response"}, {run.Status5xx, "5xx response"}} {
		if f.n > 0 {
			facts = append(facts, plural(f.n, f.unit))
		}
	}
	if run.Fuel > 0 {
		facts = append(facts, "fuel "+display.Digits(run.Fuel))
	}
	if run.InputTokens+run.OutputTokens > 0 {
		facts = append(facts, fmt.Sprintf("%d tokens in, %d out", run.InputTokens, run.OutputTokens))
	}
	if run.CostUSD > 0 {
		facts = append(facts, fmt.Sprintf("$%.4f", run.CostUSD))
	}
	if run.Waited > 0 {
		facts = append(facts, "waited "+formatSpan(run.Waited))
	}
	if len(facts) > 0 {
		a.stdout.printf("\n%s\n", strings.Join(facts, ", "))
	}
}

// describeSpan returns the text of a row, and how it looks.
func describeSpan(s span.Row, events []event.Event) (string, style) {
	if s.Hidden {
		return fmt.Sprintf("... %d more: show --events", s.Count), faint
	}
	text, look := s.Name, plain
	switch s.Kind {
	case span.Call:
		// An event that the log lacks has no arguments: numbers come from the log.
		if i := int(s.First) - 1; i < len(events) {
			text = event.Line(events[i], treeMost)
		}
	case span.Answer:
		text = fmt.Sprintf("%s: %d tokens in, %d out", s.Name, s.InputTokens, s.OutputTokens)
	case span.Wait:
		text, look = "wait "+s.Name, faint
	case span.Effect:
		if s.Status != 0 {
			text = fmt.Sprintf("%d %s", s.Status, s.Name)
		}
		if s.Status >= 400 {
			look = bad
		}
		if s.Count > 1 {
			text += fmt.Sprintf(" x%d", s.Count)
		}
	}
	switch s.State {
	case span.Failed:
		look = bad
	case span.Cancelled, span.Lost:
		look = middle
	}
	switch {
	case s.State == span.OK, s.State == span.Open, s.Kind == span.Turn:
	case s.Kind != span.Call && s.ErrorType != "":
		text = s.ErrorType + ": " + text
	default:
		text = string(s.State) + ": " + text
	}
	return printable(text), look
}

// spanBar draws when a row happened.
func spanBar(axis span.Axis, row span.Row) string {
	line := []byte(strings.Repeat(" ", treeBar))
	for _, f := range axis.Folds {
		line[min(int((f.At+0.015)*treeBar), treeBar-1)] = ':'
	}
	begin := min(int(axis.At(row.Start)*treeBar), treeBar-1)
	end := min(max(int(axis.At(row.End)*treeBar+0.5), begin+1), treeBar)
	mark := byte('=')
	switch {
	case row.Start == row.End:
		mark = '|'
	case row.State != span.OK && row.State != span.Open:
		mark = 'x'
	}
	for i := begin; i < end; i++ {
		line[i] = mark
	}
	return string(line)
}

// formatSpan returns a duration in nanoseconds for a column.
func formatSpan(ns int64) string { return formatDuration(time.Duration(ns)) }

// showEvents prints each event on a line, or uncut.
func (a *app) showEvents(events []event.Event, full bool) {
	for _, ev := range events {
		facts, err := event.Describe(ev)
		if err != nil {
			facts = "cannot be read: " + starling.PlainError(err)
		}
		if facts = printable(facts); !full {
			facts = shorten(facts, showWidth)
		}
		after := fmt.Sprintf("%5d  %+8.3fs", ev.Seq, time.Duration(ev.Timestamp-events[0].Timestamp).Seconds())
		lines := a.stdout.wrap(facts, showIndent)
		a.stdout.printf("%s  %s  %s\n", styled{faint, after}, styled{kindStyle(ev.Kind), fmt.Sprintf("%-19s", ev.Kind.Short())}, lines[0])
		for _, line := range lines[1:] {
			a.stdout.printf("%*s%s\n", showIndent, "", line)
		}
		if full {
			a.showTexts(ev)
		}
	}
}

// wrap returns the lines of a text that begins at a column of a terminal, or one line if there is
// no terminal, or too narrow a one.
func (p *printer) wrap(text string, column int) []string {
	if width := p.width() - column; width >= minShowRoom {
		return wrapped(printable(text), width)
	}
	return []string{text}
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

// showTexts prints the request of an effect and its response, or the log of a call, line by line.
func (a *app) showTexts(ev event.Event) {
	block := func(mark, text string) {
		for _, line := range printableLines(text) {
			for _, part := range a.stdout.wrap(line, textIndent) {
				a.stdout.printf("%16s  %s %s\n", "", mark, part)
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

// The facts of one event: how many characters are shown of them, where they begin and where
// their texts do, and how many a line of a terminal must have room for if they are not to begin at
// its left.
const (
	showWidth   = 200
	showIndent  = 39
	textIndent  = 20
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
