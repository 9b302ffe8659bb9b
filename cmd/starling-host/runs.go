package main

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/serve"
)

const runsHelp = `List the runs of a database, the newest first, and their totals. GOAL is what an
agent was told, or the name of the tool that was called. The goals of tenants' runs need the master key (--key-file).

A run is open when it has no terminal event: it is in progress, or its process
died. If a host accepted it, the line below says where it stands.`

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
	page, err := log.ListRunsPage(ctx, eventlog.RunPageOptions{Limit: f.limit, Offset: f.offset, Status: f.status})
	if err != nil {
		return err
	}
	doc := runsDocument{Runs: []runDocumentLine{}, Totals: newUsed(eventlog.Together(page.Runs)), Total: page.TotalMatching, Limit: page.Limit, Offset: page.Offset}
	var open []string
	for _, run := range page.Runs {
		started, err := serve.View{Log: log}.Started(ctx, run.RunID) // of one that cannot be read validate says why
		doc.Runs = append(doc.Runs, runDocumentLine{
			RunID: run.RunID, StartedAt: formatTime(run.StartedAt.UnixNano()), Status: run.Status(), DurationMs: run.DurationMs,
			Goal: shorten(started.Goal, maxGoalOfARun), Model: strings.Trim(shorten(started.ProviderID+"/"+started.ModelID, maxGoalOfARun), "/"),
			Sealed: errors.Is(err, event.ErrSealed), usedDocument: newUsed(run),
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

// What is shown of a goal, in characters: on a line, and in a document.
const (
	maxGoalOnLine = 48
	maxGoalOfARun = 2000
)

func (a *app) printRuns(page eventlog.RunPage, doc runsDocument, f runsFlags) {
	width := 26 // a ULID
	for _, run := range doc.Runs {
		width = min(max(width, utf8.RuneCountInString(printable(run.RunID))), 64) // those of tenants are longer
	}
	if len(doc.Runs) > 0 {
		a.stdout.printf("%-*s  %-24s  %-9s  %6s  %5s  %8s  %8s  %8s  %s\n", width, "RUN", "STARTED", "STATUS", "EVENTS", "CALLS", "TOKENS", "COST", "DURATION", "GOAL")
	}
	for i, run := range doc.Runs {
		goal := run.Goal
		if run.Sealed {
			goal = "(encrypted)"
		}
		a.stdout.printf("%-*s  %-24s  %-9s  %6d  %5d  %8s  %8s  %8s  %s\n", width, run.RunID, run.StartedAt, run.Status, run.Events, run.ToolCalls,
			grouped(run.tokens()), "$"+dollars(run.CostUSD), runDuration(page.Runs[i]), shorten(printable(goal), maxGoalOnLine))
		if run.Job != nil {
			a.stdout.printf("  %s\n", run.Job)
		}
	}
	if t := doc.Totals; len(doc.Runs) > 0 {
		a.stdout.printf("%s: %s, %s, %s tokens in, %s out, $%s\n", plural(len(doc.Runs), "run"), plural(t.Events, "event"), plural(t.ToolCalls, "call"),
			grouped(t.InputTokens), grouped(t.OutputTokens), dollars(t.CostUSD))
	}
	shown := f.offset + len(page.Runs)
	if shown < page.TotalMatching {
		a.stderr.printf("%d of %s; the next: --offset %d\n", len(page.Runs), plural(page.TotalMatching, "run"), shown)
	}
}

func runDuration(run eventlog.RunSummary) string {
	if !run.TerminalKind.Terminal() {
		return "-"
	}
	return formatDuration(time.Duration(run.DurationMs) * time.Millisecond)
}

// runsDocument is what "runs -o json" prints.
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
	Goal       string `json:"goal,omitempty"`
	Model      string `json:"model,omitempty"`
	Sealed     bool   `json:"sealed,omitempty"`
	DurationMs int64  `json:"duration_ms"`
	usedDocument
	Job *jobDocument `json:"job,omitempty"`
}

// usedDocument is what a run has come to, or several.
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
