package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/search"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/serve"
)

const runsHelp = `List the runs of a database, the newest first, their totals, and what the failed ones
failed for. TOOL is the tool that was called, and GOAL the goal of an agent. A narrow
terminal gets fewer columns; -o json has all. To read tenants' runs, pass the master key
(--key-file).

A run is open when it has no terminal event: it is in progress, or its process died.
The next line shows its state in the queue, if a host accepted it, or how long it has
been silent.

QUERY lists only runs that match every word. A word names one of these fields, or is a
part of a run's id or of a text in its events. A hyphen before a word excludes what it
matches, * stands for any text, and quotation marks hold a value with spaces together.

%s`

type runsFlags struct {
	query  string
	limit  int
	offset int
}

func (a *app) runsCommand() *cobra.Command {
	var f runsFlags
	var failed bool
	var fields strings.Builder
	for _, field := range search.Fields {
		fmt.Fprintf(&fields, "  %-18s  %s\n", field.Example, field.Meaning)
	}
	cmd := readCommand(&cobra.Command{
		Use:     "runs [DB] [QUERY...]",
		Short:   "list the runs of a database, or find some",
		Long:    fmt.Sprintf(runsHelp, strings.TrimSuffix(fields.String(), "\n")),
		Example: "  starling-host runs\n  starling-host runs 'state:failed since:24h'\n  starling-host runs starling.db 'tool:fetch status:5xx fuel:>1G' -o json",
		PreRunE: func(*cobra.Command, []string) error {
			if f.limit < 1 || f.offset < 0 {
				return usagef("", "--limit must be at least 1 and --offset at least 0")
			}
			return nil
		},
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			return completing(queryWords)(cmd, args[:min(len(args), 1)], toComplete)
		},
	}, func(ctx context.Context, log database, args []string) error {
		f.query = strings.Join(args[1:], " ")
		if failed {
			f.query = strings.TrimSpace("state:failed " + f.query)
		}
		return a.runs(ctx, log, f)
	})
	cmd.Flags().BoolVar(&failed, "failed", false, "list only failed runs, as the word state:failed does")
	cmd.Flags().IntVar(&f.limit, "limit", 50, "list at most `N` runs")
	cmd.Flags().IntVar(&f.offset, "offset", 0, "leave out the `N` newest runs")
	a.outputFlag(cmd)
	return cmd
}

// excludedLast moves words of a query that exclude, such as -state:failed, behind "--": they are no flags.
func excludedLast(args []string) []string {
	var before, words []string
	for i, arg := range args {
		if arg == "--" {
			return slices.Concat(before, args[i:], words)
		}
		if slices.ContainsFunc(search.Fields, func(f search.Field) bool { return strings.HasPrefix(arg, "-"+f.Name+":") }) {
			words = append(words, arg)
		} else {
			before = append(before, arg)
		}
	}
	return slices.Concat(before, []string{"--"}, words)
}

// isQuery reports whether the first argument of "runs" is not a database.
func isQuery(arg string) bool {
	_, err := os.Stat(arg)
	return !onServer(arg) && err != nil && (strings.ContainsAny(arg, ` :"`) || !strings.ContainsAny(arg, `./\`))
}

// queryWords are words for the newest runs.
func queryWords(ctx context.Context, log database) []string {
	found, _ := search.Find(ctx, log, search.Query{}, search.Options{Begun: true})
	return found.Words()
}

func (a *app) runs(ctx context.Context, log database, f runsFlags) error {
	now := time.Now()
	q, err := search.Parse(f.query, now)
	if wrong := (*search.Error)(nil); errors.As(err, &wrong) {
		return usagef(wrong.Hint, "%v", err)
	}
	found, err := search.Find(ctx, log, q, search.Options{Limit: f.limit, Offset: f.offset, Begun: true})
	if err != nil {
		return err
	}
	doc := runsDocument{Runs: []runDocumentLine{}, Reasons: found.Reasons, Total: found.Total, Limit: min(f.limit, eventlog.MaxPageLimit), Offset: f.offset, More: found.More && f.query != "", Partly: found.Partly}
	var open []string
	for _, run := range found.Runs {
		line := runDocumentLine{Run: run}
		line.Map(func(text string) string { return display.Shorten(text, maxGoalOfARun) })
		doc.Runs = append(doc.Runs, line)
		doc.Totals.Add(run.RunSummary)
		if line.Status == eventlog.StatusOpen {
			open = append(open, run.RunID)
		}
	}
	jobs, err := serve.JobsOf(ctx, log, open...)
	if err != nil {
		return err
	}
	for i, run := range doc.Runs {
		doc.Runs[i].Job = jobs[run.RunID]
	}
	err = a.emit(doc, func() { a.printRuns(doc, f, now) })
	if found.More && f.query != "" {
		a.stderr.Printf("only the newest %d runs were searched; for older ones: until:%s\n", found.Searched, found.Oldest.UTC().Format(time.RFC3339))
	}
	if note := found.Note(); note != "" {
		a.stderr.Printf("%s\n", note)
	}
	if found.Unread > 0 {
		a.stderr.Printf("%s could not be read: starling-host validate\n", display.Plural(found.Unread, "run"))
	}
	return err
}

// The shown part of a goal in a document, in characters.
const maxGoalOfARun = 2000

// runsColumns are the columns of a page of runs.
func (a *app) runsColumns(runs []runDocumentLine, now time.Time) []terminal.Column[runDocumentLine] {
	type run = runDocumentLine
	started := terminal.Column[run]{Title: "STARTED", Text: func(r run) string { return r.StartedAt.Format(time.RFC3339) }}
	if a.narrow() {
		started = terminal.Column[run]{Title: "AGE", Text: func(r run) string { return age(now.Sub(r.StartedAt)) }}
	}
	what := terminal.Column[run]{Title: "ARGUMENTS", Leave: 3, Least: 16, Zero: "{}", Text: func(r run) string {
		switch {
		case r.Encrypted:
			return "(encrypted)"
		case r.Tool != "":
			return cmp.Or(r.Arguments, "{}")
		}
		return r.Goal
	}}
	if slices.ContainsFunc(runs, func(r run) bool { return r.Tool == "" }) {
		what.Title, what.Leave = "GOAL", 0
	}
	count := func(title string, leave int, of func(r run) string) terminal.Column[run] {
		return terminal.Column[run]{Title: title, Text: of, Right: true, Zero: "0", Leave: leave}
	}
	return []terminal.Column[run]{
		{Title: "RUN", Text: func(r run) string { return r.RunID }},
		started,
		{Title: "STATUS", Text: func(r run) string { return r.Status }},
		count("EVENTS", 11, func(r run) string { return strconv.FormatUint(r.LastSeq, 10) }),
		count("CALLS", 8, func(r run) string { return strconv.Itoa(r.ToolCallCount) }),
		count("4XX", 6, func(r run) string { return strconv.Itoa(r.Status4xx) }),
		count("5XX", 5, func(r run) string { return strconv.Itoa(r.Status5xx) }),
		count("TOKENS", 10, func(r run) string { return display.Digits(tokens(r.InputTokens, r.OutputTokens)) }),
		{Title: "COST", Text: func(r run) string { return "$" + dollars(r.CostUSD) }, Right: true, Zero: "$0.00", Leave: 9},
		count("FUEL", 7, func(r run) string { return display.Fuel(r.Meter.Fuel) }),
		{Title: "DURATION", Text: func(r run) string { return runDuration(r.RunSummary) }, Right: true, Leave: 4},
		{Title: "TOOL", Text: func(r run) string { return r.Tool }, Leave: 1, Least: 12},
		what,
		{Title: "ERROR", Text: func(r run) string { return r.Reason }, Leave: 2, Least: 20},
	}
}

func (a *app) printRuns(doc runsDocument, f runsFlags, now time.Time) {
	if len(doc.Runs) > 0 {
		terminal.Table(a.stdout, doc.Runs, func(r runDocumentLine) string {
			if silent := r.Silent(now); r.Job == nil && r.Status == eventlog.StatusOpen && silent >= minSilence {
				return "silent for " + age(silent)
			} else if r.Job != nil {
				return r.Job.String()
			}
			return ""
		}, a.runsColumns(doc.Runs, now)...)
	}
	if t := doc.Totals; len(doc.Runs) > 0 {
		model := ""
		if tokens(t.InputTokens, t.OutputTokens) > 0 || t.CostUSD != 0 {
			model = fmt.Sprintf(", %s tokens in, %s out, $%s", display.Digits(tokens(t.InputTokens, 0)), display.Digits(tokens(t.OutputTokens, 0)), dollars(t.CostUSD))
		}
		listed := ""
		if doc.Total > len(doc.Runs) {
			listed = " listed"
		}
		a.stdout.Printf("%s%s: %s, %s%s\n", display.Plural(len(doc.Runs), "run"), listed, display.Plural(t.Events, "event"), display.Plural(t.ToolCalls, "call"), model)
	}
	failed := 0
	for _, r := range doc.Reasons {
		failed += r.Runs
	}
	if failed > 1 {
		of := ""
		if doc.Total > max(failed, len(doc.Runs)) {
			of = fmt.Sprintf(" of %s", display.Plural(doc.Total, "run"))
		}
		a.stdout.Printf("\n%d%s failed:\n", failed, of)
		for _, r := range doc.Reasons[:min(len(doc.Reasons), maxReasons)] {
			text := r.Text
			if r.Tool != "" {
				text = r.Tool + ": " + text
			}
			when, to := display.Period(r.First, r.Last, now)
			if to != "" {
				when += " to " + to
			}
			a.stdout.Printf("%5d  %s   %s\n", r.Runs, terminal.Bad.Of(display.Shorten(display.Printable(text), cmp.Or(max(a.stdout.Width()-10-len(when), 0), maxReason))), when)
		}
	}
	if shown := f.offset + len(doc.Runs); shown < doc.Total {
		a.stderr.Printf("%d of %s; the next: --offset %d\n", len(doc.Runs), display.Plural(doc.Total, "run"), shown)
	} else if doc.Total == 0 && f.query != "" {
		a.stderr.Printf("no run matches: %s\n", f.query)
	}
}

// maxReason is how many characters of an error are shown on a line of a file, and maxReasons how
// many errors are counted.
const (
	maxReason  = 160
	maxReasons = 15
)

// minSilence is how long an open run is silent before its listing says so.
const minSilence = 30 * time.Second

func runDuration(run eventlog.RunSummary) string {
	if !run.TerminalKind.Terminal() {
		return "-"
	}
	return display.Duration(time.Duration(run.DurationMs) * time.Millisecond)
}

// runsDocument is the output of "runs -o json".
type runsDocument struct {
	Runs    []runDocumentLine `json:"runs"`
	Totals  eventlog.Totals   `json:"totals"`
	Reasons []search.Reason   `json:"reasons,omitempty"`
	Total   int               `json:"total"`
	Limit   int               `json:"limit"`
	Offset  int               `json:"offset"`
	More    bool              `json:"more,omitempty"`
	Partly  int               `json:"partly,omitempty"`
}

type runDocumentLine struct {
	search.Run
	Job *serve.JobDocument `json:"job,omitempty"`
}

// tokens adds up counts of tokens. A log may claim anything.
func tokens(in, out int64) uint64 { return uint64(max(in, 0)) + uint64(max(out, 0)) }
