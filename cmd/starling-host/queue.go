package main

import (
	"context"
	"errors"

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
	cmd := subcommand("queue [DB]", "list, cancel and retry runs that wait, sleep or run", func(cmd *cobra.Command, args []string) error {
		if filter.Limit < 1 || filter.After < 0 {
			return usagef("", "--limit must be at least 1 and --after at least 0")
		}
		filter.State = queue.State(state)
		q, log, err := openQueue(cmd.Context(), args[0], toRead)
		if errors.Is(err, queue.ErrNoTables) {
			return a.emit(queue.Overview{Tenants: []queue.Stats{}, Items: []queue.Status{}}, func() { a.noQueue(args[0]) })
		} else if err != nil {
			return err
		}
		defer log.Close()
		doc, err := q.Overview(cmd.Context(), filter)
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
	cmd := subcommand("hosts [DB]", "list and drain the hosts of a database", func(cmd *cobra.Command, args []string) error {
		q, log, err := openQueue(cmd.Context(), args[0], toRead)
		if errors.Is(err, queue.ErrNoTables) {
			return a.emit(queue.HostList{Items: []queue.Host{}}, func() { a.noQueue(args[0]) })
		} else if err != nil {
			return err
		}
		defer log.Close()
		doc, err := q.HostList(cmd.Context())
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

// openQueue opens a database, and the queue that a host has made there. Closing the database ends both.
func openQueue(ctx context.Context, where string, do access) (*serve.Jobs, database, error) {
	log, err := openFor(ctx, where, do)
	if err != nil {
		return nil, nil, err
	}
	q, err := serve.OpenJobs(ctx, log)
	if err != nil {
		log.Close()
	}
	return q, log, err
}

// noQueue says so of a database that no host has used.
func (a *app) noQueue(where string) error {
	return a.stderr.Printf("%s has no queue: no host has used it\n", named(where))
}

// steerCommand is a command that changes something of a run or of a host, its second
// argument, and prints its new state. Its name is that of the request, see [queue.Queue].
func (a *app) steerCommand(use, short, done string, words cobra.CompletionFunc) *cobra.Command {
	cmd := subcommand(use, short, func(cmd *cobra.Command, args []string) error {
		ctx, name := cmd.Context(), args[1]
		q, log, err := openQueue(ctx, args[0], toChange)
		if errors.Is(err, queue.ErrNoTables) {
			return usagef("starling-host serve --help", "%s has no queue: no host has used it", named(args[0]))
		}
		if err != nil {
			return err
		}
		defer log.Close()
		if operands(cmd)[1] == "RUN" {
			if name, err = starling.FindRun(ctx, log, name); err != nil {
				return err
			}
		}
		switch err := q.Steer(ctx, cmd.Name(), name); {
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
