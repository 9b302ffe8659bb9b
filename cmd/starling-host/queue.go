package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/serve"
	"github.com/starling-host/starling/serve/queue"
)

func (a *app) queueCommand() *cobra.Command {
	var filter queue.Filter
	var state string
	none := queue.Overview{Tenants: []queue.Stats{}, Items: []queue.Status{}}
	cmd := a.jobsCommand("queue [DB]", "list, cancel and retry runs that wait, sleep or run", toRead, none, func(ctx context.Context, q *serve.Jobs, _ database, _ []string) error {
		filter.State = queue.State(state)
		doc, err := q.Overview(ctx, filter)
		if err != nil {
			return err
		}
		return a.emit(doc, func() {
			view.Tenants(a.stdout, doc.Tenants)
			a.stdout.Printf("\n")
			view.Jobs(a.stdout, doc.Items)
			if doc.Next > 0 {
				a.stderr.Printf("there are more; for the next page: --after %d\n", doc.Next)
			}
		})
	}, a.outputFlag)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if filter.Limit < 1 || filter.After < 0 {
			return usagef("", "--limit must be at least 1 and --after at least 0")
		}
		return nil
	}
	cmd.Flags().StringVar(&filter.Tenant, "tenant", "", "list only runs of the tenant `ID`")
	choiceFlag(cmd, "state", "", "list only runs in this state", choice(&state, string(queue.Waiting), string(queue.Sleeping), string(queue.Running)))
	cmd.Flags().IntVar(&filter.Limit, "limit", 50, "list at most `N` runs")
	cmd.Flags().Int64Var(&filter.After, "after", 0, "list the runs after number `N`, the last of the previous page")
	cmd.AddCommand(
		a.steerCommand("cancel [DB] RUN", "end a run", "cancelled", queueWords(jobWords(""))),
		a.steerCommand("retry [DB] RUN", "retry a sleeping run now", "ready", queueWords(jobWords(queue.Sleeping))))
	return cmd
}

func (a *app) hostsCommand() *cobra.Command {
	none := queue.HostList{Items: []queue.Host{}}
	cmd := a.jobsCommand("hosts [DB]", "list and drain the hosts of a database", toRead, none, func(ctx context.Context, q *serve.Jobs, _ database, _ []string) error {
		doc, err := q.HostList(ctx)
		if err != nil {
			return err
		}
		return a.emit(doc, func() { view.Hosts(a.stdout, doc.Items) })
	}, a.outputFlag)
	cmd.AddCommand(
		a.steerCommand("drain [DB] HOST", "let a host finish its runs and start no others", "draining", queueWords(hostWords)),
		a.steerCommand("resume [DB] HOST", "let a draining host start runs again", "resumed", queueWords(hostWords)))
	return cmd
}

// jobsCommand is a command on the queue that a host has made in a database. Without a queue it prints
// the document none, and fails if that is nil.
func (a *app) jobsCommand(use, short string, do access, none any, action func(context.Context, *serve.Jobs, database, []string) error, add ...func(*cobra.Command)) *cobra.Command {
	return databaseCommand(use, short, do.open, func(ctx context.Context, log database, args []string) error {
		q, err := serve.OpenJobs(ctx, log)
		switch why := named(args[0]) + " has no queue: no host has used it"; {
		case errors.Is(err, queue.ErrNoTables) && none == nil:
			return usagef("starling-host serve --help", "%s", why)
		case errors.Is(err, queue.ErrNoTables):
			return a.emit(none, func() { a.stderr.Printf("%s\n", why) })
		case err != nil:
			return err
		}
		return action(ctx, q, log, args)
	}, add...)
}

// steerCommand is a command that changes something of a run or of a host, its second
// argument, and prints its new state. Its name is that of the request, see [queue.Queue].
func (a *app) steerCommand(use, short, done string, words cobra.CompletionFunc) *cobra.Command {
	action, _, _ := strings.Cut(use, " ")
	cmd := a.jobsCommand(use, short, toChange, nil, func(ctx context.Context, q *serve.Jobs, log database, args []string) (err error) {
		name := args[1]
		if strings.HasSuffix(use, " RUN") {
			if name, err = starling.FindRun(ctx, log, name); err != nil {
				return err
			}
		}
		switch err := q.Steer(ctx, action, name); {
		case errors.Is(err, queue.ErrNotFound):
			return usagef(display.Command("starling-host queue", named(args[0])), "run %s is not in the queue: it has ended, or no host accepted it", name)
		case errors.Is(err, queue.ErrNotSleeping):
			return usagef(display.Command("starling-host queue", named(args[0])), "run %s does not sleep", name)
		case errors.Is(err, queue.ErrNoHost):
			return usagef(display.Command("starling-host hosts", named(args[0])), "no host %q is at work", name)
		case err != nil:
			return err
		}
		return a.stdout.Printf("%s  %s\n", done, name)
	})
	cmd.ValidArgsFunction = words
	return cmd
}

// queueWords are words of the queue of a database.
func queueWords(words func(context.Context, *serve.Jobs) []string) cobra.CompletionFunc {
	return completing(func(ctx context.Context, log database) []string {
		q, err := serve.OpenJobs(ctx, log)
		if err != nil {
			return nil
		}
		return words(ctx, q)
	})
}

// jobWords are the runs in a state, or in any if it is empty.
func jobWords(state queue.State) func(context.Context, *serve.Jobs) []string {
	return func(ctx context.Context, q *serve.Jobs) (words []string) {
		list, _ := q.List(ctx, queue.Filter{State: state})
		return lists.Map(list, func(job queue.Status) string { return job.RunID + "\t" + string(job.State) })
	}
}

func hostWords(ctx context.Context, q *serve.Jobs) (words []string) {
	list, _ := q.HostList(ctx)
	for _, h := range list.Items {
		if h.State != queue.HostGone {
			words = append(words, h.Name+"\t"+h.State, h.ID+"\t"+h.State)
		}
	}
	return words
}
