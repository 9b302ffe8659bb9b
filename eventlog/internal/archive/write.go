package archive

import (
	"bufio"
	"context"
	"fmt"
	"hash"
	"io"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// Log is a log that runs can be archived from, or imported to.
type Log interface {
	eventlog.EventLog
	eventlog.ModuleStore
	Import(ctx context.Context, ev event.Event) error // see [eventlog.Store]
}

// Write writes the runs that o selects, with the modules that they name: the runs
// that pruning with the same options removes. DryRun has no meaning here. It stops
// at an invalid run, or a run that lacks a module, with an error that names it;
// the output so far is not a valid archive.
func Write(ctx context.Context, w io.Writer, log Log, o eventlog.PruneOptions) (Report, error) {
	if err := o.Valid(); err != nil {
		return Report{}, err
	}
	runs, err := log.ListRuns(ctx)
	if err != nil {
		return Report{}, err
	}
	out := &writer{log: log, out: bufio.NewWriterSize(w, 1<<20), hash: canon.NewHash(), modules: make(map[canon.Hash]bool)}
	out.line(firstLine())
	for _, s := range o.Select(runs) {
		if err := out.run(ctx, s); err != nil {
			return out.report, err
		}
	}
	out.line(lastLine(out.report, canon.Hash(out.hash.Sum(nil))))
	return out.report, out.out.Flush()
}

type writer struct {
	log     Log
	out     *bufio.Writer
	hash    hash.Hash // of all output
	modules map[canon.Hash]bool
	report  Report
}

// line writes a line. An error stays in the writer until Flush.
func (w *writer) line(text []byte) {
	both := io.MultiWriter(w.out, w.hash)
	_, _ = both.Write(text)
	_, _ = both.Write([]byte{'\n'})
}

func (w *writer) run(ctx context.Context, s eventlog.RunSummary) error {
	check := eventlog.NewChecker(eventlog.CheckOptions{Strict: true, AllowOpen: s.TerminalKind == 0})
	for e, err := range w.log.Events(ctx, s.RunID, 0) {
		if err == nil {
			err = check.Add(e)
		}
		if err == nil && e.Seq == 1 {
			err = w.modulesOf(ctx, e)
		}
		if err == nil {
			err = w.event(e)
		}
		if err != nil {
			return err
		}
	}
	r, err := check.Finish()
	if err != nil {
		return err
	}
	if s.TerminalKind != 0 && s.Head != (canon.Hash{}) && s.Head != r.Head {
		return &eventlog.CorruptError{RunID: s.RunID, Seq: r.Events, Kind: r.Terminal, Invariant: "head",
			Reason: fmt.Sprintf("the event has hash %v, the log keeps %v", r.Head, s.Head)}
	}
	w.report.add(r)
	return nil
}

func (w *writer) event(e event.Event) error {
	text, err := event.ToJSON(e)
	if err != nil {
		return err
	}
	w.line(text)
	w.report.Events++
	return nil
}

// modulesOf writes the modules that a run names, unless they were written before.
func (w *writer) modulesOf(ctx context.Context, first event.Event) error {
	digests, err := modulesOf(first)
	if err != nil {
		return err
	}
	for _, digest := range digests {
		if w.modules[digest] {
			continue
		}
		wasm, err := w.log.Module(ctx, digest)
		if err != nil {
			return fmt.Errorf("run %q: %w", first.RunID, err)
		}
		w.line(moduleLine(digest, wasm))
		w.modules[digest] = true
		w.report.Modules++
	}
	return nil
}
