package view

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/runtime/agent"
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

// Tree prints the spans of a run, and what they come to.
func Tree(w *terminal.Printer, run *span.Run) {
	columns, _ := strconv.Atoi(os.Getenv("COLUMNS"))
	columns = cmp.Or(w.Width(), columns)
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
		} else if row.Input != "" || row.Kind == span.Call {
			text += " " + row.Input
		}
		texts[i] = strings.Repeat("  ", min(row.Depth, 8)) + display.Printable(text)
		if columns > 0 {
			texts[i] = display.Fit(texts[i], name-1)
		}
	}
	for _, text := range texts {
		name = max(name, min(display.Cells(text)+1, treeMost-treeBar))
	}
	axis, all := span.NewAxis(run, 0, run.End), display.Duration(time.Duration(run.End))
	if bars > 0 {
		all = fmt.Sprintf("0%*s", bars-1, all)
	}
	w.Printf("\n%s\n", terminal.Faint.Of(fmt.Sprintf("event  %-*s%s", name, "", all)))
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
		pad, bar, took := fmt.Sprintf("%*s", max(name-display.Cells(texts[i]), 1), ""), "", row.Took()
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
		w.Printf("%s  %s%s%s%s\n", terminal.Faint.Of(fmt.Sprintf("%5d", row.First)), look.Of(texts[i]), pad, look.Of(bar), took)
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
	fact(run.Waited > 0, "waited "+display.Duration(time.Duration(run.Waited)))
	if len(facts) > 0 {
		w.Printf("\n")
		for _, line := range w.Wrap(strings.Join(facts, ", "), 0) {
			w.Printf("%s\n", line)
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

// Events prints each event on a line, or uncut.
func Events(w *terminal.Printer, events []event.Event, full bool) {
	for _, ev := range events {
		facts, err := event.Describe(ev)
		if err != nil {
			facts = "cannot be read: " + starling.PlainError(err)
		}
		if facts = display.Printable(facts); !full {
			facts = display.Shorten(facts, showWidth)
		}
		after := fmt.Sprintf("%5d  %+8.3fs", ev.Seq, time.Duration(ev.Timestamp-events[0].Timestamp).Seconds())
		lines := w.Wrap(facts, showIndent)
		w.Printf("%s  %s  %s\n", terminal.Faint.Of(after), kindStyle(ev.Kind).Of(fmt.Sprintf("%-19s", ev.Kind.Short())), lines[0])
		for _, line := range lines[1:] {
			w.Printf("%*s%s\n", showIndent, "", line)
		}
		if full {
			texts(w, ev)
		}
	}
}

// texts prints the request of an effect and its response, or the log of a call, line by line.
func texts(w *terminal.Printer, ev event.Event) {
	block := func(mark, text string) {
		for _, line := range terminal.PrintableLines(text) {
			for _, part := range w.Wrap(line, textIndent) {
				w.Printf("%16s  %s %s\n", "", mark, part)
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

// Progress prints what an agent does while it does it. The texts of the model and of tools are hostile.
type Progress struct {
	Out, Err *terminal.Printer // for the answer, and for lines about calls
	Stream   bool              // the answer is printed as it comes

	open bool // the cursor is behind text that has no line break yet
}

// mostShown bounds what a line shows of arguments and results, in bytes.
const mostShown = 200

// Print prints an event of the agent.
func (p *Progress) Print(ev agent.AgentEvent) {
	switch ev := ev.(type) {
	case agent.TextDelta:
		p.text(ev.Text)
	case agent.Restarted:
		p.Line()
		p.Err.Printf("retrying the request to the model\n")
	case agent.ToolCallStarted:
		p.Line()
		again := ""
		if ev.Attempt > 1 {
			again = fmt.Sprintf(" (attempt %d)", ev.Attempt)
		}
		p.Note("-> " + ev.Tool + " " + shown(string(ev.Args)) + again)
	case agent.ToolCallEnded:
		p.Line()
		if ev.Err != nil {
			p.Note("<- " + ev.Tool + " failed: " + shown(ev.Err.Error()))
		} else {
			p.Note("<- " + ev.Tool + " " + shown(string(ev.Result)))
		}
	}
}

// text prints a piece of the model's answer.
func (p *Progress) text(text string) {
	if !p.Stream || text == "" {
		return
	}
	fmt.Fprint(p.Out.Lines(), strings.NewReplacer("\r\n", "\n", "\t", "    ").Replace(text))
	p.open = !strings.HasSuffix(text, "\n")
}

// Note prints a line about a call, or about the run.
func (p *Progress) Note(text string) {
	for i, line := range p.Err.Wrap(text, 3) {
		p.Err.Printf("%*s%s\n", 3*min(i, 1), "", line)
	}
}

// Line ends a line of text that is open.
func (p *Progress) Line() {
	if p.open {
		p.Out.Printf("\n")
	}
	p.open = false
}

// shown is a text on one line, shortened.
func shown(text string) string {
	if len(text) <= mostShown {
		return text
	}
	return strings.ToValidUTF8(text[:mostShown], "") + fmt.Sprintf("... (%s)", display.Plural(len(text), "byte"))
}
