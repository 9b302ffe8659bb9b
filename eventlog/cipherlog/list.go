package cipherlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
)

// index is what every backend of this repository can do beside EventLog.
type index interface {
	eventlog.RunLister
	eventlog.RunPageLister
	eventlog.RunFinder
	eventlog.RunPruner
	eventlog.ModuleStore
	eventlog.Fencer
}

// indexed is a Log over a backend that has an index.
type indexed struct {
	*Log
	below index
}

var _ index = indexed{}

// Run implements [eventlog.RunFinder]. The head and the totals are those of the
// plain chain, from the last event.
func (l indexed) Run(ctx context.Context, runID string) (eventlog.RunSummary, error) {
	if !eventlog.InNamespace(runID, l.namespace) {
		return eventlog.RunSummary{}, fmt.Errorf("%w: %q", eventlog.ErrRunNotFound, runID)
	}
	stored, err := l.below.Run(ctx, runID)
	if err != nil {
		return eventlog.RunSummary{}, err
	}
	return l.summary(ctx, stored)
}

func (l indexed) summary(ctx context.Context, stored eventlog.RunSummary) (eventlog.RunSummary, error) {
	c, err := l.key.cipher(stored.RunID)
	if err != nil {
		return eventlog.RunSummary{}, err
	}
	for last, err := range eventlog.Events(ctx, l.inner, stored.RunID, stored.LastSeq-1) {
		if err != nil {
			return eventlog.RunSummary{}, err
		}
		return c.summary(stored, last)
	}
	return eventlog.RunSummary{}, &eventlog.CorruptError{RunID: stored.RunID, Seq: stored.LastSeq, Invariant: "D1",
		Reason: "the log keeps the head of an event that is not there"}
}

// ListRuns implements [eventlog.RunLister].
func (l indexed) ListRuns(ctx context.Context) ([]eventlog.RunSummary, error) {
	all, err := l.below.ListRuns(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s eventlog.RunSummary) bool { return !eventlog.InNamespace(s.RunID, l.namespace) })
	return all, l.summaries(ctx, all)
}

// ListRunsPage implements [eventlog.RunPageLister].
func (l indexed) ListRunsPage(ctx context.Context, o eventlog.RunPageOptions) (eventlog.RunPage, error) {
	var err error
	if o.Namespace, err = l.within(o.Namespace); err != nil {
		return eventlog.RunPage{}, err
	}
	page, err := l.below.ListRunsPage(ctx, o)
	if err != nil {
		return page, err
	}
	return page, l.summaries(ctx, page.Runs)
}

// summaries turns stored summaries into plain ones. One that cannot be turned has
// no head and shows what is visible, so that a damaged run does not hide the
// others.
func (l indexed) summaries(ctx context.Context, runs []eventlog.RunSummary) error {
	for i, stored := range runs {
		plain, err := l.summary(ctx, stored)
		switch {
		case err == nil:
			runs[i] = plain
		case errors.Is(err, eventlog.ErrLogCorrupt), errors.Is(err, eventlog.ErrRunNotFound), errors.Is(err, ErrKey):
			runs[i].Head = chain.Hash{}
		default:
			return err
		}
	}
	return nil
}

// within returns the namespace that is asked for, or the log's own for all. One
// outside of the log's is an error, and not an empty answer, because whoever asks
// has mistaken the log.
func (l indexed) within(namespace string) (string, error) {
	switch {
	case namespace == "" || namespace == l.namespace:
		return l.namespace, nil
	case l.namespace == "" || strings.HasPrefix(namespace, l.namespace+"/"):
		return namespace, nil
	}
	return "", fmt.Errorf("cipherlog: namespace %q is not within %q", namespace, l.namespace)
}

// PruneRuns implements [eventlog.RunPruner].
func (l indexed) PruneRuns(ctx context.Context, o eventlog.PruneOptions) (eventlog.PruneReport, error) {
	var err error
	if o.Namespace, err = l.within(o.Namespace); err != nil {
		return eventlog.PruneReport{DryRun: o.DryRun}, fmt.Errorf("%w: %w", eventlog.ErrInvalidPrune, err)
	}
	return l.below.PruneRuns(ctx, o)
}

// PutModule implements [eventlog.ModuleStore]. Modules are not encrypted.
func (l indexed) PutModule(ctx context.Context, wasm []byte) (chain.Hash, error) {
	return l.below.PutModule(ctx, wasm)
}

// Module implements [eventlog.ModuleStore].
func (l indexed) Module(ctx context.Context, digest chain.Hash) ([]byte, error) {
	return l.below.Module(ctx, digest)
}

// HasModule implements [eventlog.ModuleStore].
func (l indexed) HasModule(ctx context.Context, digest chain.Hash) (bool, error) {
	return l.below.HasModule(ctx, digest)
}

// Fenced implements [eventlog.Fencer].
func (l indexed) Fenced(runID string, epoch uint64) eventlog.EventLog {
	return wrap(&Log{inner: l.below.Fenced(runID, epoch), key: l.key, namespace: l.namespace, runs: make(map[string]*run)})
}
