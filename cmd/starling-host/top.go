package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/search"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/serve"
	"github.com/starling-host/starling/serve/queue"
)

func (a *app) topCommand() *cobra.Command {
	cmd := readCommand(&cobra.Command{
		Use:   "top [DB]",
		Short: "watch the hosts of a database at work",
	}, func(ctx context.Context, log database, args []string) error { return a.top(ctx, log, args[0]) })
	a.outputFlag(cmd)
	return cmd
}

// What top looks back at, how often it looks, and how many jobs it shows.
const (
	topPeriod = 10 * time.Minute
	topEvery  = 2 * time.Second
	topJobs   = 100
)

func (a *app) top(ctx context.Context, log database, where string) error {
	q, err := serve.OpenJobs(ctx, log)
	if errors.Is(err, queue.ErrNoTables) {
		return a.noQueue(where)
	} else if err != nil {
		return err
	}
	keys := make(chan byte)
	if in, ok := a.stdin.(*os.File); ok && !a.asJSON && a.stdout.Terminal && terminal.Is(in) {
		before, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return err
		}
		defer func() {
			_ = term.Restore(int(in.Fd()), before)
			a.stdout.Raw().Write([]byte("\x1b[?25h\r\n"))
		}()
		go func() {
			for key := make([]byte, 1); ; {
				if _, err := in.Read(key); err != nil {
					return
				}
				keys <- key[0]
			}
		}()
		a.stdout.Raw().Write([]byte("\x1b[?25l"))
	} else {
		keys = nil
	}
	for {
		doc, err := a.lookAtHosts(ctx, log, q)
		switch {
		case err != nil && ctx.Err() != nil && keys != nil:
			return nil
		case err != nil:
			return err
		case keys == nil:
			return a.emit(doc, func() { doc.Print(a.stdout, topPeriod) })
		}
		a.refresh(func(a *app) { doc.Print(a.stdout, topPeriod) })
		select {
		case key := <-keys:
			if key == 'q' || key == 3 || key == 4 { // Ctrl-C and Ctrl-D, which a raw terminal passes on
				return nil
			}
		case <-ctx.Done():
			return nil
		case <-time.After(topEvery):
		}
		if err := q.Refresh(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// lookAtHosts reads what top shows.
func (a *app) lookAtHosts(ctx context.Context, log database, q *serve.Jobs) (doc view.Top, err error) {
	hosts, err := q.HostList(ctx)
	if err != nil {
		return doc, err
	}
	load, err := q.Overview(ctx, queue.Filter{Limit: topJobs})
	if err != nil {
		return doc, err
	}
	doc = view.Top{Hosts: hosts.Items, Tenants: load.Tenants, Jobs: []view.TopJob{}}
	for _, job := range load.Items {
		run := search.Read(ctx, log, eventlog.RunSummary{RunID: job.RunID})
		doc.Jobs = append(doc.Jobs, view.TopJob{Tool: run.Name(), Fuel: run.Meter.Fuel, Status: job})
	}
	query, err := search.Parse("since:"+topPeriod.String(), time.Now())
	if err != nil {
		return doc, err
	}
	found, err := search.Find(ctx, log, query, search.Options{Limit: 1})
	doc.Started, doc.Reasons = found.Total, append([]search.Reason{}, found.Reasons...)
	for _, r := range found.Reasons {
		doc.Failed += r.Runs
	}
	return doc, err
}

// refresh prints a screen in place of the one before.
func (a *app) refresh(print func(*app)) {
	var screen bytes.Buffer
	_, height := a.stdout.Size()
	print(&app{stdout: a.stdout.Screen(&screen), stderr: a.stderr})
	lines := strings.SplitAfter(strings.TrimSuffix(screen.String(), "\n"), "\n")
	text := strings.Join(lines[:min(len(lines), max(height-1, 1))], "")
	_, _ = a.stdout.Raw().Write([]byte("\x1b[H\x1b[2J" + strings.ReplaceAll(text, "\n", "\r\n")))
}
