package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/search"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/serve"
)

func (a *app) runsCommand() *cobra.Command {
	var limit, offset int
	var failed bool
	cmd := readCommand("runs [DB] [QUERY...]", "list the runs of a database, or find some", func(ctx context.Context, log database, args []string) error {
		query := strings.Join(args[1:], " ")
		if failed {
			query = strings.TrimSpace("state:failed " + query)
		}
		now := time.Now()
		q, err := search.Parse(query, now)
		if wrong := (*search.Error)(nil); errors.As(err, &wrong) {
			return usagef(wrong.Hint, "%v", err)
		}
		found, err := search.Find(ctx, log, q, search.Options{Limit: limit, Offset: offset, Begun: true})
		if err != nil {
			return err
		}
		doc := view.Runs{Runs: []view.Run{}, Reasons: found.Reasons, Total: found.Total, Limit: min(limit, eventlog.MaxPageLimit), Offset: offset, More: found.More && query != "", Partly: found.Partly}
		var open []string
		for _, run := range found.Runs {
			line := view.Run{Run: run}
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
		err = a.emit(doc, func() {
			doc.Print(a.stdout, now)
			if shown := offset + len(doc.Runs); shown < doc.Total {
				a.stderr.Printf("%d of %s; the next: --offset %d\n", len(doc.Runs), display.Counted(doc.Total, eventlog.MaxCounted, "run"), shown)
			} else if doc.Total == 0 && query != "" {
				a.stderr.Printf("no run matches: %s\n", query)
			}
		})
		if found.More && query != "" {
			a.stderr.Printf("only the newest %d runs were searched; for older ones: until:%s\n", found.Searched, found.Oldest.UTC().Format(time.RFC3339))
		}
		if note := found.Note(); note != "" {
			a.stderr.Printf("%s\n", note)
		}
		if found.Unread > 0 {
			a.stderr.Printf("%s could not be read: starling-host validate\n", display.Plural(found.Unread, "run"))
		}
		return err
	}, a.outputFlag)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if limit < 1 || offset < 0 {
			return usagef("", "--limit must be at least 1 and --offset at least 0")
		}
		return nil
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		return completing(queryWords)(cmd, args[:min(len(args), 1)], toComplete)
	}
	cmd.Flags().BoolVar(&failed, "failed", false, "list only failed runs, as the word state:failed does")
	cmd.Flags().IntVar(&limit, "limit", 50, "list at most `N` runs")
	cmd.Flags().IntVar(&offset, "offset", 0, "leave out the `N` newest runs")
	return cmd
}

// searchFields lists the fields of a query.
func searchFields() string {
	return strings.Join(lists.Map(search.Fields, func(f search.Field) string { return fmt.Sprintf("  %-18s  %s", f.Example, f.Meaning) }), "\n")
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

// The shown part of a goal in a document, in characters.
const maxGoalOfARun = 2000

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
