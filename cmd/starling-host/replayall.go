package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/starling-host/starling/eventlog"
)

// replayAll replays every run of the database, oldest first, and prints those
// that are not identical and a summary; as JSON, one document for each run.
func (a *app) replayAll(ctx context.Context, r *replayer, f replayFlags) error {
	ids, err := allRuns(ctx, r.log)
	if err != nil {
		return err
	}
	bar := a.progressBar(len(ids), progressbar.OptionShowCount())
	var total tally
	err = inOrder(ctx, ids, r.replay, func(v verdict) error {
		_ = bar.Add(1)
		total.add(v)
		if f.output == outputText && (v.erased || v.code() == exitOK) {
			return nil
		}
		return a.printVerdict(v, f)
	})
	_ = bar.Exit()
	if err != nil {
		return err
	}
	if f.output == outputText {
		a.stdout.printf("%s\n", total.String())
	}
	return silent(total.code)
}

// progressBar returns a bar on standard error if that is a terminal, and one
// that shows nothing if it is not. It is drawn ten times a second at most.
func (a *app) progressBar(n int, more ...progressbar.Option) *progressbar.ProgressBar {
	return progressbar.NewOptions(n, append(more,
		progressbar.OptionSetWriter(a.stderr.raw()),
		progressbar.OptionSetDescription("replay"),
		progressbar.OptionSetVisibility(a.stderr.terminal),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)...)
}

// allRuns returns the ids of every run, oldest first.
func allRuns(ctx context.Context, log eventlog.RunLister) ([]string, error) {
	runs, err := log.ListRuns(ctx)
	if err != nil {
		return nil, unreadable(ctx, err)
	}
	ids := make([]string, len(runs))
	for i, run := range runs {
		ids[len(runs)-1-i] = run.RunID
	}
	return ids, nil
}

// inOrder applies work to each id on as many goroutines as there are
// processors, and calls done with the results in the order of the ids, from the
// goroutine of the caller. The first error of either ends it.
func inOrder[T any](ctx context.Context, ids []string, work func(context.Context, string) (T, error), done func(T) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		value T
		err   error
	}
	results := make([]chan outcome, len(ids))
	for i := range results {
		results[i] = make(chan outcome, 1)
	}
	next := make(chan int)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	for range min(runtime.GOMAXPROCS(0), len(ids)) {
		workers.Go(func() {
			for i := range next {
				value, err := work(ctx, ids[i])
				results[i] <- outcome{value, err}
			}
		})
	}
	workers.Go(func() {
		defer close(next)
		for i := range ids {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	})
	for i := range ids {
		select {
		case r := <-results[i]:
			if r.err != nil {
				return r.err
			}
			if err := done(r.value); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// tally counts verdicts.
type tally struct {
	runs, identical, open, diverged, invalid, refused, erased int
	code                                                      int
}

func (t *tally) add(v verdict) {
	t.runs++
	if v.erased { // for good, and as somebody meant it: all later replays would fail by it
		t.erased++
		return
	}
	switch {
	case v.corrupt != nil:
		t.invalid++
	case v.refused != nil:
		t.refused++
	case v.replay.Divergence != nil:
		t.diverged++
	case v.replay.Open:
		t.open++
	default:
		t.identical++
	}
	t.code = worse(t.code, v.code())
}

// worse returns the exit code that stands for both: a log that lies before one
// that cannot be looked into, and that before any other failure.
func worse(a, b int) int {
	for _, code := range []int{exitInvalid, exitRefused} {
		if a == code || b == code {
			return code
		}
	}
	return max(a, b)
}

func (t *tally) String() string {
	parts := []string{fmt.Sprintf("%d identical", t.identical)}
	for _, p := range []struct {
		n    int
		what string
	}{{t.open, "open and identical so far"}, {t.diverged, "diverged"}, {t.invalid, "invalid"}, {t.refused, "not replayed"}, {t.erased, "of tenants that were erased"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return fmt.Sprintf("%s: %s", plural(t.runs, "run"), strings.Join(parts, ", "))
}
