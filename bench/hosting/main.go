// Hosting measures what a host of many runs is held to: appends to the log on SQLite
// and on Postgres, and queued runs and tool calls, against what the engines can do
// when nobody asks for more than bytes, and against the plain ways to use them. All
// take turns in short rounds, so that whatever else the machine does hits them alike,
// and what is reported are medians of the rounds' ratios.
//
//	go run ./hosting [-quick] [-parts sqlite,lists,postgres,queue,sealing,backlog,calls,hosts] [-out results/hosting.md]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/internal/pgtest"
)

// settings say how long to measure.
type settings struct {
	rounds int
	slice  time.Duration // of one contender in one round
	flow   time.Duration // the same, of queues
	lone   int           // appends of a caller who is alone, in one round
	lists  []int         // events in a log that is listed
	jobs   int           // in a backlog
}

var (
	thorough = settings{rounds: 7, slice: 250 * time.Millisecond, flow: time.Second, lone: 300, lists: []int{10_000, 100_000, 1_000_000}, jobs: 10_000}
	quick    = settings{rounds: 1, slice: 10 * time.Millisecond, flow: 20 * time.Millisecond, lone: 10, lists: []int{500, 1000}, jobs: 50}
)

func main() {
	short := flag.Bool("quick", false, "one short round: shows that it works, not how fast")
	parts := flag.String("parts", "", "comma-separated parts (default all)")
	out := flag.String("out", "", "file for the report (default: print only)")
	flag.Parse()
	s := thorough
	if *short {
		s = quick
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // so that the server and the files are removed
	defer stop()
	if err := run(ctx, s, *parts, *out); err != nil {
		fmt.Fprintln(os.Stderr, "hosting:", err)
		os.Exit(1)
	}
}

// bench is what the parts share.
type bench struct {
	settings
	dir    string         // for files
	server *pgtest.Server // nil where there is no PostgreSQL
	report report
}

// part measures something and adds it to the report.
type part struct {
	name     string
	postgres bool // it needs a server
	measure  func(*bench, context.Context) error
}

var allParts = []part{
	{"sqlite", false, (*bench).sqlite}, {"lists", false, (*bench).lists}, {"postgres", true, (*bench).postgres},
	{"queue", true, (*bench).queues}, {"sealing", true, (*bench).sealing}, {"backlog", true, (*bench).backlogs}, {"calls", true, (*bench).calls}, {"hosts", true, (*bench).crowds},
}

func run(ctx context.Context, s settings, names, out string) error {
	b, release, err := prepare(s)
	if err != nil {
		return err
	}
	defer release()
	for _, p := range allParts {
		if names != "" && !slices.Contains(strings.Split(names, ","), p.name) {
			continue
		}
		if p.postgres && b.server == nil {
			fmt.Fprintf(os.Stderr, "%s is left out: there is no PostgreSQL to start\n", p.name)
			continue
		}
		fmt.Fprintf(os.Stderr, "%s ...\n", p.name)
		if err := p.measure(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	text := b.report.text()
	fmt.Print(text)
	if out == "" {
		return nil
	}
	return os.WriteFile(filepath.Clean(out), []byte(text), 0o644)
}

// prepare makes a directory and starts a server, where there is one. Release removes
// both.
func prepare(s settings) (b *bench, release func(), err error) {
	b = &bench{settings: s}
	if b.dir, err = os.MkdirTemp("", "starling-bench-"); err != nil {
		return nil, nil, err
	}
	b.server, err = pgtest.New("max_connections=300")
	if errors.Is(err, pgtest.ErrAbsent) {
		return b, func() { os.RemoveAll(b.dir) }, nil
	}
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(b.dir))
	}
	return b, func() { b.server.Close(); os.RemoveAll(b.dir) }, nil
}
