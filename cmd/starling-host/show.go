package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
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
			a.head("job", plain, job.String())
		}
	}
	if list {
		a.stdout.printf("\n")
		a.showEvents(events, full)
		return nil
	}
	if what := run.Goal; run.Model == "" && len(run.Spans) > 0 { // a call without an agent
		a.head("call", plain, shorten(printable(what+" "+run.Spans[0].Input), maxGoalShown))
	} else if what != "" {
		a.head("goal", plain, shorten(printable(what), maxGoalShown))
	}
	if run.Error != "" {
		tool, why := run.Reason()
		text := why[:min(len(why), maxHead)]
		if lines := strings.SplitAfterN(text, "\n", maxHeadLines+1); len(lines) > maxHeadLines {
			text = text[:len(text)-len(lines[maxHeadLines])]
		}
		if more := len(why) - len(text); more > 0 {
			text = strings.ToValidUTF8(text, "") + fmt.Sprintf("... %s more bytes, see --full", grouped(uint64(more)))
		}
		if tool == "" {
			tool, text = run.ErrorType, strings.TrimPrefix(text, run.ErrorType+": ")
		}
		where := shorten(printable(tool), maxGoalShown)
		if run.Cause != span.None {
			where += fmt.Sprintf(" (event %d)", run.Spans[run.Cause].Last)
		}
		a.head("error", statusStyle(status), where+": "+text)
		if run.Cause != span.None && run.Spans[run.Cause].Kind == span.Call && run.Spans[run.Cause].Fuel > 0 { // a module's
			a.stdout.printf("debug    %s --at %d\n", pasteable("starling-host debug", named(args[0]), first.RunID), run.Spans[run.Cause].Last)
		}
	}
	if run.Encrypted {
		a.stdout.printf("some payloads are encrypted; the data key decrypts them\n")
	}
	a.showTree(run)
	return nil
}

// The head of a run: where its texts begin, how many characters are shown of a goal or a call, and how
// many bytes and lines of an error.
const (
	headIndent   = 9
	maxGoalShown = 200
	maxHead      = 600
	maxHeadLines = 6
)

// head prints a named text, on lines below each other.
func (a *app) head(name string, look style, text string) {
	a.stdout.printf("%s", styled{look, fmt.Sprintf("%-*s", headIndent, name)})
	lines := printableLines(text)
	if len(lines) == 0 {
		lines = []string{""}
	}
	for i, line := range lines {
		for j, part := range a.stdout.wrap(line, headIndent) {
			a.stdout.printf("%*s%s\n", min(i+j, 1)*headIndent, "", part)
		}
	}
}

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
	columns = cmp.Or(a.stdout.width(), columns)
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
		texts[i] = strings.Repeat("  ", min(row.Depth, 8)) + printable(text)
		if columns > 0 {
			texts[i] = shorten(texts[i], name-1)
		}
	}
	for _, text := range texts {
		name = max(name, min(utf8.RuneCountInString(text)+1, treeMost-treeBar))
	}
	axis, all := span.NewAxis(run, 0, run.End), formatSpan(run.End)
	if bars > 0 {
		all = fmt.Sprintf("0%*s", bars-1, all)
	}
	a.stdout.printf("\n%s\n", styled{faint, fmt.Sprintf("event  %-*s%s", name, "", all)})
	for i, row := range rows {
		look := plain
		switch {
		case row.Bad():
			look = bad
		case row.State == span.Cancelled, row.State == span.Lost:
			look = middle
		case row.Hidden, row.Kind == span.Wait:
			look = faint
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
		a.stdout.printf("%s  %s%s%s%s\n", styled{faint, fmt.Sprintf("%5d", row.First)}, styled{look, texts[i]}, pad, styled{look, bar}, took)
	}
	var facts []string
	fact := func(there bool, text string) {
		if there {
			facts = append(facts, text)
		}
	}
	fact(run.Turns > 0, plural(run.Turns, "turn"))
	fact(run.Calls > 0, plural(run.Calls, "call"))
	fact(run.FailedCalls > 0, plural(run.FailedCalls, "failed call"))
	fact(run.Requests > 0, plural(run.Requests, "request"))
	fact(run.Status4xx > 0, plural(run.Status4xx, "4xx response"))
	fact(run.Status5xx > 0, plural(run.Status5xx, "5xx response"))
	fact(run.Fuel > 0, "fuel "+grouped(run.Fuel))
	fact(run.InputTokens+run.OutputTokens > 0, fmt.Sprintf("%d tokens in, %d out", run.InputTokens, run.OutputTokens))
	fact(run.CostUSD > 0, fmt.Sprintf("$%.4f", run.CostUSD))
	fact(run.Waited > 0, "waited "+formatSpan(run.Waited))
	if len(facts) > 0 {
		a.stdout.printf("\n")
		for _, line := range a.stdout.wrap(strings.Join(facts, ", "), 0) {
			a.stdout.printf("%s\n", line)
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

// wrapped returns the lines of a text, each of at most width characters. Only words that are longer than
// a line are broken.
func wrapped(text string, width int) (lines []string) {
	rest := []rune(text)
	for len(rest) > width {
		cut := width
		for cut > 0 && rest[cut-1] != ' ' {
			cut--
		}
		if word := rest[cut:]; len(word) > width && !slices.Contains(word[:width+1], ' ') {
			cut = width
		}
		if line := string(rest[:cut]); strings.TrimSpace(line) != "" { // or it is the indent of a long word
			lines = append(lines, line)
		}
		rest = rest[cut:]
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
