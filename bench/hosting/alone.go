package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-host/starling/bench/internal/figures"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

// alone measures what one caller waits for, with nobody else at the log.
func (b *bench) alone(ctx context.Context) error {
	l, err := store.OpenFile(ctx, filepath.Join(b.dir, "alone"), store.FileOptions{})
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(b.dir, "alone-raw"))
	if err != nil {
		return err
	}
	if err := b.loneDurable(ctx, l, f); err != nil {
		return err
	}
	if err := b.withoutBarrier(ctx, l); err != nil {
		return err
	}
	return errors.Join(l.Close(), f.Close())
}

// loneDurable compares appends that are waited for with writes to a file that is
// synced after each.
func (b *bench) loneDurable(ctx context.Context, l eventlog.EventLog, f *os.File) error {
	append1 := logging(l, 1)
	ours := func(e event.Event) error { return append1(ctx, e) }
	raw := func(e event.Event) error {
		if _, err := f.Write(event.AppendEnvelope(nil, e)); err != nil {
			return err
		}
		return logtest.SyncData(f)
	}
	var p50, p99 [2][]float64
	for range b.rounds {
		for i, do := range []func(event.Event) error{ours, raw} {
			waits, err := each(b.lone, do)
			if err != nil {
				return err
			}
			p50[i] = append(p50[i], figures.Median(waits))
			p99[i] = append(p99[i], figures.Quantile(waits, 0.99))
		}
	}
	const load = "SQLite, 1 run of 200 B, alone"
	what := fmt.Sprintf("durable append / write and sync, p50 (%.0f / %.0f us)", figures.Median(p50[0]), figures.Median(p50[1]))
	b.report.atMost(2, "", load, what, figures.Ratio(p50[0], p50[1]))
	b.report.atMost(3, "", load, "the same, p99", figures.Ratio(p99[0], p99[1]))
	return nil
}

// each does it with n events of a run, and returns how long each took, in
// microseconds.
func each(n int, do func(event.Event) error) (micros []float64, err error) {
	c := logtest.Chain{RunID: event.NewID()}
	if err := do(c.Start("bench")); err != nil {
		return nil, err
	}
	for range n {
		e := c.Effect(180)
		began := time.Now()
		if err := do(e); err != nil {
			return nil, err
		}
		micros = append(micros, float64(time.Since(began).Nanoseconds())/1000)
	}
	return micros, nil
}

// withoutBarrier measures what an event costs the caller who does not wait: to encode
// and to hash it, and to hand it to the log.
func (b *bench) withoutBarrier(ctx context.Context, l eventlog.EventLog) error {
	var whole []float64
	for range b.rounds {
		c := logtest.Chain{RunID: event.NewID()}
		if err := l.Append(ctx, c.RunID, c.Start("bench")); err != nil {
			return err
		}
		for range 2000 { // fewer than the log takes before callers wait for the disk
			began := time.Now()
			if err := l.Append(ctx, c.RunID, c.Effect(180)); err != nil {
				return err
			}
			whole = append(whole, float64(time.Since(began).Nanoseconds())/1000)
		}
		if err := l.Sync(ctx, c.RunID); err != nil {
			return err
		}
	}
	b.report.atMost(4, " us", "SQLite, 1 run of 200 B, alone", "encode, hash and append without a barrier, p50", figures.Median(whole))
	return nil
}

// lists measures a page of runs in logs of growing size.
func (b *bench) lists(ctx context.Context) error {
	l, err := store.OpenFile(ctx, filepath.Join(b.dir, "lists"), store.FileOptions{})
	if err != nil {
		return err
	}
	defer l.Close()
	var millis []float64
	has := 0
	for _, events := range b.settings.lists {
		if err := appendEvents(ctx, l, events-has); err != nil {
			return err
		}
		has = events
		took, err := listed(ctx, l)
		if err != nil {
			return err
		}
		millis = append(millis, took)
		b.report.atMost(1, " ms", fmt.Sprintf("SQLite, %d events in runs of 10", events), "a page of 50 runs, p50", took)
	}
	last := len(millis) - 1
	b.report.atMost(2, "", fmt.Sprintf("SQLite, %d / %d events", b.settings.lists[last], b.settings.lists[0]), "a page of 50 runs", millis[last]/millis[0])
	return nil
}

// listed returns the milliseconds that a page of runs takes.
func listed(ctx context.Context, l *store.File) (float64, error) {
	var millis []float64
	for range 51 {
		began := time.Now()
		page, err := l.ListRunsPage(ctx, eventlog.RunPageOptions{})
		if err != nil || len(page.Runs) != 50 {
			return 0, fmt.Errorf("the page has %d runs: %w", len(page.Runs), err)
		}
		millis = append(millis, time.Since(began).Seconds()*1000)
	}
	return figures.Median(millis), nil
}
