package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/starling-host/starling/bench/internal/figures"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
)

// contender does something as often as it can for about so long, and returns how often
// it was in a second.
type contender struct {
	name string
	rate func(ctx context.Context, d time.Duration) (float64, error)
}

// measured has the rates of contenders, one for each round.
type measured map[string][]float64

// take measures the contenders one after another in every round.
func take(ctx context.Context, rounds int, slice time.Duration, all ...contender) (measured, error) {
	t := measured{}
	for range rounds {
		for _, c := range all {
			runtime.GC() // no contender pays for the garbage of the one before
			rate, err := c.rate(ctx, slice)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			t[c.name] = append(t[c.name], rate)
		}
	}
	return t, nil
}

// ratio is the median of the rounds' ratios.
func (t measured) ratio(a, b string) float64 { return figures.Ratio(t[a], t[b]) }

// under is a contender that bears a load.
func under(load logtest.Load, name string, do func(context.Context, event.Event) error) contender {
	return contender{name, func(ctx context.Context, d time.Duration) (float64, error) {
		return load.For(d, func(e event.Event) error { return do(ctx, e) })
	}}
}

// logging appends to a log and waits until every so many events of a run are durable.
func logging(l eventlog.EventLog, every uint64) func(context.Context, event.Event) error {
	return func(ctx context.Context, e event.Event) error {
		if err := l.Append(ctx, e.RunID, e); err != nil || e.Seq%every != 0 {
			return err
		}
		return l.Sync(ctx, e.RunID)
	}
}
