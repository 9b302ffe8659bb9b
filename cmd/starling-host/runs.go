package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/serve"
)

const runsHelp = `List the runs of a database, the newest first, and their totals. TOOL is the tool that
was called, and GOAL the goal of an agent. A narrow terminal gets fewer columns; -o
json has all. To show the goals of tenants' runs, pass the master key (--key-file).

A run is open when it has no terminal event: it is in progress, or its process died.
If a host accepted it, the next line shows its state in the queue. ERROR is
why a run failed. --status failed also counts the runs of each reason.`

type runsFlags struct {
	limit  int
	offset int
	status string
	output string
}

func (a *app) runsCommand() *cobra.Command {
	var f runsFlags
	cmd := readCommand(&cobra.Command{
		Use:     "runs [DB]",
		Short:   "list the runs of a database",
		Long:    runsHelp,
		Example: "  starling-host runs\n  starling-host runs starling.db --status failed\n  starling-host runs starling.db --limit 10 -o json",
		PreRunE: func(*cobra.Command, []string) error {
			if f.limit < 1 || f.offset < 0 {
				return usagef("", "--limit must be at least 1 and --offset at least 0")
			}
			return nil
		},
	}, func(ctx context.Context, log database, _ []string) error { return a.runs(ctx, log, f) })
	cmd.Flags().IntVar(&f.limit, "limit", 50, "list at most `N` runs")
	cmd.Flags().IntVar(&f.offset, "offset", 0, "leave out the `N` newest runs")
	statusFlag(cmd, &f.status, "list only runs in this state")
	outputFlag(cmd, &f.output)
	return cmd
}

func (a *app) runs(ctx context.Context, log database, f runsFlags) error {
	page, err := log.ListRunsPage(ctx, eventlog.RunPageOptions{Limit: f.limit, Offset: f.offset, Status: f.status, Begun: true})
	if err != nil {
		return err
	}
	doc := runsDocument{Runs: []runDocumentLine{}, Totals: newUsed(eventlog.Together(page.Runs)), Total: page.TotalMatching, Limit: page.Limit, Offset: page.Offset}
	var open []string
	for _, run := range page.Runs {
		started, err := serve.View{Log: log}.Started(ctx, run.RunID) // validate reports unreadable runs
		tool := ""
		if started.ModelID == "" && started.ProviderID == "" { // a direct run, whose goal is its tool
			tool = shorten(started.Goal, maxGoalOfARun)
		}
		failed := serve.View{Log: log}.Failure(ctx, run)
		doc.Runs = append(doc.Runs, runDocumentLine{
			ErrorType: shorten(failed.ErrorType, maxGoalOfARun), Error: shorten(failed.Error, maxGoalOfARun),
			RunID: run.RunID, StartedAt: formatTime(run.StartedAt.UnixNano()), Status: run.Status(), DurationMs: run.DurationMs,
			Tool: tool, Goal: shorten(started.Goal, maxGoalOfARun), Model: strings.Trim(shorten(started.ProviderID+"/"+started.ModelID, maxGoalOfARun), "/"),
			Encrypted: errors.Is(err, event.ErrEncrypted), usedDocument: newUsed(run),
		})
		if run.Status() == eventlog.StatusOpen {
			open = append(open, run.RunID)
		}
	}
	jobs, err := jobsOf(ctx, log, open...)
	if err != nil {
		return err
	}
	for i, run := range doc.Runs {
		doc.Runs[i].Job = jobs[run.RunID]
	}
	if f.output == outputJSON {
		return a.writeValue(doc)
	}
	a.printRuns(page, doc, f)
	return nil
}

// The shown part of a goal, in characters: on a line of a file, and in a document.
const (
	maxGoalOnLine = 48
	maxGoalOfARun = 2000
)

// On a terminal, columns make room until a goal has this many characters.
const minGoalOnLine = 24

// runsColumn is a column of the listing of runs.
type runsColumn struct {
	title string
	width int // negative if its text begins at the left
	text  func(i int) string
}

// runsColumns are the columns for a page of runs, for lines of the given number of characters or,
// with 0, of any length. It omits columns without values, and the least important ones if they
// leave no room for the tool and the goal, which are last.
func runsColumns(runs []runDocumentLine, page eventlog.RunPage, line int) []runsColumn {
	id, tool, agents, tokens := 26, 0, false, false // the id is a ULID; ids of tenants' runs are longer
	for _, run := range runs {
		id = min(max(id, utf8.RuneCountInString(printable(run.RunID))), 64)
		tool = min(max(tool, utf8.RuneCountInString(printable(run.Tool))), 20)
		agents = agents || run.Tool == "" && (run.Goal != "" || run.Encrypted)
		tokens = tokens || run.tokens() > 0 || run.CostUSD != 0
	}
	columns := []runsColumn{
		{"RUN", -id, func(i int) string { return runs[i].RunID }},
		{"STARTED", -20, func(i int) string { return page.Runs[i].StartedAt.UTC().Format(time.RFC3339) }},
		{"STATUS", -9, func(i int) string { return runs[i].Status }},
		{"EVENTS", 6, func(i int) string { return strconv.FormatUint(runs[i].Events, 10) }},
		{"CALLS", 5, func(i int) string { return strconv.FormatUint(runs[i].ToolCalls, 10) }},
		{"TOKENS", 8, func(i int) string { return grouped(runs[i].tokens()) }},
		{"COST", 8, func(i int) string { return "$" + dollars(runs[i].CostUSD) }},
		{"DURATION", 8, func(i int) string { return runDuration(page.Runs[i]) }},
	}
	used, need := 0, 0 // with the two spaces behind each
	if tool > 0 {
		tool = max(tool, len("TOOL"))
		need += tool + 2
	}
	if agents {
		need += minGoalOnLine + 2
	}
	for _, c := range columns {
		used += max(c.width, -c.width) + 2
	}
	for _, title := range []string{"TOKENS", "COST", "EVENTS", "CALLS", "DURATION"} {
		if none := !tokens && (title == "TOKENS" || title == "COST"); none || line > 0 && used+need-2 > line {
			at := slices.IndexFunc(columns, func(c runsColumn) bool { return c.title == title })
			used -= columns[at].width + 2
			columns = slices.Delete(columns, at, at+1)
		}
	}
	if tool > 0 {
		if line > 0 {
			tool = min(tool, max(line-used, len("TOOL")))
		}
		columns, used = append(columns, runsColumn{"TOOL", -tool, func(i int) string { return shorten(printable(runs[i].Tool), tool) }}), used+tool+2
	}
	failed := slices.ContainsFunc(runs, func(run runDocumentLine) bool { return run.ErrorType != "" })
	if agents {
		room := maxGoalOnLine
		switch {
		case failed:
			room = minGoalOnLine
		case line > 0:
			room = max(line-used, len("GOAL"))
		}
		goal := func(i int) string {
			switch run := runs[i]; {
			case run.Encrypted:
				return shorten("(encrypted)", room)
			case run.Tool != "":
				return ""
			default:
				return shorten(printable(run.Goal), room)
			}
		}
		columns, used = append(columns, runsColumn{"GOAL", -room, goal}), used+room+2
	}
	if room := line - used; failed && (line == 0 || room >= minGoalOnLine) {
		if line == 0 {
			room = maxReason
		}
		columns = append(columns, runsColumn{"ERROR", -len("ERROR"), func(i int) string {
			if runs[i].ErrorType == "" {
				return ""
			}
			return shorten(runs[i].reason(), room)
		}})
	}
	return columns
}

func (a *app) printRuns(page eventlog.RunPage, doc runsDocument, f runsFlags) {
	columns := runsColumns(doc.Runs, page, a.stdout.width())
	for i := -1; i < len(doc.Runs) && len(doc.Runs) > 0; i++ {
		shown := columns
		for i >= 0 && shown[len(shown)-1].text(i) == "" {
			shown = shown[:len(shown)-1]
		}
		for n, c := range shown {
			text, look := c.title, strong
			if i >= 0 {
				text, look = c.text(i), plain
				switch c.title {
				case "STATUS":
					look = statusStyle(text)
				case "ERROR":
					look = bad
				}
			}
			if n < len(shown)-1 {
				text = fmt.Sprintf("%*s  ", c.width, printable(text))
			}
			a.stdout.printf("%s", styled{look, text})
		}
		a.stdout.printf("\n")
		if i >= 0 && doc.Runs[i].Job != nil {
			a.stdout.printf("  %s\n", doc.Runs[i].Job)
		}
	}
	if t := doc.Totals; len(doc.Runs) > 0 {
		model := ""
		if t.tokens() > 0 || t.CostUSD != 0 {
			model = fmt.Sprintf(", %s tokens in, %s out, $%s", grouped(t.InputTokens), grouped(t.OutputTokens), dollars(t.CostUSD))
		}
		a.stdout.printf("%s: %s, %s%s\n", plural(len(doc.Runs), "run"), plural(t.Events, "event"), plural(t.ToolCalls, "call"), model)
	}
	if f.status == eventlog.StatusFailed && len(doc.Runs) > 1 {
		a.stdout.printf("\n")
		for _, r := range reasons(doc.Runs) {
			a.stdout.printf("%5d  %s\n", r.runs, shorten(r.text, cmp.Or(max(a.stdout.width()-7, 0), maxReason)))
		}
	}
	shown := f.offset + len(page.Runs)
	if shown < page.TotalMatching {
		a.stderr.printf("%d of %s; the next: --offset %d\n", len(page.Runs), plural(page.TotalMatching, "run"), shown)
	}
}

// maxReason is how many characters of an error are shown on a line of a file.
const maxReason = 160

// reason returns the error of a failed run on one line.
func (r runDocumentLine) reason() string {
	return printable(event.RunFailed{ErrorType: r.ErrorType, Error: r.Error}.Reason())
}

// reason is what some runs failed for.
type reason struct {
	text string // of the first of them
	runs int
}

// reasons counts the failed runs of each tool and error, the most frequent first. Errors that
// differ in numbers alone, such as those of ports and ids, are one.
func reasons(runs []runDocumentLine) []reason {
	var all []reason
	at := map[string]int{}
	for _, run := range runs {
		text := run.reason()
		key := run.Tool + strings.Map(func(c rune) rune {
			if unicode.IsDigit(c) {
				return -1
			}
			return c
		}, text)
		if run.Tool != "" {
			text = printable(run.Tool) + ": " + text
		}
		if _, ok := at[key]; !ok {
			at[key] = len(all)
			all = append(all, reason{text: text})
		}
		all[at[key]].runs++
	}
	slices.SortStableFunc(all, func(a, b reason) int { return b.runs - a.runs })
	return all
}

func runDuration(run eventlog.RunSummary) string {
	if !run.TerminalKind.Terminal() {
		return "-"
	}
	return formatDuration(time.Duration(run.DurationMs) * time.Millisecond)
}

// runsDocument is the output of "runs -o json".
type runsDocument struct {
	Runs   []runDocumentLine `json:"runs"`
	Totals usedDocument      `json:"totals"`
	Total  int               `json:"total"`
	Limit  int               `json:"limit"`
	Offset int               `json:"offset"`
}

type runDocumentLine struct {
	RunID      string `json:"run_id"`
	StartedAt  string `json:"started_at"`
	Status     string `json:"status"`
	Tool       string `json:"tool,omitempty"`
	Goal       string `json:"goal,omitempty"`
	Model      string `json:"model,omitempty"`
	Encrypted  bool   `json:"sealed,omitempty"`
	ErrorType  string `json:"error_type,omitempty"`
	Error      string `json:"error,omitempty"`
	DurationMs int64  `json:"duration_ms"`
	usedDocument
	Job *jobDocument `json:"job,omitempty"`
}

// usedDocument is the consumption of one or several runs.
type usedDocument struct {
	Events       uint64  `json:"events"`
	ToolCalls    uint64  `json:"tool_calls"`
	InputTokens  uint64  `json:"input_tokens"`
	OutputTokens uint64  `json:"output_tokens"`
	CostUSD      float64 `json:"cost_usd"`
}

func newUsed(run eventlog.RunSummary) usedDocument {
	count := func(n int64) uint64 { return uint64(max(n, 0)) } // a log may claim anything
	return usedDocument{run.LastSeq, count(int64(run.ToolCallCount)), count(run.InputTokens), count(run.OutputTokens), run.CostUSD}
}

func (u usedDocument) tokens() uint64 { return u.InputTokens + u.OutputTokens }
