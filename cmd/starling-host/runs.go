package main

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
)

const runsHelp = `List the runs of a database, the newest first.

A run is open when it has no terminal event: it is in progress, or its process
died.`

type runsFlags struct {
	limit  int
	offset int
	status string
	output string
}

func (a *app) runsCommand() *cobra.Command {
	var f runsFlags
	cmd := &cobra.Command{
		Use:     "runs DB",
		Short:   "list the runs of a database",
		Long:    runsHelp,
		Example: "  starling-host runs starling.db --status failed\n  starling-host runs starling.db --limit 10 -o json",
		GroupID: groupLook,
		Args:    arguments(1, "DB"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runs(cmd.Context(), args[0], f)
		},
	}
	cmd.Flags().IntVar(&f.limit, "limit", 50, "list at most `N` runs")
	cmd.Flags().IntVar(&f.offset, "offset", 0, "leave out the `N` newest runs")
	cmd.Flags().Var(statusFlag{choiceFlag{&f.status, statuses}}, "status", "list only runs in this state")
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp))
	outputFlag(cmd, &f.output)
	return cmd
}

func (a *app) runs(ctx context.Context, path string, f runsFlags) error {
	if f.limit < 1 || f.offset < 0 {
		return usagef("", "--limit must be at least 1 and --offset at least 0")
	}
	log, err := openDatabase(ctx, path)
	if err != nil {
		return err
	}
	defer log.Close()
	page, err := log.ListRunsPage(ctx, eventlog.RunPageOptions{Limit: f.limit, Offset: f.offset, Status: f.status})
	if err != nil {
		return err
	}
	if f.output == outputJSON {
		return a.writeValue(newRunsDocument(page))
	}
	a.printRuns(page, f)
	return nil
}

func (a *app) printRuns(page eventlog.RunPage, f runsFlags) {
	width := 26 // a ULID
	for _, run := range page.Runs {
		width = max(width, utf8.RuneCountInString(printable(run.RunID))) // those of tenants are longer
	}
	if len(page.Runs) > 0 {
		a.stdout.printf("%-*s  %-24s  %-9s  %6s  %5s  %s\n", width, "RUN", "STARTED", "STATUS", "EVENTS", "CALLS", "DURATION")
	}
	for _, run := range page.Runs {
		a.stdout.printf("%-*s  %-24s  %-9s  %6d  %5d  %s\n", width, run.RunID, formatTime(run.StartedAt.UnixNano()),
			run.Status(), run.LastSeq, run.ToolCallCount, runDuration(run))
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
	Total  int               `json:"total"`
	Limit  int               `json:"limit"`
	Offset int               `json:"offset"`
}

type runDocumentLine struct {
	RunID      string `json:"run_id"`
	StartedAt  string `json:"started_at"`
	Status     string `json:"status"`
	Events     uint64 `json:"events"`
	ToolCalls  int    `json:"tool_calls"`
	DurationMs int64  `json:"duration_ms"`
}

func newRunsDocument(page eventlog.RunPage) runsDocument {
	doc := runsDocument{Runs: []runDocumentLine{}, Total: page.TotalMatching, Limit: page.Limit, Offset: page.Offset}
	for _, run := range page.Runs {
		doc.Runs = append(doc.Runs, runDocumentLine{
			RunID: run.RunID, StartedAt: formatTime(run.StartedAt.UnixNano()), Status: run.Status(),
			Events: run.LastSeq, ToolCalls: run.ToolCallCount, DurationMs: run.DurationMs,
		})
	}
	return doc
}
