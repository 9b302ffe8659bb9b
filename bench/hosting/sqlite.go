package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

// The ways to append on SQLite, and to a raw file.
const (
	full        = "log, FULL"
	normal      = "log, NORMAL"
	rawFile     = "raw file, group commit"
	plainFull   = "a transaction for each append, FULL"
	plainNormal = "a transaction for each append, NORMAL"
	likeSeed    = "a transaction for each append, as the Starling runtime does it"
)

// size is how large the values of events are.
type size struct {
	name  string
	bytes int

	raw, plain float64 // the least ratios to the raw file, and to a transaction for each append, with 64 runs
}

var sizes = []size{{name: "200 B", bytes: 180, raw: 0.18, plain: 10}, {name: "2 KB", bytes: 2000, raw: 0.25, plain: 8}}

// files are the ways to append on SQLite, each with a file of its own.
type files struct {
	full, normal                 *store.File
	raw                          *logtest.RawFile
	plainFull, plainNormal, seed *plain
}

func (b *bench) openFiles(ctx context.Context, name string) (f files, err error) {
	path := func(way string) string { return filepath.Join(b.dir, name+"-"+way) }
	if f.full, err = store.OpenFile(ctx, path("full"), store.FileOptions{}); err != nil {
		return f, err
	}
	if f.normal, err = store.OpenFile(ctx, path("normal"), store.FileOptions{Synchronous: "NORMAL"}); err != nil {
		return f, err
	}
	if f.raw, err = logtest.CreateRawFile(path("raw")); err != nil {
		return f, err
	}
	if f.plainFull, err = openPlain(ctx, path("plain-full"), "synchronous(FULL)"); err != nil {
		return f, err
	}
	if f.plainNormal, err = openPlain(ctx, path("plain-normal"), "synchronous(NORMAL)"); err != nil {
		return f, err
	}
	f.seed, err = openSeed(ctx, path("seed"))
	return f, err
}

func (f files) close() error {
	return errors.Join(f.full.Close(), f.normal.Close(), f.raw.Close(), f.plainFull.Close(), f.plainNormal.Close(), f.seed.Close())
}

// sqlite measures appends, of many runs and of one caller alone.
func (b *bench) sqlite(ctx context.Context) error {
	for _, s := range sizes {
		f, err := b.openFiles(ctx, s.name)
		if err != nil {
			return err
		}
		for _, runs := range []int{1, 8, 64} {
			if err := b.eachDurable(ctx, f, s, runs); err != nil {
				return err
			}
		}
		if err := b.pipelined(ctx, f, s); err != nil {
			return err
		}
		if err := f.close(); err != nil {
			return err
		}
	}
	return b.alone(ctx)
}

// eachDurable measures runs that wait for each of their events.
func (b *bench) eachDurable(ctx context.Context, f files, s size, runs int) error {
	load := logtest.Load{Runs: runs, Size: s.bytes}
	t, err := take(ctx, b.rounds, b.slice,
		under(load, full, logging(f.full, 1)), under(load, rawFile, f.appendRaw(1)), under(load, normal, logging(f.normal, 1)),
		under(load, plainFull, f.plainFull.append), under(load, plainNormal, f.plainNormal.append), under(load, likeSeed, f.seed.append))
	if err != nil {
		return err
	}
	name := fmt.Sprintf("SQLite, %s of %s, each durable", count(runs, "run"), s.name)
	b.report.note(name, t, full, normal, rawFile, plainFull, plainNormal, likeSeed)
	raw, plain := s.raw, s.plain
	switch runs {
	case 1:
		raw, plain = 0.5, 1
	case 8:
		plain = 2
	}
	b.report.atLeast(raw, name, "/ "+rawFile, t.ratio(full, rawFile))
	b.report.atLeast(plain, name, "/ "+plainFull, t.ratio(full, plainFull))
	if runs == 64 {
		b.report.atLeast(plain, name, "/ "+likeSeed, t.ratio(full, likeSeed))
		b.report.atLeast(0.75, name, "/ "+normal, t.ratio(full, normal))
	}
	return nil
}

// pipelined measures 64 runs that wait for every eighth of their events.
func (b *bench) pipelined(ctx context.Context, f files, s size) error {
	load := logtest.Load{Runs: 64, Size: s.bytes}
	t, err := take(ctx, b.rounds, b.slice,
		under(load, full, logging(f.full, 8)), under(load, rawFile, f.appendRaw(8)), under(load, likeSeed, f.seed.append))
	if err != nil {
		return err
	}
	name := fmt.Sprintf("SQLite, 64 runs of %s, every 8th durable", s.name)
	b.report.note(name, t, full, rawFile)
	b.report.atLeast(0.12, name, "/ "+rawFile, t.ratio(full, rawFile))
	b.report.atLeast(2*s.plain, name, "/ "+likeSeed+" (which cannot pipeline)", t.ratio(full, likeSeed))
	return nil
}

// appendRaw appends to the raw file and waits for every so many events of a run.
func (f files) appendRaw(every uint64) func(context.Context, event.Event) error {
	return func(_ context.Context, e event.Event) error {
		if durable := f.raw.Append(e); e.Seq%every == 0 {
			<-durable
		}
		return nil
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// appendEvents appends runs of ten events and waits for the last one.
func appendEvents(ctx context.Context, l eventlog.EventLog, events int) error {
	var c logtest.Chain
	for n := range events {
		var e event.Event
		if n%10 == 0 {
			c = logtest.Chain{RunID: event.NewID(), Clock: int64(n)}
			e = c.Start("bench")
		} else {
			e = c.Effect(20)
		}
		if err := l.Append(ctx, c.RunID, e); err != nil {
			return err
		}
	}
	return l.Sync(ctx, c.RunID)
}
