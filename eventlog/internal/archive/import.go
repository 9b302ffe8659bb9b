package archive

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// ErrOtherRun means that the log has a different run with the same id as one in
// the archive.
var ErrOtherRun = errors.New("archive: the log has another run of that id")

// Chooser is implemented by a [Log] that does not take every run.
type Chooser interface {
	// Takes is handed the first event of each run. Import returns its errors, and
	// changes nothing.
	Takes(first event.Event) error
}

// Import brings the runs and modules of an archive into the log. It first reads the
// whole archive: if anything in it is wrong, or the log has another run with one of
// its ids ([ErrOtherRun]), nothing is changed. A run that the log already has is left
// alone, and a run whose beginning it has is completed, so an interrupted import can
// be repeated. It returns when everything is durable.
func Import(ctx context.Context, log Log, r io.ReadSeeker) (Report, error) {
	in := &importer{ctx: ctx, log: log, have: make(map[string]eventlog.RunSummary)}
	if _, _, err := read(ctx, r, (*compare)(in)); err != nil {
		return Report{}, err
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return Report{}, err
	}
	report, _, err := read(ctx, r, in)
	if err == nil {
		err = in.sync()
	}
	report.Known = in.known
	return report, err
}

// importer appends what the log lacks.
type importer struct {
	ctx   context.Context
	log   Log
	have  map[string]eventlog.RunSummary // runs that the log has, or has the beginning of
	fresh []string                       // runs that were appended to
	files []eventlog.Content             // not in the log yet
	bytes int                            // of files
	known int                            // runs that were not
}

// compare is the first of the two times that an archive is read.
type compare importer

func (c *compare) module([]byte) error            { return nil }
func (c *compare) content(eventlog.Content) error { return nil }

func (c *compare) event(e event.Event) error {
	if chooser, ok := c.log.(Chooser); ok && e.Seq == 1 {
		if err := chooser.Takes(e); err != nil {
			return err
		}
	}
	if e.Seq == 1 {
		s, err := c.log.Run(c.ctx, e.RunID)
		if errors.Is(err, eventlog.ErrRunNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		c.have[e.RunID] = s
	}
	if c.have[e.RunID].LastSeq == e.Seq {
		return c.same(e)
	}
	return nil
}

// end compares a run if the log has more of it than the archive.
func (c *compare) end(last event.Event) error {
	if last.Seq >= c.have[last.RunID].LastSeq {
		return nil
	}
	return c.same(last)
}

// same requires an event of the archive to equal the log's event, which stands for all
// before it.
func (c *compare) same(e event.Event) error {
	for stored, err := range c.log.Events(c.ctx, e.RunID, e.Seq-1) {
		if err != nil {
			return err
		}
		if stored.Hash() != e.Hash() {
			return fmt.Errorf("%w: %q, which has hash %v at event %d and in the archive %v", ErrOtherRun, e.RunID, stored.Hash(), e.Seq, e.Hash())
		}
		return nil
	}
	return fmt.Errorf("%w: %q, which has no event %d", ErrOtherRun, e.RunID, e.Seq)
}

func (i *importer) module(wasm []byte) error {
	_, err := i.log.PutModule(i.ctx, wasm)
	return err
}

// content gathers contents: many small ones are stored in one transaction.
func (i *importer) content(c eventlog.Content) error {
	const most = 1 << 20
	i.files = append(i.files, c)
	if i.bytes += len(c.Bytes); i.bytes < most && len(i.files) < 1000 {
		return nil
	}
	return i.storeFiles()
}

func (i *importer) storeFiles() error {
	err := i.log.PutContents(i.ctx, "", i.files)
	i.files, i.bytes = nil, 0
	return err
}

func (i *importer) event(e event.Event) error {
	if err := i.storeFiles(); err != nil {
		return err
	}
	if e.Seq <= i.have[e.RunID].LastSeq {
		return nil
	}
	return i.log.Import(i.ctx, e)
}

func (i *importer) end(last event.Event) error {
	if last.Seq <= i.have[last.RunID].LastSeq {
		i.known++
	} else {
		i.fresh = append(i.fresh, last.RunID)
	}
	return nil
}

// sync waits for all runs at once, and for those that were there.
func (i *importer) sync() error {
	if i.known > 0 {
		if err := eventlog.Confirm(i.ctx, i.log); err != nil {
			return err
		}
	}
	for _, id := range i.fresh {
		if err := i.log.Sync(i.ctx, id); err != nil {
			return fmt.Errorf("run %q: %w", id, err)
		}
	}
	return nil
}
