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

	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/search"
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
