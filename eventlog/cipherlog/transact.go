package cipherlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// database is what a backend can do beside that lies in a database.
type database interface {
	eventlog.SchemaKeeper
	eventlog.Transactor
}

// hosted is a Log over such a backend.
type hosted struct {
	indexed
	eventlog.SchemaKeeper
	db database
}

var _ database = hosted{}

// wrap gives l the optional interfaces of the log below it.
func wrap(l *Log) eventlog.EventLog {
	below, ok := l.inner.(index)
	if !ok {
		return l
	}
	if db, ok := l.inner.(database); ok {
		return hosted{indexed{l, below}, db, db}
	}
	return indexed{l, below}
}

// TableSteps implements [eventlog.Transactor].
func (l hosted) TableSteps(ctx context.Context, set eventlog.TableSet) (int, error) {
	return l.db.TableSteps(ctx, set)
}

// CreateTables implements [eventlog.Transactor].
func (l hosted) CreateTables(ctx context.Context, set eventlog.TableSet) error {
	return l.db.CreateTables(ctx, set)
}

// View implements [eventlog.Transactor].
func (l hosted) View(ctx context.Context, fn func(eventlog.Querier) error) error {
	return l.db.View(ctx, fn)
}

// errNotLoaded ends an attempt at a transaction that needs to know a run first.
var errNotLoaded = errors.New("cipherlog: the run has to be read before the transaction")

// Transact implements [eventlog.Transactor]. Events that fn appends are encrypted.
// Within a transaction the log cannot be read, so fn is run again after a run that
// it goes on with was read.
func (l hosted) Transact(ctx context.Context, fn func(eventlog.Tx) error) error {
	known := make(map[string]state)
	for {
		var t *tx
		err := l.db.Transact(ctx, func(below eventlog.Tx) error {
			t = &tx{Tx: below, log: l.Log, known: known, runs: make(map[string]state)}
			return t.do(fn)
		})
		if t == nil || t.missing == "" {
			t.forget()
			return err
		}
		if known[t.missing], err = l.load(ctx, t.missing); err != nil {
			return err
		}
	}
}

// tx is one attempt at a transaction.
type tx struct {
	eventlog.Tx
	log     *Log
	known   map[string]state // runs as they were before the transaction
	runs    map[string]state // and as it has left them
	missing string           // a run that has to be known
}

// do runs fn. That a run is missing ends the attempt, whatever fn makes of it.
func (t *tx) do(fn func(eventlog.Tx) error) error {
	err := fn(t)
	if t.missing != "" {
		return errNotLoaded
	}
	return err
}

// forget makes the log read the runs anew that the transaction has gone on with.
func (t *tx) forget() {
	if t == nil {
		return
	}
	for runID := range t.runs {
		t.log.forget(runID)
	}
}

// Append implements [eventlog.Tx].
func (t *tx) Append(runID string, ev event.Event) error {
	if !eventlog.InNamespace(runID, t.log.namespace) {
		return fmt.Errorf("%w: run %q is not in namespace %q", eventlog.ErrInvalidAppend, runID, t.log.namespace)
	}
	at, err := t.at(runID, ev)
	if err != nil {
		return err
	}
	sealed, next, err := at.next(runID, ev)
	if err != nil {
		return err
	}
	if err := t.Tx.Append(runID, sealed); err != nil {
		return err
	}
	t.runs[runID] = next
	return nil
}

// Fence implements [eventlog.Tx].
func (t *tx) Fence(runID string) (uint64, error) {
	if !eventlog.InNamespace(runID, t.log.namespace) {
		return 0, fmt.Errorf("%w: %q", eventlog.ErrRunNotFound, runID)
	}
	return t.Tx.Fence(runID)
}

func (t *tx) at(runID string, ev event.Event) (state, error) {
	if at, ok := t.runs[runID]; ok {
		return at, nil
	}
	if at, ok := t.known[runID]; ok {
		return at, nil
	}
	if ev.Seq > 1 {
		t.missing = runID
		return state{}, errNotLoaded
	}
	return t.log.fresh(runID)
}
