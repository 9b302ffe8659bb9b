package tenant_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

// reading are the methods of a database that change no events.
var reading = []string{"Close", "CreateTables", "Events", "HasModule", "ListRuns", "ListRunsPage", "Miscounted", "Module", "Now", "OnSignal",
	"PutContents", "PutModule", "Read", "Recorded", "RemoveUnusedModules", "Run", "SchemaVersions", "Signal", "Stream", "Sync", "TableSteps", "View"}

// operation adds, moves or removes events.
type operation struct {
	name string // of the method of a database, if it is one
	do   func(t *testing.T, f fixture) error
}

func record(t *testing.T, log eventlog.EventLog, evs ...event.Event) error {
	for _, e := range evs {
		if err := log.Append(t.Context(), e.RunID, e); err != nil {
			return err
		}
	}
	return log.Sync(t.Context(), evs[0].RunID)
}

// archived returns an archive of the runs in a database.
func archived(t *testing.T, log eventlog.Database) (*bytes.Reader, error) {
	var archive bytes.Buffer
	_, err := store.WriteArchive(t.Context(), &archive, log, eventlog.PruneOptions{Namespace: "acme"})
	return bytes.NewReader(archive.Bytes()), err
}

var operations = []operation{
	{"Append", func(t *testing.T, f fixture) error {
		return record(t, f.log, slices.Concat(logtest.Finished("acme/a", 3), logtest.Finished("other/a", 2))...)
	}},
	{"Import", func(t *testing.T, f fixture) (err error) {
		for _, e := range logtest.Finished("acme/imported", 2) {
			err = errors.Join(err, f.log.Import(t.Context(), e))
		}
		return errors.Join(err, f.log.Sync(t.Context(), "acme/imported"))
	}},
	{"Transact", func(t *testing.T, f fixture) error {
		return f.log.Transact(t.Context(), func(tx eventlog.Tx) (err error) {
			for _, e := range logtest.Finished("acme/transacted", 2)[:2] {
				err = errors.Join(err, tx.Append(e.RunID, e))
			}
			return err
		})
	}},
	{"Fenced", func(t *testing.T, f fixture) error {
		var epoch uint64
		err := f.log.Transact(t.Context(), func(tx eventlog.Tx) (err error) {
			epoch, err = tx.Fence("acme/transacted")
			return err
		})
		return errors.Join(err, record(t, f.log.Fenced("acme/transacted", epoch), logtest.Finished("acme/transacted", 2)[2:]...))
	}},
	{"TransactCommitted", func(t *testing.T, f fixture) error {
		shared, ok := f.log.(eventlog.Shared)
		if !ok {
			return nil
		}
		return shared.TransactCommitted(t.Context(), func(tx eventlog.Tx) error {
			e := logtest.Finished("acme/committed", 1)[0]
			return tx.Append(e.RunID, e)
		})
	}},
	{"events that are encrypted, and an end without the key", func(t *testing.T, f fixture) error {
		key, err := store.NewDataKey(make([]byte, store.DataKeySize))
		if err != nil {
			return err
		}
		log, err := store.Encrypted(f.log, key, "acme")
		if err != nil {
			return err
		}
		err = errors.Join(record(t, log, logtest.Finished("acme/encrypted", 2)...), record(t, log, logtest.Finished("acme/open", 2)[:2]...))
		return errors.Join(err, store.EndEncrypted(t.Context(), f.log, "acme/open"))
	}},
	{"MigrateSchema", func(t *testing.T, f fixture) error {
		_, err := f.log.MigrateSchema(t.Context(), false)
		return err
	}},
	{"PruneRuns", func(t *testing.T, f fixture) error {
		_, err := f.log.PruneRuns(t.Context(), eventlog.PruneOptions{RunIDs: []string{"acme/a", "acme/encrypted"}})
		return err
	}},
	{"an archive of another database", func(t *testing.T, f fixture) error {
		from := onSQLite(t)
		err := record(t, from.log, slices.Concat(logtest.Finished("acme/archived", 3), logtest.Finished("acme/a", 1))...)
		archive, failed := archived(t, from.log)
		_, imported := store.ImportArchive(t.Context(), f.log, archive)
		return errors.Join(err, failed, imported)
	}},
	{"an archive of what was removed", func(t *testing.T, f fixture) error {
		archive, err := archived(t, f.log)
		_, pruned := f.log.PruneRuns(t.Context(), eventlog.PruneOptions{Namespace: "acme"})
		_, imported := store.ImportArchive(t.Context(), f.log, archive)
		return errors.Join(err, pruned, imported)
	}},
	{"partitions that are made", func(t *testing.T, f fixture) error {
		server, ok := f.log.(*store.Server)
		if !ok {
			return nil
		}
		_, err := server.MakePartitions(t.Context(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 2, false)
		return errors.Join(err, record(t, f.log, logtest.Finished("acme/partitioned", 2)...))
	}},
	{"a tenant that is erased with its runs", func(t *testing.T, f fixture) error {
		_, err := f.Erase(t.Context(), "acme", f.log)
		return err
	}},
	{"old runs that are removed", func(t *testing.T, f fixture) error {
		_, err := store.PruneOld(t.Context(), f.log, store.Retirement{Before: time.Now()})
		return err
	}},
}

// TestRecordedBytesAreThoseOfTheEvents adds, moves and removes events in every way that there is. After each, the
// bytes in the rows of the runs are those that their events have. A new method of a database has to be among the
// operations if it changes events.
func TestRecordedBytesAreThoseOfTheEvents(t *testing.T) {
	t.Parallel()
	for _, of := range []reflect.Type{reflect.TypeFor[eventlog.Database](), reflect.TypeFor[eventlog.Shared]()} {
		for method := range of.Methods() {
			is := slices.ContainsFunc(operations, func(o operation) bool { return o.name == method.Name })
			if is == slices.Contains(reading, method.Name) {
				t.Errorf("%v.%s is to be either among the operations or among those that read", of, method.Name)
			}
		}
	}
	for name, open := range map[string]opener{"SQLite": onSQLite, "PostgreSQL": onPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			for _, o := range operations {
				if err := o.do(t, f); err != nil {
					t.Fatalf("%s: %v", o.name, err)
				}
				if logtest.Counted(t, f.log); t.Failed() {
					t.Fatalf("after %s", o.name)
				}
			}
		})
	}
}
